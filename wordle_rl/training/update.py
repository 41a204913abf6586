"""Improves the policy on the scored rollouts of a step: epochs, minibatches, optimiser steps.

select_rows leaves out rollouts that teach nothing. The algorithm adapts to all drawn tokens of the
step, and may hold back some of them. build_batch pads the rest, and weigh_minibatches gives each
token its weight in the loss. Weights are computed over the whole minibatch, from all processes and
with the left-out rollouts, so dropping them does not change the gradient. All tokens of a rollout
weigh the same, in whichever of its conversations they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, Algorithm, Array
from wordle_rl.policy.batch import Batch, TokenTargets, minibatches, take
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.policy.token_outputs import LARGEST
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout, Scores, Talk
from wordle_rl.runs.processes import share
from wordle_rl.training.targets import ASTRAY, build_token_teacher

# The rows of one update, and the weight of each row's tokens.
Minibatch = tuple[NDArray[np.int64], Array]
Values = Mapping[str, Sequence[Sequence[float] | np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What of a step is trained on. Axes: R rollouts of all processes, S own conversations."""

    groups: NDArray[np.int64]  # [R] number of each rollout's group
    lengths: Array  # [R] drawn tokens
    used: Array  # [R] False where every advantage is 0
    units: Array  # [R] rollouts with equal numbers share one loss
    kept: Array  # [R] False for rollouts that cannot teach anything
    own: list[tuple[int, Talk, Scores | None]]  # [S] of this process, with the rollout's index


def run_updates(
    step: Step, rollouts: Sequence[Rollout], advantages: Advantages
) -> dict[str, float]:
    """Do all updates of a step. Returns their metrics."""
    selection = select_rows(step, rollouts, advantages)
    if not selection.kept.any():
        return {"update/empty": 1.0}
    order = in_group_order(rollouts)
    talks = [talk for _, talk in order]
    logprobs = drawn_logprobs(talks)
    algorithm = step.recipe.algorithm.adapted(logprobs)
    of_talks = [_token_advantages(advantages, i, talk) for i, talk in order]
    hold_metrics = hold_back(step, algorithm, talks, logprobs, of_talks)
    of_tokens = {id(talk): values for talk, values in zip(talks, of_talks, strict=True)}
    batch = build_batch(step, rollouts, selection, advantages, of_tokens)
    deal = partial(weigh_minibatches, step, selection)
    metrics = update_in_minibatches(step.policy, algorithm, batch, deal) | hold_metrics
    if step.recipe.agreement:
        lengths = [rollouts[i].answer_lengths for i in np.flatnonzero(selection.kept).tolist()]
        metrics["update/guesses"] = sum(map(len, lengths)) / step.recipe.algorithm.minibatches
    return metrics


def select_rows(step: Step, rollouts: Sequence[Rollout], advantages: Advantages) -> Selection:
    """Select the rollouts [R] that teach something, and this process's conversations [S]."""
    groups = np.array([rollout.group for rollout in rollouts])
    counts = [sum(sum(talk.drawn) for talk in rollout.talks) for rollout in rollouts]
    lengths, used = np.array(counts, np.int64), advantages.teaches
    kept = lengths > 0
    if not step.recipe.algorithm.needs.zero_advantages:
        kept &= used
    num_groups = step.recipe.rollout.groups
    mine = np.isin(groups % num_groups, share(num_groups, step.policy.processes))
    rows = [
        (i, talk, score)
        for i in np.flatnonzero(kept & mine).tolist()
        for talk, score in zip(rollouts[i].talks, rollouts[i].scores or repeat(None), strict=False)
        if any(talk.trained)
    ]
    units = np.arange(len(rollouts)) if advantages.units is None else advantages.units
    return Selection(groups=groups, lengths=lengths, used=used, units=units, kept=kept, own=rows)


def in_group_order(rollouts: Sequence[Rollout]) -> list[tuple[int, Talk]]:
    """All conversations with their rollout's index, in one order for any number of processes."""
    order = np.argsort([rollout.group for rollout in rollouts], kind="stable")
    return [(i, talk) for i in order.tolist() for talk in rollouts[i].talks]


