"""Training sequences: a rollout's tokens in the order the policy saw them, and their padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wordle_rl.policy.batch import Batch
from wordle_rl.rollouts.records import Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSequence:
    """A prompt and everything after it, with a mask of the tokens to train on."""

    ids: list[int]  # [T] prompt, answers and feedback in the order they were seen
    trained: list[bool]  # [T] True for sampled tokens, except in deliberate mistakes
    sampler_logprobs: list[float]  # [T] natural log at the sampling temperature, 0 elsewhere
    turns: list[int]  # [T] turn whose prompt or answer the token is in
    rollout: int  # index of the rollout within the step


def build_sequences(rollout: Rollout, index: int) -> list[TrainingSequence]:
    """A rollout's sequences, one for each prompt. A game that could not begin has none."""
    count = len(rollout.turns)
    begins = [i for i, turn in enumerate(rollout.turns) if turn.fresh or i == 0]
    return [
        build_sequence(rollout, index, part) for part in map(range, begins, [*begins[1:], count])
    ]


def build_sequence(rollout: Rollout, index: int, numbers: range | None = None) -> TrainingSequence:
    """The turns of a rollout with these numbers, or all, as one growing conversation."""
    ids: list[int] = []
    trained: list[bool] = []
    logprobs: list[float] = []
    turns: list[int] = []
    for number in numbers or range(len(rollout.turns)):
        turn = rollout.turns[number]
        prompt, drawn = turn.prompt_ids, turn.completion
        turns += [number] * (len(prompt) + len(drawn.ids))
        ids += prompt + drawn.ids
        trained += [False] * len(prompt) + [turn.trained] * len(drawn.ids)
        logprobs += [0.0] * len(prompt) + drawn.logprobs
    return TrainingSequence(
        ids=ids, trained=trained, sampler_logprobs=logprobs, turns=turns, rollout=index
    )


def find_answers(rollout: Rollout, sequence: TrainingSequence) -> list[tuple[int, int]]:
    """The turns of one sequence of a rollout, each with the position where its answer begins."""
    found, place = [], 0
    for number in range(sequence.turns[0], sequence.turns[-1] + 1):
        turn = rollout.turns[number]
        place += len(turn.prompt_ids)
        found.append((number, place))
        place += len(turn.completion.ids)
    return found


def pad(
    sequences: list[TrainingSequence], values: dict[str, list[list[float]]], pad_id: int
) -> Batch:
    """Pad sequences and their per-token values to a Batch.

    values: for each field of the Batch a list of [T], one per sequence. It must have `advantages`
    and `weights`.
    """
    lengths = np.array([len(s.ids) for s in sequences], np.int64)
    shape = (len(sequences), int(lengths.max(initial=0)))
    ids = np.full(shape, pad_id, np.int64)
    trained = np.zeros(shape, bool)
    floats = {k: np.zeros(shape, np.float32) for k in ("sampler_logprobs", *values)}
    for row, sequence in enumerate(sequences):
        end = lengths[row]
        ids[row, :end] = sequence.ids
        trained[row, :end] = sequence.trained
        floats["sampler_logprobs"][row, :end] = sequence.sampler_logprobs
        for key, rows in values.items():
            floats[key][row, :end] = rows[row]
    return Batch(ids=ids, lengths=lengths, trained=trained, **floats)  # pyright: ignore[reportArgumentType]
