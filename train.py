"""Trains a model to play Wordle: python train.py [choice=option] [key=value] ...

python train.py --help lists the choices, --cfg job shows the composed config. Heavy imports happen
only once the config is known to be right.
"""

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wordle_rl import cli


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    from wordle_rl.train import train

    train(cfg, HydraConfig.get().overrides.task)


if __name__ == "__main__":
    cli.run(main)
