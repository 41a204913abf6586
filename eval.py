"""Plays full games and reports them: python eval.py run=outputs/<run> | model=... | player=...

Prints tables beside the solvers on the same words. With json=true the last line is summary.json's
content.
"""

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wordle_rl import cli


@hydra.main(version_base="1.3", config_path="conf", config_name="eval")
def main(cfg: DictConfig) -> None:
    from wordle_rl.evaluate import evaluate

    evaluate(cfg, HydraConfig.get().overrides.task)


if __name__ == "__main__":
    cli.run(main)
