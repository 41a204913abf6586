"""Write what verl needs to train on our games.

    python examples/verl/write_files.py model=qwen3b reward=phase2 output=outputs/verl

Settings are those of train.py. The output folder gets the secrets of train, val and test as
Parquet files, the settings of the agent loop, and verl's own keys as far as they depend on the
experiment. examples/verl/train.sh starts verl 0.9.1 with them. See docs/SCALE.md.
"""

import sys

from wordle_rl.adapters.verl_files import write_folder
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT

_OUTPUT = "output="


def main(settings: list[str]) -> None:
    """settings: output=<folder>, and as train.py."""
    given = [value.removeprefix(_OUTPUT) for value in settings if value.startswith(_OUTPUT)]
    if len(given) != 1 or not given[0]:
        raise ConfigError("output must be given once: output=<folder>")
    others = [value for value in settings if not value.startswith(_OUTPUT)]
    if not any(value.startswith("experiment=") for value in others):
        others.insert(0, "experiment=none")  # verl follows little of what the demo sets
    setup = build_experiment(resolve(compose_config("config", others)))
    folder = ROOT / given[0]
    counts = write_folder(folder, setup)
    print(f"{folder}: {', '.join(f'{rows:,} {part}' for part, rows in counts.items())} rows")
    print(f"splits: {setup.splits.digest}")
    print("not followed by verl: credit by turn, discounts, curricula, Muon, 4 bit, our report")
    print(f"start: bash examples/verl/train.sh {folder}")


if __name__ == "__main__":
    with user_errors():
        main(sys.argv[1:])
