"""The rollout engine: completes prompts, with a prefix cache of keys and values (a KV cache).

Each prompt is matched with the rows that are held, so the next turn of a conversation feeds only
what is new. A prompt that comes several times is computed once and copied.
What new prompts all begin with is computed once, too. After a call the engine holds its rows alone.

The model's cache has one row of keys and values in each slot. A row's length alone says which of
them count, so what was fed behind a row's end is never read. Rows whose answer has ended move
behind the others and are computed no more.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Completion, Prompts, StopReason, check_prompts
from wordle_rl.policy.grammar import Choices, OpenAnswer, Options
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers

_SHRINK = 0.9  # move rows when at most this share of the computed ones is still being answered

Ints = NDArray[np.int64]


class CachedModel(Protocol):
    """A model with a cache of rows. Hidden states [n, ...] are the backend's own arrays."""

    appends_only: bool  # a row goes on only behind its last token, and must not be fed in vain

    def feed(self, ids: Ints, starts: Ints, last: Ints) -> Any:
        """Feed ids [n, T], padded on the right, to the rows in slots 0, 1, ...

        starts: [n] position of each row's first new token. last: [n] index of its last one, whose
        hidden states [n, ...] are returned.
        """
        ...

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy source slots into target slots, all at once. Targets may be new slots."""
        ...

    def pick(self, hidden: Any, index: Sequence[int]) -> Any:
        """Some of the hidden states, in this order."""
        ...

    def compute_logits(self, hidden: Any, options: Options | None = None) -> Any:
        """float32 logits [n, V] of the next tokens; [n, U] of the options, if given."""
        ...

    def draw(
        self, logits: Any, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Columns [n] of the logits and their log-probabilities [n] at uniforms [n].

        Without options a column is a token's id. Raises NotFinite.
        """
        ...

    def score(self, logits: Any) -> NDArray[np.float32]:
        """Log-probabilities [n, V] of every next token. Raises NotFinite."""
        ...


class _Answer:
    """An answer while it is drawn: token by token, with those that the grammar forces."""

    def __init__(
        self, room: int, most: int, stop_ids: frozenset[int], node: OpenAnswer | None
    ) -> None:
        """room: tokens that the context holds. most: tokens of an answer. node: None is free."""
        self.ids: list[int] = []
        self.num_fed = 0  # ids whose keys and values are computed
        self.stop: StopReason | None = None
        self._logprobs: list[float] = []
        self._choices: list[Choices] = []
        self._room, self._most, self._stop_ids = room, most, stop_ids
        self._node = node
        self.next_choices = None if node is None else node.choices
        self._follow()

    def take(self, token: int, logprob: float) -> None:
        """Add a drawn token, and what the grammar forces behind it."""
        self._add(token, logprob)
        self._follow()

    def _follow(self) -> None:
        while self.stop is None and self.next_choices is not None and len(self.next_choices) == 1:
            self._add(int(self.next_choices[0]), 0.0)

    def _add(self, token: int, logprob: float) -> None:
        self.ids.append(token)
        self._logprobs.append(logprob)
        if self._node is not None and self.next_choices is not None:
            self._choices.append(self.next_choices)
            after = self._node.after(token)
            self._node = None if isinstance(after, str) else after
            if self._node is not None:  # at the end the last choices stay, and are not used
                self.next_choices = self._node.choices
        if token in self._stop_ids:
            self.stop = StopReason.STOP_TOKEN
        elif len(self.ids) == self._most:
            self.stop = StopReason.TOKEN_LIMIT
        elif len(self.ids) == self._room:
            self.stop = StopReason.CONTEXT_FULL

    def feed(self) -> list[int]:
        """The ids to feed next, none when the answer has ended."""
        if self.stop is not None:
            return []
        ids, self.num_fed = self.ids[self.num_fed :], len(self.ids)
        return ids

    def completion(self) -> Completion:
        assert self.stop is not None
        fields = {"ids": self.ids, "logprobs": self._logprobs, "choices": self._choices}
        return Completion(stop=self.stop, **fields)


