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
    arguments = [*overrides, f"output_dir={root}"]
    folders = set(root.iterdir())
    summary = train(composed(*arguments), arguments)
    [folder] = set(root.iterdir()) - folders
    return summary, folder


def resume(folder: Path, *overrides: str) -> dict[str, Any]:
    arguments = [f"resume={folder}", *overrides]
    return train(composed(*arguments), arguments)


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_clock(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: without_clock(v) for k, v in values.items() if not k.startswith(_CLOCK)}
    return [without_clock(value) for value in values] if isinstance(values, list) else values


def files(folder: Path) -> set[str]:
    """The paths in a run folder. The page is left out: runs inside a test write none."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return paths - {"report.html"}


def assert_equal_runs(folder_a: Path, folder_b: Path) -> None:
    """Both folders hold the same, bit for bit, but for clocks, paths and process numbers."""
    assert files(folder_a) == files(folder_b)
    for path in [*folder_a.glob("*games.jsonl"), *folder_a.glob("groups.jsonl")]:
        assert path.read_bytes() == (folder_b / path.name).read_bytes()
    # NaN is null in these files, so that equal values compare equal.
    assert without_clock(metrics_of(folder_a)) == without_clock(metrics_of(folder_b))
    for name in ("start.json", "summary.json"):
        a, b = (json.loads((folder / name).read_text()) for folder in (folder_a, folder_b))
        assert without_clock(a) == without_clock(b)
    assert pointers(folder_a) == pointers(folder_b)
    for path in folder_b.rglob("*"):
        twin = folder_a / path.relative_to(folder_b)
        if path.name == "state.json" or path.suffix == ".safetensors":
            assert twin.read_bytes() == path.read_bytes(), path


def pointers(folder: Path) -> list[str]:
    """The newest checkpoint and the one marked as best."""
    store = CheckpointStore(folder / "checkpoints", read_only=True)
    return [path.name for path in (store.latest(), store.best()) if path]


def assert_close_runs(folder_a: Path, folder_b: Path) -> None:
    """The same games, and the same numbers up to rounding."""
    assert files(folder_a) == files(folder_b)
    for name in ("games.jsonl", "metrics.jsonl", "groups.jsonl"):
        if not (folder_a / name).exists():  # nothing is compared
            continue
        lines_a, lines_b = ((f / name).read_text().splitlines() for f in (folder_a, folder_b))
        for a, b in zip(lines_a, lines_b, strict=True):
            assert is_close(without_clock(json.loads(a)), without_clock(json.loads(b))), a
    weights = "model/model.safetensors"
    a, b = (load_file(folder / weights) for folder in (folder_a, folder_b))
    gaps = torch.cat([(a[name] - b[name]).abs().ravel() for name in b])
    # AdamW moves a weight by the learning rate, too, whose gradient is only what rounding left.
    assert gaps.quantile(0.99) < 1e-5


def is_close(a: Any, b: Any) -> bool:
    """Whether two records of a log have the same entries, numbers being equal up to rounding."""
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(is_close(a[k], b[k]) for k in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(map(is_close, a, b))
    near = isinstance(b, float) and math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5)
    return near or a == b


def stop(place: Any, name: str, call: int, signum: int, start: Callable[[], Any]) -> None:
    """Call start() and send a signal when the function `name` of `place` begins its call `call`."""
    function, calls = getattr(place, name), 0

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signum)
        return function(*arguments, **keywords)

    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, wrapper)
        with pytest.raises(SystemExit) as end:
            start()
    assert end.value.code == 128 + signum and calls >= call
    assert handlers == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]


def assert_saved(folder: Path, step: int) -> None:
    """The newest checkpoint and the log end with this step; -1 for neither."""
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    checkpoint = CheckpointStore(folder / "checkpoints", read_only=True).load_latest()
    if checkpoint is None:
        assert step == -1 and not (folder / "metrics.jsonl").exists()
        return
    state = json.loads((checkpoint / "state.json").read_text())
    rows = metrics_of(folder) if (folder / "metrics.jsonl").exists() else []
    assert step_of(checkpoint) == state["step"] == (rows[-1]["step"] if rows else 0) == step
