"""What a model is trained on, how it is split, and what its rows begin with.

A minibatch is what one optimiser step uses; a micro-batch is a part of it that fits into memory.
Rows of one unit always stay together.

Conversations of a step repeat each other: games share an opening, guesses of one state share its
prompt, and a later prompt begins with the one before it. A hidden state depends on nothing but the
tokens up to its own, so a model needs one row for each distinct beginning, and no padding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.grammar import Choices
from wordle_rl.policy.sampling import Purpose, generator

Ints = NDArray[np.int64]
FloatArray = NDArray[np.float32]
RowIndex = NDArray[np.int64]  # [R] numbers of some rows of a batch

_LEAST = 32  # rows of a block; fewer make small products
LOGITS_BYTES = 2**28  # most memory of the float32 logits that exist at once in training
_OUT_OF_MEMORY = (  # what other errors than torch's OutOfMemoryError say: CPU, MPS, cuBLAS, MLX
    "can't allocate memory",
    "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "[metal::malloc]",
    "Insufficient Memory",
)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether this was raised because memory ran out, by Python, torch, MLX or ourselves."""
    named = type(error).__name__ in ("OutOfMemoryError", "MemoryError", "DoesNotFit")
    return named or any(sign in str(error) for sign in _OUT_OF_MEMORY)


