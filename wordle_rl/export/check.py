"""Exports a checkpoint, and compares what was written with the trained model before it gets a name.

The trained model answers in a few games on held-out secrets. Both models score the sampled tokens,
in float32. So a difference comes from the written weights, and not from how they are computed with.

Then the trained model plays whole greedy games, and the library that the folder is for answers each
of their prompts by itself, as its user would have it, with what the folder says about drawing. If
all answers are equal, it plays the same games. Where an answer parts from the trained model's by
rounding, the rest of that game is still compared, on the trained model's boards.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.backends import load_backend
from wordle_rl.export import formats
from wordle_rl.export.formats import ExportFormat, Source
from wordle_rl.game.rules import State
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.models import MAIN
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.policy.settings import LightningSettings, ModelSettings
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.progress import announce
from wordle_rl.training.update import pad

_GAMES = 24
_ANSWERS = 2  # of each game, so that feedback is read, too
_TOKENS = 64  # most of an answer
_GREEDY_GAMES = 4  # of the games, which are played greedily to their ends
# Weights above which it is one game: in float32 on a CPU a library needs 2 s for an answer of
# SmolLM2, so by weights some 40 s for one of a model with 3 billion.
_LARGE = 2 * 10**8
# How many times the largest change of a log-probability may part two greedy answers.
_MAX_GAP = 4
_SEED = 0
_FAULT = "the exported model plays other greedy games in its own library, which"

# How much rounding changes the log-probability of a token on average, in nats: correct weights
# were off by up to 3e-6 in float32, 8e-4 in float16 and 4e-3 in bfloat16, in models from two layers
# to the 30 of SmolLM2. torch and MLX differ by up to 1e-4 in float32.
ROUNDING = {"float32": 1e-3, "float16": 0.005, "bfloat16": 0.02}
# Above this share of the adapter's change it is a loss to warn of, and a fault where rounding does
# not explain it. Merging twice, not at all, or at twice the scale loses 70 % or more.
MOST_LOST = 0.5
_MOST_ROUNDINGS = 25  # without an adapter to compare with


def export(
    source: Source,
    target: Path,
    form: ExportFormat,
    precision: str,
    card: Callable[[str, Change], str],
) -> tuple[str, Change]:
    """Write a new folder, whole or not at all. Returns its precision, and how far it is off.

    card: makes README.md from those two. Raises ConfigError for a format that the model cannot
    have, and for weights that are not those of the model.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as room:
        folder = Path(room) / "model"
        dtype = formats.write(source.folder, folder, form, precision)
        probe = play_probe(source)
        base = None
        if source.base is not None:
            with announce("scoring the base"):
                base = _build_policy(source, source.base).score(probe.batch)
        answers = answer_plainly(source, folder, form, probe)
        policy = open_export(source, folder, form, probe.opening)
        with announce("scoring the export"):
            scores = policy.score(probe.batch)
        change = measure_change(probe.batch.trained, probe.scores, scores, base)
        check_change(change, dtype)
        check_answers(probe, answers, policy, change)
        (folder / "README.md").write_text(card(dtype, change), encoding="utf-8")
        if target.exists():  # with --force
            target.rename(Path(room) / "old")
        folder.rename(target)
    return dtype, change


@dataclass(frozen=True, kw_only=True)
class Change:
    """How far log-probabilities of sampled tokens are from the trained model's, in nats."""

    tokens: int
    mean: float  # of the absolute differences
    largest: float
    adapter: float | None = None  # mean that the adapter itself changes; None without an adapter

    @property
    def lost(self) -> float | None:
        """The mean change as a share of what the adapter changes."""
        return self.mean / self.adapter if self.adapter else None

    def describe(self) -> str:
        """One sentence for the terminal and the card."""
        text = (
            f"on {self.tokens} tokens that the trained model drew, log-probabilities differ by "
            f"{self.mean:.2g} on average and by {self.largest:.2g} at most"
        )
        if self.lost is None:
            return text
        return f"{text}, which is {self.lost:.2%} of what the adapter changes ({self.adapter:.2g})"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the trained model said in a few games on held-out secrets."""

    opening: list[int]  # ids of the first prompt
    batch: Batch  # the conversations
    scores: FloatArray  # their log-probabilities [N, T]
    prompts: list[list[int]]  # the distinct ones of whole greedy games
    answers: list[list[int]]  # its greedy ones to these prompts
    stops: Collection[int]


def play_probe(source: Source) -> Probe:
    """Let the trained model begin a few games, always the same ones, and play some greedily."""
    policy = _build_policy(source, source.model)
    form = build_form(source.form, Chat(policy.tokenizer), source.style)
    tokens = min(source.sampling.max_tokens, _TOKENS)
    sampling = Sampling(temperature=source.sampling.temperature, max_tokens=tokens)
    draws = Draws(seed=_SEED, stream=Stream.EVALUATION)
    secrets = [*itertools.islice(itertools.cycle(source.secrets), _GAMES)]
    with announce("playing held-out games"):
        try:
            player = ModelPlayer(engine=policy.engine(), form=form, sampling=sampling, draws=draws)
            talks = _talks_of(player, source, secrets, answers=_ANSWERS)
            batch = pad(talks, policy.tokenizer.pad_id)
            greedy_player = replace(player, sampling=replace(sampling, temperature=0.0), talks={})
            count = 1 if policy.machine.num_parameters[1] > _LARGE else _GREEDY_GAMES
            dialogues = _list_answers(_talks_of(greedy_player, source, secrets[:count]))
            return Probe(
                opening=form.opening(State()),
                batch=batch,
                scores=policy.score(batch),
                prompts=[[*prompt] for prompt in dialogues],
                answers=[*dialogues.values()],
                stops=policy.tokenizer.stop_ids,
            )
        except NotFinite as error:
            raise ConfigError(f"{error}: the weights of the run may be broken") from None


def _talks_of(
    player: ModelPlayer, source: Source, secrets: Sequence[str], answers: int | None = None
) -> list[Talk]:
    """The conversations of new games. answers: the most of a game; None plays each to its end."""
    games = play(player, new_games(secrets, source.words, source.rules), answers=answers)
    return [*itertools.chain(*player.all_talks(games))]


def _list_answers(talks: Sequence[Talk]) -> dict[tuple[int, ...], list[int]]:
    """Each distinct prompt of conversations, from their first token on, with its answer."""
    return {
        tuple(talk.ids[: part.start]): talk.ids[part.start : part.stop]
        for talk in talks
        for part in talk.answers.values()
    }


def answer_plainly(
    source: Source, folder: Path, form: ExportFormat, probe: Probe
) -> list[list[int]]:
    """Greedy answers to the probe's prompts, drawn by the library of the written folder alone."""
    tokens = max(map(len, probe.answers))
    with announce("answering greedily"):
        if form == "mlx":
            from wordle_rl.backends.mlx.backend import answer_plainly as answer

            return answer(folder, probe.prompts, tokens)
        from wordle_rl.backends.torch.backend import answer_plainly

        base = (source.base.location, source.base.revision) if source.base else None
        return answer_plainly(
            folder, probe.prompts, tokens, base=base if form == "peft" else None, stops=probe.stops
        )


