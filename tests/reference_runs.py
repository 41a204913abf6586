"""Six seeded runs whose numbers a rebuilding must not change.

    python tests/reference_runs.py          # compares with reference_runs.json
    python tests/reference_runs.py --keep   # after a change that is meant to change numbers

Each run has one thread and fp32. Its games.jsonl and metrics.jsonl are compared to the last digit,
apart from seconds and memory. Where they differ, the metrics of the last step show by how much.
The kept digests are of one kind of processor; on another kind, compare two commits there: --keep on
the first, without it on the second.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
BASE = (
    "rollout.groups=8 rollout.num_generations=6 trainer.steps=4 trainer.validate_every=2 "
    "trainer.checkpoint_every=4 trainer.games_every=1 trainer.show_games=0 trainer.report=false "
    "words.test=20 words.val=20 backend.precision=fp32 logger=none seed=3 experiment=none"
)
TORCH = "backend.threads=1 backend.accelerator=cpu"
RUNS = {
    "grpo with kl": f"model=micro algorithm=grpo algorithm.beta=0.05 {TORCH}",
    "ppo best_of with history": f"model=micro algorithm=ppo rollout=best_of history=upto4 {TORCH}",
    "distill": f"model=micro algorithm=distill {TORCH}",
    "dapo replay, fresh prompts": (
        f"model=micro algorithm=dapo curriculum=replay rollout.form=fresh {TORCH}"
    ),
    "gspo single turns on mlx": "model=micro backend=mlx algorithm=gspo rollout=turn",
    "rloo gated": f"model=micro algorithm=rloo curriculum=gated {TORCH}",
}
# Differ from run to run: seconds, what is made of them, and memory.
CLOCK = ("time/", "games_per_second", "seconds", "memory/")
# Metrics that came after the kept digests. The next --keep takes them in: empty this then.
NEW_METRICS: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="write reference_runs.json anew")
    keep = parser.parse_args().keep
    results = {name: run(line) for name, line in RUNS.items()}
    if keep:
        RECORD.write_text(json.dumps({"processor": processor(), "runs": results}, indent=1) + "\n")
        return
    record = json.loads(RECORD.read_text())
    if record["processor"] != processor():
        print(f"kept on {record['processor']}, here {processor()}: rounding may differ")
    equal = [compare(name, results[name], record["runs"][name]) for name in RUNS]
    sys.exit(0 if all(equal) else 1)


def run(line: str) -> dict[str, Any]:
    """Train, and return the digests of what it wrote and the metrics of its last step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", *line.split(), *BASE.split(), f"output_dir={folder}"]
        result = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        if result.returncode:
            sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
        [subdir] = (path for path in Path(folder).iterdir() if path.is_dir())
        steps = [json.loads(text) for text in (subdir / "metrics.jsonl").read_text().splitlines()]
        games = (subdir / "games.jsonl").read_bytes()
    prefixes = (*CLOCK, *NEW_METRICS)
    steps = [{k: v for k, v in step.items() if not k.startswith(prefixes)} for step in steps]
    values = json.dumps(steps, sort_keys=True).encode()
    digests = {"games": games, "metrics": values}
    return {
        **{name: hashlib.sha256(content).hexdigest()[:16] for name, content in digests.items()},
        "last": {name: value for name, value in steps[-1].items() if isinstance(value, float)},
    }


def compare(name: str, result: dict[str, Any], record: dict[str, Any]) -> bool:
    """Say how a run differs from the kept one. Returns whether it is equal."""
    changes = [part for part in ("games", "metrics") if result[part] != record[part]]
    print(f"{name}: {'equal' if not changes else ' and '.join(changes) + ' differ'}")
    if changes:
        metrics, old_metrics = result["last"], record["last"]
        for metric in sorted(metrics.keys() | old_metrics.keys()):
            value, old_value = metrics.get(metric, math.nan), old_metrics.get(metric, math.nan)
            if value != old_value:
                print(f"    {metric}: {old_value:.9g} -> {value:.9g}")
    return not changes


def processor() -> str:
    """What decides the order of sums: the name of the processor, and the switches for an older."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"{name}, {os.environ.get('ATEN_CPU_CAPABILITY', 'all instructions')}"


if __name__ == "__main__":
    main()
