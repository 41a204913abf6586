"""Improves the policy on the judged rollouts of a step: epochs, minibatches, optimiser steps.

Rollouts that teach nothing, such as those of groups without spread, are left out here.

Weights are given on each whole minibatch, that of all processes, before rollouts that teach nothing
and those of other processes are left out, so leaving them out changes no gradient. All sequences of
a rollout weigh alike, so how many a form makes of it changes none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, Algorithm, Floats, UpdateRows
from wordle_rl.policy.batch import Batch, minibatches, take
from wordle_rl.policy.policy import LARGEST, Policy
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import form_of
from wordle_rl.rollouts.records import Rollout
from wordle_rl.runs.processes import share
from wordle_rl.training.advantages import Sample, Scores
from wordle_rl.training.sequences import TrainingSequence, pad, sequences
from wordle_rl.training.targets import TokenTeacher

if TYPE_CHECKING:
    from wordle_rl.rollouts.base import Recipe

# A row of a step's batch, with what the trainer said of it if anything.
Row = tuple[TrainingSequence, Scores | None]
# The rows of one update and the weight of each row's tokens.
Portion = tuple[NDArray[np.int64], Floats]


def run_updates(
    policy: Policy,
    recipe: Recipe,
    step: int,
    samples: Sequence[Sample],
    judgement: Advantages,
    chat: Chat,
) -> dict[str, float]:
    """All updates of a step. Returns their metrics."""
    algorithm = recipe.algorithm
    groups = np.array([sample.rollout.group for sample in samples])
    rows = _rows(samples, judgement)
    kept = rows.lengths > 0
    if algorithm.skips_zero_advantages:
        kept &= rows.used
    if not kept.any():
        return {"update/empty": 1.0}
    mine = np.isin(groups % recipe.groups, share(recipe.groups, policy.processes))
    own = [s for i in np.flatnonzero(kept & mine).tolist() for s in _trained(samples[i], i)]
    of = np.array([sequence.rollout for sequence, _ in own], np.int64)  # rollout of each row
    batch = _batch(own, judgement, chat.tokenizer.pad_id)
    if recipe.teacher is not None and recipe.teacher.distribution:
        form = form_of(recipe.form, chat, recipe.style)
        teacher = TokenTeacher(recipe.teacher.player, form, recipe.teacher.reasoning)
        targets = [teacher.of_sequence(samples[s.rollout].rollout, s) for s, _ in own]
        batch = replace(batch, distributions=targets)
    if judgement.units is not None:
        batch = replace(batch, units=rows.units[of])

    def portions(epoch: int) -> Iterator[Portion]:
        parts = minibatches(groups, algorithm.minibatches, seed=recipe.seed, step=step, epoch=epoch)
        for part in parts:
            if kept[part].any():  # in some process
                weights = np.zeros(len(samples))
                weights[part] = algorithm.weights(
                    UpdateRows(
                        lengths=rows.lengths[part], used=rows.used[part], units=rows.units[part]
                    )
                )
                chosen = np.flatnonzero(np.isin(of, part))
                yield chosen, weights[of[chosen]]

    return update_in_minibatches(policy, algorithm, batch, portions)


def _rows(samples: Sequence[Sample], judgement: Advantages) -> UpdateRows:
    units = np.arange(len(samples)) if judgement.units is None else judgement.units
    return UpdateRows(
        lengths=np.array([_tokens(sample.rollout) for sample in samples], np.int64),
        used=np.array([bool(np.any(advantages)) for advantages in judgement.per_turn]),
        units=units,
    )


def _tokens(rollout: Rollout) -> int:
    """How many are trained."""
    return sum(len(turn.completion.ids) for turn in rollout.turns if turn.trained)


def _trained(sample: Sample, index: int) -> list[Row]:
    """A rollout's sequences that have anything to be trained on."""
    parts = sequences(sample.rollout, index)
    scores = [None] * len(parts) if sample.scores is None else sample.scores
    return [row for row in zip(parts, scores, strict=True) if any(row[0].trained)]


def _batch(rows: Sequence[Row], judgement: Advantages, pad_id: int) -> Batch:
    """Sequences with what they are judged by; weights come with each minibatch."""
    parts = [sequence for sequence, _ in rows]

    def marked(values: Floats, sequence: TrainingSequence) -> list[float]:
        return (values[sequence.turns] * sequence.trained).tolist()

    values = {
        "advantages": [marked(judgement.per_turn[s.rollout], s) for s in parts],
        "weights": [[0.0] * len(s.ids) for s in parts],
    }
    if judgement.targets is not None:
        values["targets"] = [marked(judgement.targets[s.rollout], s) for s in parts]
    values |= _known([scores for _, scores in rows])
    return replace(pad(parts, values, pad_id), target_scale=judgement.target_scale)


def _known(scores: list[Scores | None]) -> dict[str, list[list[float]]]:
    """Fields of a batch that were scored before judging."""
    known: dict[str, list[list[float]]] = {}
    for score in scores:
        if score is not None:
            for name, values in (
                ("old_logprobs", score.old_logprobs),
                ("ref_logprobs", score.ref_logprobs),
                ("old_values", score.values),
            ):
                if values is not None:
                    known.setdefault(name, []).append(values.tolist())
    return known


def update_in_minibatches(
    policy: Policy,
    algorithm: Algorithm,
    batch: Batch,
    portions: Callable[[int], Iterable[Portion]],
) -> dict[str, float]:
    """All optimiser steps on one batch, whose rows `portions` deals out anew in each epoch.

    Metrics are means over the steps, but for the sum of `update/skipped` and the largest of what
    LARGEST names.
    """
    if algorithm.epochs * algorithm.minibatches > 1 and batch.old_logprobs is None:
        batch = replace(batch, old_logprobs=policy.score(batch))
    if algorithm.needs_reference and batch.ref_logprobs is None:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    seen = [
        policy.update(take(batch, rows, weights), algorithm)
        for epoch in range(algorithm.epochs)
        for rows, weights in portions(epoch)
    ]
    metrics = {name: float(np.mean([m[name] for m in seen])) for name in seen[0]}
    metrics |= {f"policy/{name}": max(m[f"policy/{name}"] for m in seen) for name in LARGEST}
    if algorithm.imitates is not None:  # whose tokens nobody sampled
        metrics = {name: m for name, m in metrics.items() if not name.endswith("sampler_gap")}
    metrics["update/skipped"] = sum(m["update/skipped"] for m in seen)
    return {**metrics, "update/count": float(len(seen))}