def check_answers(
    probe: Probe, answers: Sequence[Sequence[int]], exported: Policy, change: Change
) -> None:
    """Raise ConfigError if a library answers otherwise than the trained model, but for rounding.

    Where two greedy answers part, their tokens must be as likely, but for what the weights changed.
    """
    if not (pairs := _find_partings(probe, answers)):
        return
    talks = []
    for ids in pairs:
        talks.append(Talk())
        talks[-1].hear(ids[:-1], 0)
        talks[-1].answer(ids[-1:], 0)
    scores = exported.score(pad(talks, exported.tokenizer.pad_id))
    logprobs = np.array([row[len(ids) - 1] for row, ids in zip(scores, pairs, strict=True)])
    gap = float(np.abs(logprobs[::2] - logprobs[1::2]).max())
    if not gap <= _MAX_GAP * change.largest + ROUNDING["float32"]:
        raise ConfigError(
            f"{_FAULT} draws tokens that are {gap:.2g} nats less likely; nothing was exported"
        )


def _find_partings(probe: Probe, answers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Prompt and answer up to the first token that differs: the trained model's, then the other's.

    Raises ConfigError if an answer is the other's beginning.
    """
    pairs = list[list[int]]()
    for prompt, *pair in zip(probe.prompts, probe.answers, answers, strict=True):
        length = min(map(len, pair))
        index = next((i for i in range(length) if pair[0][i] != pair[1][i]), None)
        if index is not None:
            pairs += [[*prompt, *answer[: index + 1]] for answer in pair]
        elif len(pair[0]) != len(pair[1]) and (length < len(pair[0]) or pair[0][-1] in probe.stops):
            raise ConfigError(f"{_FAULT} ends answers elsewhere; nothing was exported")
    return pairs


def open_export(source: Source, folder: Path, form: ExportFormat, opening: list[int]) -> Policy:
    """The written model as its own library loads it.

    Raises ConfigError if its tokenizer makes other ids of the first prompt than `opening`.
    """
    if form == "mlx":
        from wordle_rl.backends.mlx.backend import open_plain

        policy: Policy = open_plain(folder, max_context=source.model.max_context)
    else:
        backend = LightningSettings(precision="fp32", accelerator="cpu")
        model = replace(source.model, path=str(folder), revision=MAIN)
        policy = _build_policy(replace(source, backend=backend), model)
    chat_form = build_form(source.form, Chat(policy.tokenizer), source.style)
    if chat_form.opening(State()) != opening:
        raise ConfigError(
            f"format={form}: the written tokenizer makes other tokens of the first prompt than the "
            "run's; nothing was exported"
        )
    return policy


def measure_change(
    drawn: np.ndarray, trained: FloatArray, found: FloatArray, base: FloatArray | None
) -> Change:
    """Compare log-probabilities [N, T] of the tokens that the trained model drew.

    found: the written model's. base: those of the model under the adapter.
    """
    gaps = np.abs(found - trained)[drawn].astype(float)
    return Change(
        tokens=int(drawn.sum()),
        mean=float(gaps.mean()),
        largest=float(gaps.max()),
        adapter=None if base is None else float(np.abs(base - trained)[drawn].mean()),
    )


def check_change(change: Change, precision: str) -> None:
    """Raise ConfigError if the written weights are not those of the trained model.

    Prints a warning where rounding takes much of a small adapter.
    """
    way_out = "" if precision == "float32" else "; --precision float32 rounds less"
    limit = _MOST_ROUNDINGS * ROUNDING[precision]
    text = f"{limit:g}"
    if change.adapter:
        limit = max(MOST_LOST * change.adapter, ROUNDING[precision])
        text = f"{MOST_LOST:.0%} of what the adapter changes"
    if not change.mean <= limit:  # also for NaN
        raise ConfigError(
            f"the exported model differs from the trained one by more than {text}: "
            f"{change.describe()}; nothing was exported{way_out}"
        )
    if (change.lost or 0) > MOST_LOST:
        print(f"warning: rounding took {change.lost:.0%} of what the adapter changes{way_out}")


def _build_policy(source: Source, model: ModelSettings) -> Any:
    module = load_backend(source.backend)
    with announce(f"loading {model.path}"):
        return module.build_policy(model, source.backend, temperature=1.0, optim=Optim())
