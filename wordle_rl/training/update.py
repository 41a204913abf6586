"""Improves the policy on the scored rollouts of a step: epochs, minibatches, optimiser steps.

select_rows leaves out samples that teach nothing, build_batch pads the rest, and weigh_minibatches
gives each token its weight in the loss. Weights are computed over the whole minibatch, from all
processes and with the left-out samples, so dropping samples does not change the gradient. All
sequences of a rollout weigh the same, so their number does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, Algorithm, Floats, UpdateRows
from wordle_rl.policy.batch import Batch, minibatches, take
from wordle_rl.policy.policy import LARGEST, Policy
from wordle_rl.rollouts.base import Step
from wordle_rl.rollouts.records import Rollout
from wordle_rl.runs.processes import share
from wordle_rl.training.advantages import Sample, Scores
from wordle_rl.training.sequences import TrainingSequence, build_sequences, find_answers, pad
from wordle_rl.training.targets import build_token_teacher

# A sequence of a step's batch, with its scores if there are any.
Row = tuple[TrainingSequence, Scores | None]
# The rows of one update, and the weight of each row's tokens.
Minibatch = tuple[NDArray[np.int64], Floats]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The samples of a step to train on. Axes: R samples of all processes, S own sequences."""

    samples: Sequence[Sample]  # [R]
    groups: NDArray[np.int64]  # [R] number of each sample's group
    rows: UpdateRows  # [R]
    kept: NDArray[np.bool_]  # [R] False for samples that cannot teach anything
    own: list[Row]  # [S] this process's sequences to train on
    origin: NDArray[np.int64]  # [S] the sample that each sequence comes from


def run_updates(step: Step, samples: Sequence[Sample], advantages: Advantages) -> dict[str, float]:
    """Do all updates of a step. Returns their metrics."""
    selection = select_rows(step, samples, advantages)
    if not selection.kept.any():
        return {"update/empty": 1.0}
    batch = build_batch(step, selection, advantages)

    def deal(epoch: int) -> Iterator[Minibatch]:
        return weigh_minibatches(step, selection, epoch)

    return update_in_minibatches(step.policy, step.recipe.algorithm, batch, deal)


def select_rows(step: Step, samples: Sequence[Sample], advantages: Advantages) -> Selection:
    """Select the samples [R] that teach something, and this process's sequences [S] of them."""
    groups = np.array([sample.rollout.group for sample in samples])
    rows = UpdateRows(
        lengths=np.array([_count_trained(sample.rollout) for sample in samples], np.int64),
        used=advantages.teaches,
        units=np.arange(len(samples)) if advantages.units is None else advantages.units,
    )
    kept = rows.lengths > 0
    if step.recipe.algorithm.skips_zero_advantages:
        kept &= rows.used
    planned = step.recipe.rollout.groups
    mine = np.isin(groups % planned, share(planned, step.policy.processes))
    own = [row for i in np.flatnonzero(kept & mine).tolist() for row in _rows_of(samples[i], i)]
    origin = np.array([sequence.rollout for sequence, _ in own], np.int64)
    return Selection(samples=samples, groups=groups, rows=rows, kept=kept, own=own, origin=origin)


