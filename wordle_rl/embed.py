"""Turns a finished run into an embedded model: python -m wordle_rl.embed outputs/<run>

Writes the run's best weights (with --last its final weights) in bfloat16, the tokenizer, the record
of its stages, and a model card with results of the written weights. Of a run with LoRA it writes
the adapter alone. The folder is wordle_rl/embedded/<name>, by default tiny.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import hashlib
import json
import os
import textwrap
from pathlib import Path
from typing import Any

from wordle_rl.build import build_experiment, resolve
from wordle_rl.earlier_run import read_saved_config
from wordle_rl.evaluation.summary import summarise
from wordle_rl.licences import OURS, find_licence
from wordle_rl.policy.lineage import describe_lineage, describe_secrets
from wordle_rl.policy.model_names import EMBEDDED
from wordle_rl.policy.settings import LightningSettings
from wordle_rl.policy.stages import Stage, prompt_name, stages_of, write_stages
from wordle_rl.prompts.styles import Places
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.held_out_play import HeldOutPlay

_MODELS = {  # name: purpose, Makefile target, experiment
    "tiny": (
        "badly enough to learn: the start of every run with `model=tiny`",
        "embedded-model",
        "make_tiny_2",
    ),
    "lexicon": (
        "without a preference\namong the words that fit: the start of `experiment=clean` and `all`",
        "lexicon-model",
        "make_lexicon_2",
    ),
    "lexicon_clean": (
        "better than the\nteacher of `model=lexicon`, by reinforcement from there",
        "clean-model",
        "clean",
    ),
    "mini": (
        "badly enough to learn:\nthe start of `experiment=demo`, `quick` and of studies",
        "mini-model",
        "make_mini",
    ),
    "smollm2_sft": (
        "a little:\nthe start of `experiment=smollm2_grpo`",
        "smollm2-adapter",
        "smollm2_sft",
    ),
    "micro": (
        "badly: the small start of `experiment=smoke`, quick on either backend",
        "micro-model",
        "make_micro",
    ),
}
_TEACHERS = {  # player: what it guesses
    "random_consistent": "a random answer that fits all clues",
    "random_consistent_allowed": "a random allowed word that fits all clues",
    "entropy": "the word of highest entropy",
}
_IMITATION = "It was taught by imitation only; no reinforcement learning has touched it."
_PRETRAINING = """
That takes the place of pretraining: the model knows words as a person knows English."""
_REINFORCEMENT = "Reinforcement learning was its last stage."
_CARD = """---
license: {licence}
---

# The embedded Wordle model {name}

{kind} that plays Wordle, {purpose}.
{nature}

- Made by `make {target}` with `experiment={experiment}`: {chosen} of {steps}, seed {seed}.
- Digest of the word lists: `{words}`
- Digest of the splits: `{splits}`
- sha256 of {file} (bfloat16): `{weights}`
- Prompt: `prompt={prompt}`. Tokenizer: {tokenizer}.

Each stage, with the secrets that its training games could have:

| stage | secrets | algorithm | teacher |
| --- | --- | --- | --- |
{stages}
{slips}
Greedy play from an empty board, six turns, a non-word uses one up:

| secrets | games | wins (95 %) | mean guesses of wins | mean, losses as 7 | non-words |
| --- | --- | --- | --- | --- | --- |
{rows}

{lineage}

