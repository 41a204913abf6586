"""What a rollout leaves behind, and what the trainer takes in. Axes: N sequences, T tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game import Game

if TYPE_CHECKING:
    from wordle_rl.teaching import Targets

FloatArray = NDArray[np.float32]


class StopReason(StrEnum):
    """Why an answer ended."""

    STOP_TOKEN = "stop_token"
    TOKEN_LIMIT = "token_limit"
    CONTEXT_FULL = "context_full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """The tokens of one answer."""

    ids: list[int]  # sampled token ids, stop token included
    logprobs: list[float]  # natural log at the sampling temperature, one per id
    stop: StopReason


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTurn:
    """The tokens of one turn of one rollout."""

    prompt_ids: list[int]  # tokens fed since the previous answer, environment text included
    completion: Completion  # what the policy drew; trained as it is
    trained: bool = True  # False for a mistake that was put into a teacher's game
    fresh: bool = False  # whether a prompt of its own begins here, which no earlier turn is in


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """What is judged as one, with its tokens: a game as it was played, or one guess."""

    game: Game  # from the state in which the policy took over; of one turn for a guess
    group: int  # number within the step, see wordle_rl.rollouts; a group has one state at its start
    turns: list[TokenTurn] = field(default_factory=list)  # [K] as many as the game has
    within: Game | None = None  # the whole game that this guess was a candidate in
    taken: bool = True  # whether it is how that game went on

    @property
    def whole_game(self) -> Game:
        """The game that it is, or that it was a candidate in."""
        return self.game if self.within is None else self.within


def games_of(rollouts: Iterable[Rollout]) -> list[Game]:
    """The games of some rollouts; one that guesses were candidates in counts once."""
    return list({id(rollout.whole_game): rollout.whole_game for rollout in rollouts}.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """One training sequence: a prompt and all that followed, with the tokens to be trained on."""

    ids: list[int]  # [T] prompt, answers and feedback in the order they were seen
    trained: list[bool]  # [T] True for sampled tokens, those of mistakes excepted
    sampler_logprobs: list[float]  # [T] natural log at the sampling temperature, 0 elsewhere
    turns: list[int]  # [T] turn whose answer a token belongs to, or precedes
    rollout: int  # index of its rollout within the step


def sequences(rollout: Rollout, index: int) -> list[Sequence]:
    """A rollout's sequences, one for each of its prompts; none for a game that could not begin."""
    count = len(rollout.turns)
    begins = [i for i, turn in enumerate(rollout.turns) if turn.fresh or i == 0]
    return [conversation(rollout, index, part) for part in map(range, begins, [*begins[1:], count])]


def conversation(rollout: Rollout, index: int, numbers: range | None = None) -> Sequence:
    """A rollout, or the turns of these numbers of it, as one growing conversation."""
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
    return Sequence(ids=ids, trained=trained, sampler_logprobs=logprobs, turns=turns, rollout=index)


def answers_at(rollout: Rollout, sequence: Sequence) -> list[tuple[int, int]]:
    """The turns of one of a rollout's sequences, each with the place where its answer begins."""
    found, place = [], 0
    for number in range(sequence.turns[0], sequence.turns[-1] + 1):
        turn = rollout.turns[number]
        place += len(turn.prompt_ids)
        found.append((number, place))
        place += len(turn.completion.ids)
    return found


def last_alone(turns: list[TokenTurn]) -> TokenTurn:
    """The last of a game's turns on its own: all it was drawn after is its prompt, not trained."""
    last, begin = turns[-1], len(turns) - 1
    while begin > 0 and not turns[begin].fresh:
        begin -= 1
    before = [[*turn.prompt_ids, *turn.completion.ids] for turn in turns[begin:-1]]
    return TokenTurn(
        prompt_ids=[*chain(*before), *last.prompt_ids],
        completion=last.completion,
        trained=last.trained,
        fresh=True,
    )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences padded on the right, with what the loss needs per token. All arrays are [N, T]."""

    ids: NDArray[np.int64]  # pad id behind the end
    lengths: NDArray[np.int64]  # [N] tokens of each sequence
    trained: NDArray[np.bool_]  # sampled tokens
    advantages: FloatArray  # 0 where not trained
    weights: FloatArray  # share of each token in the step's loss, 0 where not trained
    sampler_logprobs: FloatArray  # when sampled
    old_logprobs: FloatArray | None = None  # the trainer's, before the first update of this batch
    ref_logprobs: FloatArray | None = None  # the reference model's
    old_values: FloatArray | None = None  # the value head's, before the first update
    targets: FloatArray | None = None  # what the value head should have said, 0 where not trained
    target_scale: float = 1.0  # unit of values in the loss
    distributions: list[Targets] | None = None  # [N] learn these, not the ids
    units: NDArray[np.int64] | None = None  # [N] sequences of one unit are never split


def pad(sequences: list[Sequence], values: dict[str, list[list[float]]], pad_id: int) -> Batch:
    """A Batch of sequences with per-token values, lists of [T] by the name of the Batch's field.

    `advantages` and `weights` must be among them.
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