def build_batch(step: Step, selection: Selection, advantages: Advantages) -> Batch:
    """Pad the own sequences to [S, T], with advantages. Each minibatch sets its own weights."""
    parts = [sequence for sequence, _ in selection.own]

    def spread(of_turns: Floats, sequence: TrainingSequence) -> list[float]:
        """Turn values per turn [K] into values per trained token [T], 0 elsewhere."""
        return (of_turns[sequence.turns] * sequence.trained).tolist()

    values = {
        "advantages": [spread(advantages.per_turn[s.rollout], s) for s in parts],
        "weights": [[0.0] * len(s.ids) for s in parts],
    }
    if advantages.per_token is not None:
        for row, sequence in zip(values["advantages"], parts, strict=True):
            more = advantages.per_token[sequence.rollout]
            rollout = selection.samples[sequence.rollout].rollout
            for turn, begin in find_answers(rollout, sequence):
                for place, value in enumerate(more[turn], begin):
                    row[place] += value * sequence.trained[place]
    if advantages.targets is not None:
        values["targets"] = [spread(advantages.targets[s.rollout], s) for s in parts]
    values |= _known_scores([scores for _, scores in selection.own])
    batch = replace(
        pad(parts, values, step.form.chat.tokenizer.pad_id), target_scale=advantages.target_scale
    )
    if advantages.units is not None:
        batch = replace(batch, units=selection.rows.units[selection.origin])
    lesson = step.recipe.teacher
    if lesson is not None and lesson.distribution:
        teacher = build_token_teacher(lesson, step.form)
        of_rollout = [selection.samples[s.rollout].rollout for s in parts]
        targets = [teacher.of_sequence(*pair) for pair in zip(of_rollout, parts, strict=True)]
        batch = replace(batch, distributions=targets)
    return batch


def weigh_minibatches(step: Step, selection: Selection, epoch: int) -> Iterator[Minibatch]:
    """Yield the rows of each minibatch of an epoch, and the weight [rows] of each row's tokens.

    A minibatch is a share of the step's groups. Its weights are computed over the samples of all
    processes.
    """
    recipe, rows = step.recipe, selection.rows
    for part in minibatches(
        selection.groups, recipe.algorithm.minibatches,
        seed=recipe.seed, step=step.number, epoch=epoch,
    ):  # fmt: skip
        if selection.kept[part].any():  # in some process
            weights = np.zeros(len(selection.samples))
            weights[part] = recipe.algorithm.weights(
                UpdateRows(lengths=rows.lengths[part], used=rows.used[part], units=rows.units[part])
            )
            chosen = np.flatnonzero(np.isin(selection.origin, part))
            yield chosen, weights[selection.origin[chosen]]


def _count_trained(rollout: Rollout) -> int:
    """How many tokens of a rollout are trained."""
    return sum(len(turn.completion.ids) for turn in rollout.turns if turn.trained)


def _rows_of(sample: Sample, index: int) -> list[Row]:
    """The sequences of a sample that have trained tokens."""
    parts = build_sequences(sample.rollout, index)
    scores = [None] * len(parts) if sample.scores is None else sample.scores
    return [row for row in zip(parts, scores, strict=True) if any(row[0].trained)]


def _known_scores(scores: list[Scores | None]) -> dict[str, list[list[float]]]:
    """Fields of a batch that were already computed before the advantages."""
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
    deal: Callable[[int], Iterable[Minibatch]],
) -> dict[str, float]:
    """Do all optimiser steps on one batch. Returns their metrics.

    deal: splits the rows into the minibatches of an epoch. Metrics are means over the optimiser
    steps. `update/skipped` and `update/halved` are sums, and the metrics in LARGEST are maxima.
    """
    if algorithm.epochs * algorithm.minibatches > 1 and batch.old_logprobs is None:
        batch = replace(batch, old_logprobs=policy.score(batch))
    if algorithm.needs_reference and batch.ref_logprobs is None:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    seen = [
        policy.update(take(batch, rows, weights), algorithm)
        for epoch in range(algorithm.epochs)
        for rows, weights in deal(epoch)
    ]
    metrics = {name: float(np.mean([m[name] for m in seen])) for name in seen[0]}
    metrics |= {f"policy/{name}": max(m[f"policy/{name}"] for m in seen) for name in LARGEST}
    if algorithm.imitates is not None:  # nobody sampled its tokens
        metrics = {name: m for name, m in metrics.items() if not name.endswith("sampler_gap")}
    metrics |= {name: sum(m[name] for m in seen) for name in ("update/skipped", "update/halved")}
    return {**metrics, "update/count": float(len(seen))}
