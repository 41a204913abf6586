"""Small training runs that several test files make, and what two equal runs have in common."""

import itertools
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.configs import composed
from tests.helpers.tiny import many_stops, qwen, qwen_like_tokenizer
from wordle_rl.commands.train import train
from wordle_rl.runs.checkpoints import CheckpointStore, step_of

SMALL = [
    "experiment=none",
    "words.test=6",
    "words.val=6",
    "rollout.groups=4",
    "num_generations=2",
    "rules.max_turns=3",  # an untrained model loses, so each game has them all
    # An untrained model makes no guesses, but its answers differ in length.
    "reward=phase2_brief",
    "reward.lawful=false",
    "reward.components.brevity.free=0",
    "reward.components.brevity.per=8",
    "rollout.credit=game",
    "rollout.discount=1",
    "backend.precision=fp32",
    "backend.accelerator=cpu",
    "backend.threads=1",
    "logger=none",
    "optim.lr=1e-2",
    "optim=adamw",
    "optim.warmup_steps=2",
    "trainer.games_every=1",
    "trainer.show_games=0",
    "trainer.checkpoint_every=2",
    "trainer.validate_every=3",
    "trainer.steps=6",
]
STAGES = {
    "sft": ["algorithm=sft"],
    "grpo with a reference": ["algorithm.beta=0.04"],
    "grammar": [
        *("algorithm.beta=0.04", "algorithm.semantic=0.1"),
        *("sampling.grammar=words", "sampling.repeats=false"),
    ],
    "two updates with muon": ["algorithm.epochs=2", "optim=muon", "rollout.credit=turn"],
    "ppo": ["algorithm=ppo", "algorithm.minibatches=2", "algorithm.epochs=2"],
    "ppo behind by one, in phases": [
        *("algorithm=ppo", "algorithm.minibatches=2", "algorithm.epochs=2", "trainer.lag=1"),
        *("curriculum=phases", "curriculum.epochs=0.2"),
    ],
    "dapo": ["algorithm=dapo", "algorithm.resample=2"],
    "dpo": ["algorithm=dpo"],
    "lora": ["algorithm.beta=0.1", "model.lora={rank: 4, alpha: 8}"],
}
# Differ from run to run: seconds, what is made of them, and memory.
_CLOCK = ("time/", "games_per_second", "seconds", "memory/")


def settings(folder: Path, stage: str) -> list[str]:
    """The overrides of a run; its model and its word list are written to the folder."""
    words, base = folder / "words.txt", folder / "base"
    letters = itertools.product("bcdf", "aei", "lmn", "o", "rs")
    words.write_text("\n".join(map("".join, letters)) + "\n")
    model = qwen(340)
    # An untrained model seldom draws the one token that ends Qwen's answers.
    model.generation_config.eos_token_id = list(many_stops(340))
    model.save_pretrained(base)
    qwen_like_tokenizer().save_pretrained(base)
    return [*SMALL, f"words.answers={words}", f"model.path={base}", *STAGES[stage]]


def run(root: Path, *overrides: str) -> tuple[dict[str, Any], Path]:
    """Train into a new folder in root. Returns the summary and the run folder."""
    given = [*overrides, f"output_dir={root}"]
    before = set(root.iterdir())
    summary = train(composed(*given), given)
    [folder] = set(root.iterdir()) - before
    return summary, folder


def resume(folder: Path, *overrides: str) -> dict[str, Any]:
    given = [f"resume={folder}", *overrides]
    return train(composed(*given), given)


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_clock(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: without_clock(v) for k, v in values.items() if not k.startswith(_CLOCK)}
    return [without_clock(value) for value in values] if isinstance(values, list) else values


def files(folder: Path) -> set[str]:
    """The paths in a run folder. The page is left out: runs inside a test write none."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return found - {"report.html"}


def assert_equal_runs(one: Path, other: Path) -> None:
    """Both folders hold the same, bit for bit, but for clocks, paths and process numbers."""
    assert files(one) == files(other)
    for path in [*one.glob("*games.jsonl"), *one.glob("groups.jsonl")]:
        assert path.read_bytes() == (other / path.name).read_bytes()
    # NaN is null in these files, so that equal values compare equal.
    assert without_clock(metrics_of(one)) == without_clock(metrics_of(other))
    for name in ("start.json", "summary.json"):
        ours, theirs = (json.loads((folder / name).read_text()) for folder in (one, other))
        assert without_clock(ours) == without_clock(theirs)
    assert pointers(one) == pointers(other)
    for path in other.rglob("*"):
        twin = one / path.relative_to(other)
        if path.name == "state.json" or path.suffix == ".safetensors":
            assert twin.read_bytes() == path.read_bytes(), path


def pointers(folder: Path) -> list[str]:
    """The newest checkpoint and the one marked as best."""
    store = CheckpointStore(folder / "checkpoints", read_only=True)
    return [path.name for path in (store.latest(), store.best()) if path]


def assert_close_runs(one: Path, other: Path) -> None:
    """The same games, and the same numbers up to rounding."""
    assert files(one) == files(other)
    for name in ("games.jsonl", "metrics.jsonl", "groups.jsonl"):
        if not (one / name).exists():  # nothing is compared
            continue
        ours, theirs = ((f / name).read_text().splitlines() for f in (one, other))
        for mine, its in zip(ours, theirs, strict=True):
            assert is_close(without_clock(json.loads(mine)), without_clock(json.loads(its))), mine
    weights = "model/model.safetensors"
    mine, its = (load_file(folder / weights) for folder in (one, other))
    apart = torch.cat([(mine[name] - its[name]).abs().ravel() for name in its])
    # AdamW moves a weight by the learning rate, too, whose gradient is only what rounding left.
    assert apart.quantile(0.99) < 1e-5


def is_close(one: Any, other: Any) -> bool:
    """Whether two records of a log have the same entries, numbers being equal up to rounding."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(is_close(one[k], other[k]) for k in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(is_close, one, other))
    near = isinstance(other, float) and math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-5)
    return near or one == other


def stop(place: Any, name: str, call: int, signum: int, start: Callable[[], Any]) -> None:
    """Call start() and send a signal when the function `name` of `place` begins its call `call`."""
    real, calls = getattr(place, name), 0

    def signalled(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signum)
        return real(*arguments, **named)

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, signalled)
        with pytest.raises(SystemExit) as end:
            start()
    assert end.value.code == 128 + signum and calls >= call
    assert before == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]


def assert_saved(folder: Path, done: int) -> None:
    """The newest checkpoint and the log end with this step; -1 for neither."""
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    newest = CheckpointStore(folder / "checkpoints", read_only=True).load_latest()
    if newest is None:
        assert done == -1 and not (folder / "metrics.jsonl").exists()
        return
    state = json.loads((newest / "state.json").read_text())
    logged = metrics_of(folder) if (folder / "metrics.jsonl").exists() else []
    assert step_of(newest) == state["step"] == (logged[-1]["step"] if logged else 0) == done