Made on Python {python}, torch {torch}, {platform}.
On another machine the digits may differ: bfloat16 kernels round differently.
"""


def embed(run: RunFolder, name: str, *, last: bool = False) -> str:
    """Write model, tokenizer and card. Returns the card. last: the newest weights, not the best."""
    from wordle_rl.backends.adapter_conversion import is_adapter
    from wordle_rl.backends.torch.backend import build_policy
    from wordle_rl.backends.torch.weights import copy_adapter_as_bfloat16, copy_as_bfloat16

    setup = build_experiment(resolve(read_saved_config(run)))
    newest = CheckpointStore(run.checkpoints, read_only=True).latest()
    source = newest if last and newest is not None else run.path
    folder = EMBEDDED / name
    folder.mkdir(parents=True, exist_ok=True)
    if adapted := is_adapter(source / "model"):
        copy_adapter_as_bfloat16(source / "model", folder)
    else:
        copy_as_bfloat16(source / "model", folder)
    # Only new stages: one of an earlier embedded model keeps that model's name.
    write_stages(folder, [{"embedded": name, **stage} for stage in stages_of(run.path / "model")])
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
        # A large model would take long to play all training secrets.
        secrets = setup.splits.secrets(split)[: len(setup.splits.test) if adapted else None]
        games = play.play(secrets, f"{split} secrets")
        rows.append(
            summarise(games, setup.knowledge, player=name, split=split, rules=setup.recipe.rules)
        )
    summary = json.loads((run.path / "summary.json").read_bytes())
    step = summary.get("exported_step", summary["best_step"])
    why = "the best by validation" if step == summary["best_step"] else "because the best was lost"
    chosen = "the last step" if last else f"step {step}, {why},"
    describe = _describe_adapter if adapted else _describe_model
    kind = describe(folder, policy, setup)
    card = _card(run, setup, folder, rows, chosen, kind)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return card


def _describe_model(folder: Path, policy: Any, setup: Experiment) -> dict[str, str]:
    """What the card says of a whole model."""
    family = json.loads((folder / "config.json").read_bytes())["model_type"].capitalize()
    token = "allowed word" if isinstance(setup.recipe.style, Places) else "letter"
    return {
        "licence": OURS.identifier,
        "kind": f"A {family} of {policy.num_parameters[1]:,} weights",
        "more": _PRETRAINING,
        "file": "model.safetensors",
        "tokenizer": f"{len(policy.tokenizer.inner):,} tokens, one for each {token} and each\n"
        "  phrase of the prompts",
    }


def _describe_adapter(folder: Path, policy: Any, setup: Experiment) -> dict[str, str]:
    """What the card says of an adapter."""
    from wordle_rl.backends.adapter_conversion import FILES, read_adapter_config

    described = read_adapter_config(folder)
    base = described["base_model_name_or_path"]
    licence = find_licence(base)
    return {
        "licence": "unknown" if licence is None else licence.identifier,
        "kind": f"A LoRA adapter of {policy.num_parameters[0]:,} weights for {base}, of rank "
        f"{described['r']},",
        "more": "",
        "file": FILES["peft"],
        "tokenizer": "the base's",
    }


def _card(
    run: RunFolder, setup: Experiment, folder: Path, rows: list[dict[str, Any]], chosen: str,
    kind: dict[str, str],
) -> str:  # fmt: skip
    manifest, stages = run.manifest(), stages_of(folder)
    purpose, target, made_by = _MODELS[folder.name]
    taught = setup.recipe.algorithm.imitates
    slips = (
        f"\nOf the last teacher's turns, {taught.slips:.0%} are mistakes, which are not learnt.\n"
        if taught is not None and taught.slips
        else ""
    )
    lineage = describe_lineage(stages, setup.words, setup.splits)
    return _CARD.format(
        name=folder.name,
        purpose=purpose,
        target=target,
        nature=_REINFORCEMENT if taught is None else _IMITATION + kind["more"],
        **kind,
        experiment=made_by,
        stages="\n".join(map(_stage_row, stages)),
        slips=slips,
        lineage=textwrap.fill(lineage[:1].upper() + lineage[1:], 100),
        prompt=prompt_name(setup.recipe.style),
        chosen=chosen,
        steps=setup.trainer.steps,
        seed=setup.recipe.seed,
        words=manifest["digests"]["words"],
        splits=manifest["digests"]["splits"],
        weights=hashlib.sha256((folder / kind["file"]).read_bytes()).hexdigest(),
        rows="\n".join(
            f"| {r['split']} | {r['games']} | {r['win_rate']:.1%} ({r['win_rate_low']:.1%} to "
            f"{r['win_rate_high']:.1%}) | {_format_mean(r['mean_guesses'])} | "
            f"{r['mean_guesses_with_losses']:.2f} | {r['non_words']:.1%} |"
            for r in rows
        ),
        python=manifest["python"],
        torch=manifest["versions"]["torch"],
        platform=manifest["platform"],
    )


def _format_mean(guesses: float | None) -> str:
    return "-" if guesses is None else f"{guesses:.2f}"


def _stage_row(stage: Stage) -> str:
    player, careless = stage.get("player"), stage.get("careless")
    teacher = "-" if player is None else f"`{player}`: {_TEACHERS.get(player, 'its own choice')}"
    if careless:
        teacher += f"; any word in {careless:.0%} of its guesses"
    return (
        f"| {given_name(stage['run'])} | {describe_secrets(stage)} | "
        f"`{stage.get('algorithm', 'unknown')}` | {teacher} |"
    )


def main() -> None:
    parser = CommandParser(description="Turn a finished run into an embedded model.")
    parser.add_argument("run", help="run folder")
    parser.add_argument("--name", choices=_MODELS, default="tiny")
    parser.add_argument("--last", action="store_true", help="use the final weights, not the best")
    given = parser.parse_args()
    with user_errors():
        run = RunFolder.open(given.run)
        if run.manifest()["status"] != "finished":
            raise ValueError(f"{run.path}: the run is not finished")
        if not os.access(EMBEDDED, os.W_OK):
            raise ValueError(f"{EMBEDDED}: cannot be written; use a checkout of the project")
    print(embed(run, given.name, last=given.last))


if __name__ == "__main__":
    run_plain(main)
