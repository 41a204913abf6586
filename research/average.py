"""The mean of adapters: python research/average.py <output> <adapter> <adapter> ...

Runs from one start move in directions that agree in what they learnt and hardly in their noise, so
the mean of their adapters keeps the one and loses a part of the other (docs/RL.md). An adapter is a
folder of PEFT, such as <run>/model or the model/ of a checkpoint. All must have the same base and
the same LoRA settings. The output is a folder that model= takes.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
COPIED = (CONFIG, "chat_template.jinja", "wordle_rl.json")
SAME = ("base_model_name_or_path", "r", "lora_alpha", "target_modules", "use_rslora", "use_dora")


def read_settings(folder: Path) -> dict[str, object]:
    """What must be equal for a mean of weights to mean anything."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    settings = {name: config.get(name) for name in SAME}
    modules = settings["target_modules"]
    return {**settings, "target_modules": sorted(modules) if isinstance(modules, list) else modules}


def average(output: Path, folders: list[Path]) -> None:
    """Write the mean of the adapters, with the settings and the record of the first."""
    first, *others = [read_settings(folder) for folder in folders]
    for folder, settings in zip(folders[1:], others, strict=True):
        if names := [name for name in SAME if settings[name] != first[name]]:
            sys.exit(f"error: {folder}: its {names[0]} is not that of {folders[0]}")
    parts = [load_file(str(folder / WEIGHTS)) for folder in folders]
    mean = {
        name: torch.stack([part[name].float() for part in parts]).mean(0).to(weight.dtype)
        for name, weight in parts[0].items()
    }
    output.mkdir(parents=True)
    save_file(mean, str(output / WEIGHTS), metadata={"format": "pt"})
    for name in COPIED:
        if (folders[0] / name).is_file():
            shutil.copyfile(folders[0] / name, output / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="a new folder")
    parser.add_argument("adapters", type=Path, nargs="+", help="folders of PEFT's form")
    args = parser.parse_args()
    if args.output.exists():
        sys.exit(f"error: {args.output} exists; give a new folder")
    for folder in args.adapters:
        if not (folder / WEIGHTS).is_file():
            sys.exit(f"error: {folder} has no {WEIGHTS}; give a folder of PEFT's form")
    average(args.output, args.adapters)
    print(args.output)


if __name__ == "__main__":
    main()
