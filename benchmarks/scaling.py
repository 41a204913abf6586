"""Does the cost model of docs/SCALING.md predict the steps of one and of two processes?

    python benchmarks/scaling.py            # measures, predicts, compares: 10 minutes, two cores
    python benchmarks/scaling.py --gpus     # predicts steps on 1 to 64 GPUs, measures nothing
    python benchmarks/scaling.py --smoke    # does it still work?

One process with one thread does steps of a quarter and of half the games, which gives what a part
of a step costs at least and per game. Two such runs side by side give what sharing the memory
costs. From these the model predicts steps of all games in one process and in two, which are then
measured, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks._costs import H100, MODELS, Games, Model, fit_line, step_seconds
from benchmarks._scene import machine
from benchmarks._timing import spread
from wordle_rl.runs.paths import ROOT, environment

AIM = 0.20  # how far a prediction may be from the measured step
_LOOPBACK = 1e9  # bytes a second that Gloo sums on one machine: assumed, and hardly matters
_SKIPPED = 2  # first steps, in which memory and caches grow
_GAMES = Games(count=1024)
_MINI = 1.6e6  # weights of the embedded model mini


def main() -> None:
    given = options()
    if given.gpus:
        print(describe_gpus())
        return
    print(machine())
    games, steps = (64, 2 + _SKIPPED) if given.smoke else (512, 10 + _SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), games, steps, repeats=1 if given.smoke else given.repeats)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="measured runs of each kind")
    parser.add_argument("--gpus", action="store_true", help="print the table of predictions")
    parser.add_argument("--avx2", action="store_true", help="compute with AVX2 alone")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    return parser.parse_args()


def compare(folder: Path, games: int, steps: int, *, repeats: int) -> None:
    """Print what one process was measured to cost, the predictions, and the measured steps."""
    small, half = (run(folder, games // share, steps) for share in (4, 2))
    lines = {part: fit_line((games / 4, small[part]), (games / 2, half[part])) for part in small}
    for part, (least, each) in lines.items():
        print(f"{part}: {1000 * least:.0f} ms a step, and {1000 * each:.2f} ms a game")
    together = run_side_by_side(folder, games // 2, steps)
    contention = sum(together.values()) / sum(half.values())
    print(f"two processes side by side take {contention:.2f} times as long as one")
    predicted = {
        1: sum(least + each * games for least, each in lines.values()),
        2: contention * sum(half.values()) + 4 * _MINI / _LOOPBACK,
    }
    measured: dict[int, list[float]] = {1: [], 2: []}
    for repeat in range(repeats):
        for processes in ((1, 2), (2, 1))[repeat % 2]:
            parts = run(folder, games, steps, processes=processes)
            measured[processes].append(sum(parts.values()))
    for processes, taken in measured.items():
        middle = statistics.median(taken)
        off = predicted[processes] / middle - 1
        print(
            f"{processes} process{'es' * (processes > 1)}: {predicted[processes]:.2f} s a step by "
            f"prediction, measured {middle:.2f} s ({100 * off:+.0f} %, aim ±{100 * AIM:.0f} %), "
            f"{games / middle:.1f} games/s"
        )
    ratios = [one / two for one, two in zip(measured[1], measured[2], strict=True)]
    each = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    print(f"two processes are {spread(each, 2)} times as fast as one with one thread")


def command(folder: Path, games: int, steps: int, processes: int) -> list[str]:
    return [
        sys.executable, "train.py", "experiment=demo", f"rollout.groups={games // 8}",
        f"trainer.steps={steps}", f"backend.devices={processes}", "backend.threads=1",
        "backend.precision=fp32", "trainer.report=false", "words.val=8", "logger=none",
        f"trainer.validate_every={steps}", f"output_dir={folder}",
    ]  # fmt: skip


def run(folder: Path, games: int, steps: int, *, processes: int = 1) -> dict[str, float]:
    """Median seconds of the parts of a step."""
    before = set(folder.iterdir())
    subprocess.run(
        command(folder, games, steps, processes), cwd=ROOT, env=environment(), check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    [made] = set(folder.iterdir()) - before
    return read_parts(made)


def run_side_by_side(folder: Path, games: int, steps: int) -> dict[str, float]:
    """The same for two runs at once that know nothing of each other: the mean of both."""
    before = set(folder.iterdir())
    both = [
        subprocess.Popen(
            command(folder, games, steps, 1), cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]
    one, other = (read_parts(made) for made in set(folder.iterdir()) - before)
    return {part: (one[part] + other[part]) / 2 for part in one}


def read_parts(run: Path) -> dict[str, float]:
    """Rollouts, and the rest of a step, whose parts grow with the games alike."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["step"] > _SKIPPED]
    step, rollouts = (
        statistics.median(sum(row[f"time/{part}"] for part in parts) for row in rows)
        for parts in (("step",), ("prefill", "decode", "game"))
    )
    return {"rollouts": rollouts, "rest": step - rollouts}


def describe_gpus() -> str:
    """A table of predicted steps, with what bounds each."""
    lines = [
        "| model | GPUs | rollouts | rewards | update | sum | step | games/s | of ideal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model in MODELS:
        alone = sum(step_seconds(model, _GAMES, H100, 1).values())
        lines += [describe(model, gpus, alone) for gpus in (1, 2, 4, 8, 16, 32, 64)]
    return "\n".join(lines)


def describe(model: Model, gpus: int, alone: float) -> str:
    parts = step_seconds(model, _GAMES, H100, gpus)
    step = sum(parts.values())
    cells = [model.name, str(gpus), *(f"{seconds:.2f} s" for seconds in parts.values())]
    cells += [f"{step:.2f} s", f"{_GAMES.count / step:.0f}", f"{100 * alone / step / gpus:.0f} %"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
