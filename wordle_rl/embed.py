"""Turns a finished run into an embedded model: python -m wordle_rl.embed outputs/<run>

Writes the run's best weights (with --last its final weights) in bfloat16, the tokenizer and a model
card with results of the written weights. The folder is wordle_rl/embedded/<name>, by default tiny.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin("torch", "transformers")

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from wordle_rl.build import build_experiment, resolve
from wordle_rl.earlier_run import read_saved_config
from wordle_rl.evaluation.summary import summarise
from wordle_rl.policy.settings import EMBEDDED, LightningSettings
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.held_out_play import HeldOutPlay

_MODELS = {  # name: purpose, Makefile target, experiment
    "tiny": (
        "badly enough to learn: the start of every run with `model=tiny`",
        "embedded-model",
        "make_tiny",
    ),
    "tiny_skilled": (
        "nearly as well as its teacher:\n"
        "the start of `experiment=tiny_split` and `experiment=tiny_all`",
        "skilled-model",
        "make_tiny_skilled_1` and then `experiment=make_tiny_skilled_2",
    ),
    "mini": (
        "badly enough to learn: the start of the shipped studies",
        "mini-model",
        "make_mini",
    ),
    "micro": (
        "seldom: the small start of `experiment=smoke`, quick on either backend",
        "micro-model",
        "make_micro",
    ),
}
_CARD = """---
license: mit
---

# The embedded Wordle model {name}

A Qwen2 of {parameters:,} weights that plays Wordle, {purpose}.
It was taught by imitation only; no reinforcement learning has touched it.

- Made by `make {target}` with `experiment={experiment}`: {chosen} of {steps}, seed {seed}.
- Data: games of a scripted player ({teacher}), who guesses a random word among the
  answers that fit all clues, over all 2,315 answers{slips}.
  It stands in for pretraining: the model knows the dictionary as a person knows English, test
  secrets included. `experiment={first} words.protocol=split` makes a model that never saw a
  game about a test or validation secret.
- Digest of the word lists: `{words}`
- Digest of the splits: `{splits}`
- sha256 of model.safetensors (bfloat16): `{weights}`
- Prompt: `prompt=symbols`. Tokenizer: {vocabulary} tokens, one for each letter and each phrase of
  the prompts.

Greedy play from an empty board, six turns, a non-word uses one up:

| secrets | games | wins (95 %) | mean guesses of wins | mean, losses as 7 | non-words |
| --- | --- | --- | --- | --- | --- |
{rows}

Made on Python {python}, torch {torch}, {platform}.
On another machine the digits may differ: bfloat16 kernels round differently.
"""


def embed(run: RunFolder, name: str, *, last: bool = False) -> str:
    """Write model, tokenizer and card. Returns the card. last: the newest weights, not the best."""
    from wordle_rl.backends.torch.backend import build_policy
    from wordle_rl.backends.torch.weights import copy_as_bfloat16

    setup = build_experiment(resolve(read_saved_config(run)))
    if setup.recipe.algorithm.imitates is None:
        raise ValueError(f"{run.path}: must be a warm start, a run that imitates a player")
    newest = CheckpointStore(run.checkpoints, read_only=True).latest()
    source = newest if last and newest is not None else run.path
    folder = EMBEDDED / name
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = copy_as_bfloat16(source / "model", folder)
    written = setup.model.__class__(
        name=name, path=str(folder), learning_rate=1.0, max_context=setup.model.max_context,
        max_tokens=setup.model.max_tokens,
    )  # fmt: skip
    assert isinstance(setup.backend, LightningSettings)
    policy = build_policy(written, setup.backend, temperature=1.0, optim=setup.optim)
    form = build_form(setup.recipe.rollout.form, Chat(policy.tokenizer), setup.recipe.style)
    play = HeldOutPlay(policy=policy, form=form, setup=setup)
    rows = []
    for split in ("train", "test"):
        secrets = setup.splits.secrets(split)
        games = play.play(secrets, f"{split} secrets")
        rows.append(
            summarise(games, setup.knowledge, player=name, split=split, rules=setup.recipe.rules)
        )
    summary = json.loads((run.path / "summary.json").read_bytes())
    step = summary.get("exported_step", summary["best_step"])
    why = "the best by validation" if step == summary["best_step"] else "because the best was lost"
    chosen = "the last step" if last else f"step {step}, {why},"
    card = _card(
        run, setup, folder, rows, chosen,
        parameters=policy.num_parameters[1], size=vocabulary,
    )  # fmt: skip
    (folder / "README.md").write_text(card, encoding="utf-8")
    return card


def _card(
    run: RunFolder, setup: Experiment, folder: Path, rows: list[dict[str, Any]], chosen: str, *,
    parameters: int, size: int,
) -> str:  # fmt: skip
    manifest = run.manifest()
    purpose, target, made_by = _MODELS[folder.name]
    taught = setup.recipe.algorithm.imitates
    assert taught is not None
    slips = f"; {taught.slips:.0%} of its turns are mistakes, not learnt" if taught.slips else ""
    return _CARD.format(
        name=folder.name,
        purpose=purpose,
        target=target,
        experiment=made_by,
        first=made_by.split("`")[0],
        slips=slips,
        parameters=parameters,
        chosen=chosen,
        steps=setup.trainer.steps,
        seed=setup.recipe.seed,
        teacher=taught.player,
        words=manifest["digests"]["words"],
        splits=manifest["digests"]["splits"],
        weights=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        vocabulary=size,
        rows="\n".join(
            f"| {r['split']} | {r['games']} | {r['win_rate']:.1%} ({r['win_rate_low']:.1%} to "
            f"{r['win_rate_high']:.1%}) | {r['mean_guesses']:.2f} | "
            f"{r['mean_guesses_with_losses']:.2f} | {r['non_words']:.1%} |"
            for r in rows
        ),
        python=manifest["python"],
        torch=manifest["versions"]["torch"],
        platform=manifest["platform"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Turn a finished run into an embedded model.")
    parser.add_argument("run", help="run folder of a warm start")
    parser.add_argument("--name", choices=_MODELS, default="tiny")
    parser.add_argument("--last", action="store_true", help="use the final weights, not the best")
    given = parser.parse_args()
    with user_errors():
        run = RunFolder.open(given.run)
        if run.manifest()["status"] != "finished":
            raise ValueError(f"{run.path}: the run is not finished")
    print(embed(run, given.name, last=given.last))


if __name__ == "__main__":
    run_plain(main)