def hold_back(
    step: Step,
    algorithm: Algorithm,
    talks: Sequence[Talk],
    logprobs: Array,
    of_talks: Sequence[Array],
) -> dict[str, float]:
    """Set to 0 the advantages of tokens from which the algorithm does not learn. Returns metrics.

    talks: conversations of all processes, in_group_order. logprobs: their drawn_logprobs. of_talks:
    their advantages [T], changed in place.
    """
    masks = [np.array(talk.drawn, bool) for talk in talks]
    learnt = algorithm.learns(
        logprobs,
        np.concatenate([values[marks] for values, marks in zip(of_talks, masks, strict=True)]),
        generator(Purpose.HELD_BACK, seed=step.recipe.seed, step=step.number),
    )
    if learnt is None:
        return {}
    ends = np.cumsum([marks.sum() for marks in masks])
    for values, marks, part in zip(of_talks, masks, np.split(learnt, ends[:-1]), strict=True):
        values[marks] *= part
    return {"policy/held_back": 1.0 - float(learnt.mean())}


def drawn_logprobs(talks: Sequence[Talk]) -> Array:
    """[M] natural logs of the probabilities of all drawn tokens, when they were drawn."""
    return np.concatenate([np.array(talk.logprobs)[np.array(talk.drawn, bool)] for talk in talks])


def _token_advantages(advantages: Advantages, i: int, talk: Talk) -> Array:
    """[T] advantages of the drawn tokens of a conversation of rollout i, 0 elsewhere."""
    drawn = np.array(talk.drawn, bool)
    values = advantages.per_turn[i][talk.turns] * drawn
    if advantages.per_token is not None:
        for turn, part in talk.answers.items():
            answer = slice(part.start, part.stop)
            values[answer] += advantages.per_token[i][turn] * drawn[answer]
    return values


def build_batch(
    step: Step,
    rollouts: Sequence[Rollout],
    selection: Selection,
    advantages: Advantages,
    of_tokens: Mapping[int, Array],
) -> Batch:
    """Pad the own conversations to [S, T]. Each minibatch sets its own weights.

    of_tokens: for each conversation, by its id(), the advantages [T] of its tokens.
    """
    rows = selection.own
    values: dict[str, Any] = {"advantages": [of_tokens[id(talk)] for _, talk, _ in rows]}
    if advantages.targets is not None:
        targets = advantages.targets
        values["targets"] = [targets[i][talk.turns] * talk.drawn for i, talk, _ in rows]
    scores = [score for _, _, score in rows if score is not None]  # computed before the advantages
    if scores:
        values |= {name: [score[name] for score in scores] for name in scores[0]}
    batch = pad([talk for _, talk, _ in rows], step.form.chat.tokenizer.pad_id, values)
    # What follows the last trained token, such as an end that a grammar forces, has no effect.
    ends = (batch.trained * np.arange(1, batch.trained.shape[1] + 1)).max(axis=1, initial=0)
    batch = replace(batch, lengths=ends, target_scale=advantages.target_scale)
    if advantages.units is not None:
        batch = replace(batch, units=np.array([advantages.units[i] for i, *_ in rows], np.int64))
    if step.recipe.agreement:  # secrets in turn, so that both halves are independent
        numbers = np.array([selection.groups[i] for i, *_ in rows], np.int64)
        batch = replace(batch, halves=numbers % step.recipe.rollout.groups % 2 == 1)
    lesson = step.recipe.teacher
    if lesson is None or not lesson.distribution:
        return batch
    teacher = build_token_teacher(lesson, step.form)
    return learn_targets(batch, [teacher.of_talk(rollouts[i].game, talk) for i, talk, _ in rows])


def learn_targets(batch: Batch, targets: list[TokenTargets]) -> Batch:
    """The batch with distributions [S] to learn in place of its ids.

    They weigh less in answers that are wrong already. A token without a target teaches nothing.
    """
    advantages = np.zeros_like(batch.advantages)
    for row, target in enumerate(targets):
        advantages[row, target.places] = batch.advantages[row, target.places]
        advantages[row, target.astray] *= ASTRAY
    return replace(batch, advantages=advantages, distributions=targets)