class CachedEngine:
    """Implements wordle_rl.policy.engine.Engine on one device."""

    def __init__(
        self,
        model: CachedModel,
        *,
        stop_ids: frozenset[int],
        max_context: int,
        timers: Timers | None = None,
    ) -> None:
        self.max_context = max_context
        self._model, self._stop_ids = model, stop_ids
        self._timers = timers or Timers()
        self._rows: list[tuple[int, ...]] = []  # by slot: the tokens whose keys and values count

    def complete(
        self,
        prompts: Prompts,
        sampling: Sampling,
        uniforms: NDArray[np.float64],
        grammar: Sequence[OpenAnswer] | None = None,
    ) -> list[Completion]:
        """See wordle_rl.policy.engine.Engine."""
        if not prompts:
            return []
        inputs = [tuple(ids) for ids in prompts]
        check_prompts(inputs, self.max_context)
        nodes = grammar or [None] * len(inputs)
        answers = [
            _Answer(self.max_context - len(ids), sampling.max_tokens, self._stop_ids, node)
            for ids, node in zip(inputs, nodes, strict=True)
        ]
        with self._timers("prefill"):
            # What the grammar forces is read with the prompt.
            feeds = [(*ids, *a.feed()) for ids, a in zip(inputs, answers, strict=True)]
            hidden, at = self._prefill(feeds)
        with self._timers("decode"):
            lengths = np.array([len(feeds[i]) for i in at])
            at = self._decode(answers, hidden, at, lengths, sampling, uniforms)
        self._rows = [(*inputs[i], *answers[i].ids[: answers[i].num_fed]) for i in at]
        return [answer.completion() for answer in answers]

    def next_logprobs(self, prompts: Prompts) -> NDArray[np.float32]:
        """See wordle_rl.policy.engine.Engine."""
        check_prompts(prompts, self.max_context)
        inputs = [tuple(ids) for ids in prompts]
        hidden, at = self._prefill(inputs)
        self._rows = [inputs[i] for i in at]
        return self._model.score(self._model.compute_logits(hidden))[np.argsort(at)]

    def _prefill(self, prompts: list[tuple[int, ...]]) -> tuple[Any, Ints]:
        """Feed what is new of each prompt.

        Returns hidden states by slot, and [slots] which prompt is in each slot.
        """
        index: dict[tuple[int, ...], int] = {}  # each prompt once, and where it comes first
        for i, ids in enumerate(prompts):
            index.setdefault(ids, i)
        sequences = list(index)
        prefixes = self._share_prefixes(sequences)
        slots = self._assign_slots([slot if length else None for slot, length in prefixes])
        order = np.argsort(slots)
        hidden = self._feed(
            [sequences[i][prefixes[i][1] :] for i in order], [prefixes[i][1] for i in order]
        )
        repeats = [i for i, ids in enumerate(prompts) if index[ids] != i]
        if repeats:
            slot_of = dict(zip(sequences, slots, strict=True))
            sources = [slot_of[prompts[i]] for i in repeats]
            self._model.copy(sources, range(len(sequences), len(prompts)))
            hidden = self._model.pick(hidden, [*range(len(sequences)), *sources])
        return hidden, np.array([index[sequences[i]] for i in order] + repeats)

    def _share_prefixes(self, prompts: list[tuple[int, ...]]) -> list[tuple[int, int]]:
        """For each prompt the slot with its beginning, and how many of its tokens are there now.

        Where no held row helps, what all prompts begin with is fed to slot 0.
        """
        rows, self._rows = self._rows, []  # nothing counts if this call ends in an error
        prefixes = find_prefixes(prompts, rows)
        if self._model.appends_only:
            prefixes = [(i, n) if n and n == len(rows[i]) else (0, 0) for i, n in prefixes]
        if len(prompts) == 1 or any(length for _, length in prefixes):
            return prefixes
        room = min(map(len, prompts)) - 1  # no two have less in common than these
        opening = min(common_prefix(min(prompts), max(prompts)), room)
        if opening:
            self._feed([prompts[0][:opening]], [0])
        return [(0, opening)] * len(prompts)

    def _feed(self, feeds: list[tuple[int, ...]], starts: Sequence[int]) -> Any:
        counts = np.array([len(ids) for ids in feeds])
        ids = np.zeros((len(feeds), counts.max()), np.int64)
        for row, feed in zip(ids, feeds, strict=True):
            row[: len(feed)] = feed
        return self._model.feed(ids, np.array(starts, np.int64), counts - 1)

    def _assign_slots(self, sources: list[int | None]) -> list[int]:
        """Give each of n prompts one of the first n slots, its source's own if possible.

        The others get a copy of their source slot.
        """
        slots: list[int | None] = [None] * len(sources)
        free_slots = dict.fromkeys(range(len(sources)))
        for i, source in enumerate(sources):
            if source in free_slots:
                slots[i] = source
                del free_slots[source]
        rest = iter(free_slots)
        targets = [next(rest) if slot is None else slot for slot in slots]
        moves = [
            (source, slot)
            for source, slot in zip(sources, targets, strict=True)
            if source is not None and source != slot
        ]
        if moves:
            self._model.copy(*zip(*moves, strict=True))
        return targets

    def _decode(
        self,
        answers: list[_Answer],
        hidden: Any,
        at: Ints,
        lengths: Ints,
        sampling: Sampling,
        uniforms: NDArray[np.float64],
    ) -> Ints:
        """Draw the answers. Returns `at` as it is in the end.

        at: [slots] the prompt in each slot. lengths: [slots] tokens fed. uniforms: [prompts,
        max_tokens].
        """
        live = len(at)  # slots that are computed, the first ones
        shrink = 1.0 if self._model.appends_only else _SHRINK
        while True:
            batch = [answers[i] for i in at[:live].tolist()]
            # What is drawn for a row whose answer has ended is thrown away.
            positions = [min(len(answer.ids), sampling.max_tokens - 1) for answer in batch]
            self._draw(batch, hidden, sampling, uniforms[at[:live], positions])
            going = np.array([answer.stop is None for answer in batch])
            if not going.any():
                return at
            if going.sum() <= shrink * live:
                live = self._move_forward(np.flatnonzero(going), lengths, at)
            batch = [answers[i] for i in at[:live].tolist()]
            # A row whose answer has ended may be fed, too, but its length stays.
            feeds = [answer.feed() for answer in batch]
            hidden = self._feed([tuple(ids) or (0,) for ids in feeds], lengths[:live].tolist())
            lengths[:live] += [len(ids) for ids in feeds]

    def _draw(
        self, answers: list[_Answer], hidden: Any, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> None:
        """Draw the next token of each answer. uniforms: [n] a number for each."""
        choices = [tokens for answer in answers if (tokens := answer.next_choices) is not None]
        options = Options.of(choices) if choices else None
        # The one place where tokens are drawn: what these logits exclude is never said.
        logits = self._model.compute_logits(hidden, options)
        ids, logprobs = self._model.draw(logits, sampling, uniforms)
        ids = ids if options is None else options.tokens[ids]
        for answer, token, logprob in zip(answers, ids.tolist(), logprobs.tolist(), strict=True):
            if answer.stop is None:
                answer.take(token, logprob)

    def _move_forward(self, rows: Ints, lengths: Ints, at: Ints) -> int:
        """Swap slots so that the rows that go on come first. Returns how many there are."""
        tail = rows[rows >= len(rows)]
        if len(tail):
            holes = np.setdiff1d(np.arange(len(rows)), rows)
            sources, targets = np.append(tail, holes), np.append(holes, tail)
            self._model.copy(sources.tolist(), targets.tolist())
            lengths[targets], at[targets] = lengths[sources], at[sources]
        return len(rows)


def find_prefixes(
    prompts: Sequence[tuple[int, ...]], held: Sequence[tuple[int, ...]]
) -> list[tuple[int, int]]:
    """For each prompt the row that it shares most with, and how many tokens, but for its last."""
    order = sorted(range(len(held)), key=held.__getitem__)
    rows = [held[slot] for slot in order]
    prefixes = []
    for ids in prompts:
        index = bisect_left(rows, ids)  # the best rows are beside it
        slots = order[max(index - 1, 0) : index + 1]
        lengths = [min(common_prefix(ids, held[slot]), len(ids) - 1) for slot in slots]
        best = max(lengths, default=0)
        prefixes.append((slots[lengths.index(best)] if best else 0, best))
    return prefixes


def common_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens two prompts both begin with."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(i for i in range(length) if one[i] != other[i])