class DoesNotFit(RuntimeError):
    """The memory is too small for sequences that belong together."""

    def __init__(self, *, sequences: int, tokens: int) -> None:
        """tokens: of the longest one."""
        super().__init__(
            f"out of memory: {sequences} sequences of up to {tokens} tokens must fit; lower "
            "sampling.max_tokens, or set backend.gradient_checkpointing=true"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTargets:
    """Probabilities of tokens at some positions of one sequence. At each, they sum to 1."""

    places: NDArray[np.int64]  # [M] position in the sequence
    ids: NDArray[np.int64]  # [M] possible token at that position
    probabilities: NDArray[np.float32]  # [M]
    # Positions in answers that are wrong already, which count less.
    astray: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences padded on the right, with what the loss needs per token. All arrays are [N, T]."""

    ids: NDArray[np.int64]  # pad id behind the end
    lengths: NDArray[np.int64]  # [N] tokens of each; in an update, to its last trained one
    trained: NDArray[np.bool_]  # tokens that are scored
    advantages: FloatArray  # 0 where not trained
    weights: FloatArray  # share of each token in the update's loss, 0 where not trained
    sampler_logprobs: FloatArray  # when sampled
    # The trainer's, before the first update of this batch, however long ago it was played.
    old_logprobs: FloatArray | None = None
    ref_logprobs: FloatArray | None = None  # the reference model's
    old_values: FloatArray | None = None  # the value head's, before the first update
    targets: FloatArray | None = None  # what the value head should predict, 0 where not trained
    target_scale: float = 1.0  # unit of values in the loss
    distributions: list[TokenTargets] | None = None  # [N] to learn in place of the ids
    units: NDArray[np.int64] | None = None  # [N] rows with one number are never split
    forced: NDArray[np.bool_] | None = None  # trained tokens that a grammar forced; None: none
    # [N] True for the second half of an update, whose gradient is compared with the first's.
    halves: NDArray[np.bool_] | None = None
    # [N] of each row, for each trained token, what it was drawn from. None: the whole vocabulary.
    choices: list[list[Choices]] | None = None

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """Trained tokens that were drawn: those that weights and means count."""
        return self.trained if self.forced is None else self.trained & ~self.forced


def split_padded(batch: Batch, max_tokens: int) -> list[RowIndex]:
    """Row numbers of each micro-batch, longest rows first, with at most max_tokens padded tokens.

    A longer unit is a micro-batch of its own. Token weights come from the whole minibatch, so the
    split does not change the summed loss.
    """
    lengths = batch.lengths
    parts: list[list[int]] = []
    width = 0
    for rows in sorted(_find_units(batch), key=lambda rows: -int(lengths[rows].max())):
        if parts and (len(parts[-1]) + len(rows)) * width <= max_tokens:
            parts[-1].extend(rows)
        else:
            parts.append(list(rows))
            width = int(lengths[rows].max())
    return [np.array(part) for part in parts]


def split_distinct(batch: Batch, max_tokens: int) -> list[RowIndex]:
    """Row numbers of each micro-batch, for a model that computes what rows begin with only once.

    Rows that begin alike stay together, with at most max_tokens distinct beginnings in each
    micro-batch. Otherwise as split_padded.
    """
    ends = find_ends(batch.trained)
    units = sorted(
        _find_units(batch), key=lambda rows: batch.ids[rows[0], : ends[rows[0]]].tobytes()
    )  # what begins alike stands together
    order = np.concatenate([np.zeros(0, np.int64), *units])
    overlaps = count_shared(batch.ids[order], ends[order])
    parts: list[list[int]] = []
    index = size = 0
    for rows in units:
        span = slice(index, index + len(rows))
        index += len(rows)
        growth = int((ends[order[span]] - overlaps[span]).sum())
        if parts and size + growth <= max_tokens:
            parts[-1].extend(rows)
            size += growth
        else:
            parts.append(list(rows))
            size = growth + int(overlaps[span.start])
    return [np.array(part) for part in parts]


def find_ends(trained: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many tokens [N] a model reads to score those that are trained [N, T]."""
    return (trained * np.arange(trained.shape[1])).max(axis=1, initial=0)


def _find_units(batch: Batch) -> list[list[int]]:
    """Rows that stay together."""
    units = batch.units if batch.units is not None else np.arange(len(batch.lengths))
    members: dict[int, list[int]] = {}
    for row, unit in enumerate(units.tolist()):
        members.setdefault(unit, []).append(row)
    return list(members.values())


def split_halves(batch: Batch, split: Callable[[Batch], list[RowIndex]]) -> list[RowIndex]:
    """Row numbers of each micro-batch, those of the batch's first half before the second's."""
    if batch.halves is None:
        return split(batch)
    halves = np.flatnonzero(~batch.halves), np.flatnonzero(batch.halves)
    return [rows[part] for rows in halves if len(rows) for part in split(take(batch, rows))]


def minibatches(
    groups: NDArray[np.int64], count: int, *, seed: int, step: int, epoch: int
) -> list[RowIndex]:
    """Row numbers of each minibatch.

    groups: [S] number of each sequence's group. Groups stay whole. A shuffle that is a pure
    function of (seed, step, epoch) deals them out.
    """
    numbers = np.unique(groups)
    if count > 1:
        draw = generator(Purpose.MINIBATCHES, seed=seed, step=step, number=epoch)
        numbers = draw.permutation(numbers)
    return [np.flatnonzero(np.isin(groups, part)) for part in np.array_split(numbers, count)]


def take(batch: Batch, rows: RowIndex) -> Batch:
    """Some rows of a batch, cut to their length."""
    width = int(batch.lengths[rows].max(initial=0))
    fields: dict[str, Any] = {}
    for name, values in vars(batch).items():
        if isinstance(values, np.ndarray):
            fields[name] = values[rows, :width] if values.ndim == 2 else values[rows]
        elif isinstance(values, list):
            fields[name] = [values[row] for row in rows]
    return replace(batch, **fields)


# -- what rows begin with -------------------------------------------------------------------------


class Prefixes(NamedTuple):
    """U distinct beginnings of N sequences, sorted, so that each comes before what continues it."""

    tokens: Ints  # [U] the last token of each
    depths: Ints  # [U] its position in the sequence, from 0
    stops: Ints  # [U] the next beginning that is no continuation of this one
    numbers: Ints  # [N, T] which beginning ends at each token of a sequence; behind its end any


class Blocks(NamedTuple):
    """M rows of a model in G blocks of B. The last ones may be padding, which no other row sees.

    The rows of a block see a common path, from the first token to before the block, and each other.
    """

    tokens: Ints  # [M]
    depths: Ints  # [M]
    keys: Ints  # [G, K] rows that a block sees: K - B of its path, then its own
    visible: NDArray[np.bool_]  # [G, B, K] whether a row sees a key


def count_shared(ids: Ints, ends: Ints) -> Ints:
    """How many tokens [N] each sequence shares with the one before it. ids: [N, T]. ends: [N]."""
    counts = np.zeros(len(ids), np.int64)
    limits = np.minimum(ends[1:], ends[:-1])[:, None]
    same = (ids[1:] == ids[:-1]) & (np.arange(ids.shape[1]) < limits)
    counts[1:] = np.logical_and.accumulate(same, axis=1).sum(1)
    return counts


def number_prefixes(ids: Ints, ends: Ints) -> Prefixes:
    """The distinct beginnings of sequences [N, T] up to their ends [N]."""
    order = sorted(range(len(ids)), key=lambda row: ids[row, : ends[row]].tobytes())
    ids, ends = ids[order], ends[order]
    overlaps, positions = count_shared(ids, ends)[:, None], np.arange(ids.shape[1])
    mask = (positions >= overlaps) & (positions < ends[:, None])
    counts = mask.cumsum().reshape(mask.shape)
    numbers = np.zeros_like(ids)
    numbers[order] = np.maximum.accumulate(np.where(mask, counts - 1, 0), axis=0)
    # In this order, what continues beginning b is the run of rows from b up to stops[b]. It ends
    # where the next sequence shares no more than the tokens before b.
    starts = np.concatenate([[0], mask.sum(1).cumsum()])
    bounds = np.full((len(ids) + 1, ids.shape[1]), starts[-1])
    bounds[:-1] = np.where(overlaps <= positions, starts[:-1, None], starts[-1])
    stops = np.minimum.accumulate(bounds[::-1], axis=0)[::-1]
    return Prefixes(ids[mask], np.nonzero(mask)[1], stops[1:][mask], numbers)


def arrange_blocks(prefixes: Prefixes) -> Blocks:
    """Rows for all prefixes, in blocks that are about a quarter as long as the longest prefix.

    Smaller blocks would read more paths, larger ones compare more rows in vain.
    """
    count = len(prefixes.tokens)
    limit = max(_LEAST, int(prefixes.depths.max(initial=0)) // 4)
    groups = max(-(-count // limit), 1)
    size = max(-(-count // groups), 1)
    rows = np.arange(groups * size).reshape(groups, size)
    keys, stops = _find_keys(rows, np.append(prefixes.stops, rows.ravel()[count:] + 1))
    visible = (keys[:, None] <= rows[..., None]) & (rows[..., None] < stops[:, None])
    padding = 0, rows.size - count
    return Blocks(np.pad(prefixes.tokens, padding), np.pad(prefixes.depths, padding), keys, visible)


def _find_keys(rows: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """The keys [G, K] of blocks of rows [G, B], and their stops [G, K].

    stops: as in Prefixes, of all rows [M]. The stop is 0 where a path is filled up.
    """
    first = rows[:, :1]
    above = (np.arange(len(stops)) < first) & (stops > first)  # [G, M]
    inside = np.arange(above.sum(1).max()) < above.sum(1)[:, None]  # [G, K - B]
    path = np.zeros(inside.shape, np.int64)
    path[inside] = np.nonzero(above)[1]
    keys = np.concatenate([path, rows], axis=1)
    return keys, stops[keys] * np.pad(inside, ((0, 0), (0, rows.shape[1])), constant_values=True)