def weigh_minibatches(step: Step, selection: Selection, epoch: int) -> Iterator[Minibatch]:
    """Yield the rows of each minibatch of an epoch, and the weight [rows] of each row's tokens.

    A minibatch is a share of the step's groups. Its weights are computed over the rollouts of all
    processes.
    """
    recipe = step.recipe
    origin = np.array([i for i, *_ in selection.own], np.int64)
    for part in minibatches(
        selection.groups,
        recipe.algorithm.minibatches,
        seed=recipe.seed,
        step=step.number,
        epoch=epoch,
    ):
        if selection.kept[part].any():  # in some process
            weights = np.zeros(len(selection.groups))
            weights[part] = recipe.algorithm.weights(
                selection.lengths[part], selection.used[part], selection.units[part]
            )
            rows = np.flatnonzero(np.isin(origin, part))
            yield rows, weights[origin[rows]]


def update_in_minibatches(
    policy: Policy, algorithm: Algorithm, batch: Batch, deal: Callable[[int], Iterable[Minibatch]]
) -> dict[str, float]:
    """Do all optimiser steps on one batch. Returns their metrics.

    deal: splits the rows into the minibatches of an epoch. Metrics are means over the optimiser
    steps. `update/skipped` and `update/halved` are sums, and the metrics in LARGEST are maxima.
    """
    if algorithm.epochs * algorithm.minibatches > 1 and batch.old_logprobs is None:
        batch = replace(batch, old_logprobs=policy.score(batch))
    if algorithm.needs.values and batch.old_values is None:
        batch = replace(batch, old_values=policy.values(batch))
    if algorithm.needs.reference and batch.ref_logprobs is None:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    results = []
    for epoch in range(algorithm.epochs):
        for rows, weights in deal(epoch):
            part = take(batch, rows)
            token_weights = (part.trained * weights[:, None]).astype(np.float32)
            results.append(policy.update(replace(part, weights=token_weights), algorithm))
    metrics = {name: float(np.mean([m[name] for m in results])) for name in results[0]}
    metrics |= {f"policy/{name}": max(m[f"policy/{name}"] for m in results) for name in LARGEST}
    if algorithm.imitates is not None:  # nobody sampled its tokens
        metrics = {name: m for name, m in metrics.items() if not name.endswith("sampler_gap")}
    metrics |= {name: sum(m[name] for m in results) for name in ("update/skipped", "update/halved")}
    return {**metrics, "update/count": float(len(results))}


def pad(talks: Sequence[Talk], pad_id: int, values: Values | None = None) -> Batch:
    """Pad conversations and their per-token values to a Batch.

    values: for each field of the Batch a list of [T], one per conversation. Advantages and weights
    are 0 without it.
    """
    lengths = np.array([len(talk.ids) for talk in talks], np.int64)
    shape = (len(talks), int(lengths.max(initial=0)))
    ids = np.full(shape, pad_id, np.int64)
    trained, drawn = np.zeros(shape, bool), np.zeros(shape, bool)
    fields = {"sampler_logprobs": [talk.logprobs for talk in talks], **(values or {})}
    floats = {name: np.zeros(shape, np.float32) for name in ("advantages", "weights", *fields)}
    for row, talk in enumerate(talks):
        end = lengths[row]
        ids[row, :end], trained[row, :end], drawn[row, :end] = talk.ids, talk.trained, talk.drawn
        for name, rows in fields.items():
            floats[name][row, :end] = rows[row]
    choices = None
    if any(tokens is not None for talk in talks for tokens in talk.choices):
        choices = [
            [tokens for tokens, learnt in zip(talk.choices, talk.trained, strict=True) if learnt]
            for talk in talks
        ]
    forced = None if (drawn == trained).all() else trained & ~drawn
    arrays: Any = {"forced": forced, "choices": choices, **floats}
    return Batch(ids=ids, lengths=lengths, trained=trained, **arrays)
