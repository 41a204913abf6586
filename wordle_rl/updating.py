"""Improves the policy on the judged rollouts of a step: epochs, minibatches, optimiser steps.

Weights are given on each whole minibatch, that of all processes, before sequences that teach
nothing and those of other processes are left out, so leaving them out changes no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Algorithm, Floats, Judgement, Rows
from wordle_rl.batching import minibatches, take
from wordle_rl.chat import Chat
from wordle_rl.judging import Sample, Scores
from wordle_rl.policy import Policy
from wordle_rl.processes import share
from wordle_rl.records import Batch, Sequence, conversation, pad
from wordle_rl.teaching import TokenTeacher

if TYPE_CHECKING:
    from wordle_rl.step import Lab

# The rows of one update and the weight of each row's tokens.
Portion = tuple[NDArray[np.int64], Floats]


def learn(
    policy: Policy, lab: Lab, step: int, samples: Many[Sample], judgement: Judgement, chat: Chat
) -> dict[str, float]:
    """All updates of a step. Returns their metrics."""
    algorithm = lab.algorithm
    sequences = [conversation(sample.rollout, i) for i, sample in enumerate(samples)]
    groups = np.array([samples[s.rollout].rollout.group for s in sequences])
    rows = _rows(sequences, judgement)
    kept = rows.lengths > 0
    if algorithm.skips_zero_advantages:
        kept &= rows.used
    if not kept.any():
        return {"update/empty": 1.0}
    own = np.flatnonzero(kept & np.isin(groups, share(lab.groups, policy.processes)))
    batch = _batch([sequences[i] for i in own], samples, judgement, chat.tokenizer.pad_id)
    if lab.teacher is not None and lab.teacher.distribution:
        teacher = TokenTeacher(lab.teacher.player, chat)
        own_rollouts = [samples[sequences[i].rollout].rollout for i in own]
        batch = replace(batch, distributions=[teacher.of_rollout(r) for r in own_rollouts])
    if judgement.units is not None:
        batch = replace(batch, units=rows.units[own])

    def portions(epoch: int) -> Iterator[Portion]:
        parts = minibatches(groups, algorithm.minibatches, seed=lab.seed, step=step, epoch=epoch)
        for part in parts:
            if kept[part].any():  # in some process
                weights = np.zeros(len(sequences))
                weights[part] = algorithm.weights(
                    Rows(lengths=rows.lengths[part], used=rows.used[part], units=rows.units[part])
                )
                mine = np.flatnonzero(np.isin(own, part))
                yield mine, weights[own[mine]]

    return update(policy, algorithm, batch, portions)


def _rows(sequences: list[Sequence], judgement: Judgement) -> Rows:
    units = np.arange(len(judgement.advantages)) if judgement.units is None else judgement.units
    return Rows(
        lengths=np.array([sum(s.trained) for s in sequences], np.int64),
        used=np.array([bool(np.any(judgement.advantages[s.rollout])) for s in sequences]),
        units=np.array([units[s.rollout] for s in sequences]),
    )


def _batch(
    sequences: list[Sequence], samples: Many[Sample], judgement: Judgement, pad_id: int
) -> Batch:
    """Sequences with what they are judged by; weights come with each minibatch."""

    def marked(values: Floats, sequence: Sequence) -> list[float]:
        at_tokens = values[sequence.turns] if len(values) else np.zeros(len(sequence.ids))
        return (at_tokens * sequence.trained).tolist()

    values = {
        "advantages": [marked(judgement.advantages[s.rollout], s) for s in sequences],
        "weights": [[0.0] * len(s.ids) for s in sequences],
    }
    if judgement.targets is not None:
        values["targets"] = [marked(judgement.targets[s.rollout], s) for s in sequences]
    scores = [samples[s.rollout].scores for s in sequences]
    values |= _known(scores)
    return replace(pad(sequences, values, pad_id), target_scale=judgement.target_scale)


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


def update(
    policy: Policy,
    algorithm: Algorithm,
    batch: Batch,
    portions: Callable[[int], Iterable[Portion]],
) -> dict[str, float]:
    """All optimiser steps on one batch, whose rows `portions` deals out anew in each epoch.

    Metrics are means over the steps, but for the sum of `update/skipped` and the largest
    `policy/ratio_gap`.
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
    metrics["policy/ratio_gap"] = max(m["policy/ratio_gap"] for m in seen)
    metrics["update/skipped"] = sum(m["update/skipped"] for m in seen)
    return {**metrics, "update/count": float(len(seen))}
