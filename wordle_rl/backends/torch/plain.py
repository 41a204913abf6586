"""Any other family, through transformers' own forward pass and cache.

Recurrent layers would remember padding. So rows that get equally many new tokens are computed
together, and keys and values of shorter rows are padded on the left, where a mask hides them. A
recurrent state cannot go back: a row goes on only behind its last token.
"""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import DynamicCache, cache_utils

from wordle_rl.backends.torch.causal_lm import CausalLM, recompute_layers
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.policy.batch import ran_out_of_memory
from wordle_rl.policy.grammar import LOW, Options
from wordle_rl.policy.prefix_cache import Ints
from wordle_rl.policy.token_outputs import Wanted
from wordle_rl.runs.instantiate import ConfigError

_TOLERANCE = {2: 0.05, 4: 1e-3}  # mean relative error of hidden states, by bytes of a number


class CacheRows(DynamicCache):
    """Rows that are computed together. Each ends in the last column of keys and values."""

    lengths: Ints  # [rows] tokens, the longest row fills all columns


class PlainLM(CausalLM):
    """A model whose layers and head are called as transformers calls them."""

    is_fast = computes_once = False  # pyright: ignore[reportAssignmentType]
    head_weight = None  # pyright: ignore[reportAssignmentType]  # families scale their logits
    _singly = False  # whether new tokens are fed one by one to rows that have some

    def __init__(self, model: Any, *, checkpointing: bool = False) -> None:
        """Raises ConfigError unless a text in parts gives what it gives as a whole."""
        family: str = model.config.model_type
        try:
            super().__init__(model, checkpointing=checkpointing)
            self._arguments = inspect.signature(self._trunk.forward).parameters
            self._singly = self._is_off()  # some families begin anew at every several tokens
            if self._is_off():
                raise ValueError("a text in parts gives other numbers")
        except Exception as error:  # each family has its own
            if isinstance(error, ConfigError) or ran_out_of_memory(error):
                raise
            raise ConfigError(
                "model.path must name a model that continues texts through transformers' own "
                f"cache, not {family}: {' '.join(str(error).split())[:200]}"
            ) from error
        self.notes = (f"{family}: played by transformers' own cache, slower",)

    def states_at_once(self, wanted: Wanted) -> int:
        return super().states_at_once(replace(wanted, choices=None))  # all logits are computed

    def compute_logits(self, hidden: torch.Tensor, options: Options | None = None) -> torch.Tensor:
        """By the model's own code behind its layers: families scale what the head says."""
        self._trunk.forward = lambda *_, **__: _States([hidden[None]])
        try:
            logits = self._inner(inputs_embeds=hidden[None], use_cache=False).logits[0].float()
        finally:
            del self._trunk.forward  # the method of the class is back
        if options is None:
            return logits
        tokens, closed = map(self.to_array, (options.tokens, options.closed))
        return logits[:, tokens].masked_fill(closed, LOW)

    def read_states(self, ids: NDArray[np.int64], trained: NDArray[np.bool_]) -> torch.Tensor:
        """No token sees the padding behind it, so no mask is needed."""
        with recompute_layers(self._checkpoint_layers):
            states = self._trunk(input_ids=self.to_array(ids), use_cache=False).last_hidden_state
        return states[:, :-1][self.to_array(trained)[:, 1:]]

    def start(self, rows: int) -> CacheRows:
        """So many empty rows. Layers with a window hold all, so that rows can be joined."""
        batch = CacheRows(config=self.config)
        for index, layer in enumerate(batch.layers):
            if getattr(layer, "is_sliding", False):
                batch.layers[index] = cache_utils.DynamicLayer()
        batch.lengths = np.zeros(rows, np.int64)
        return batch

    def advance(self, batch: CacheRows, ids: torch.Tensor) -> torch.Tensor:
        """Feed ids [n, T] to all rows. Returns their last hidden states [n, H]."""
        if self._singly and ids.shape[1] > 1 and batch.lengths.any():
            return [self.advance(batch, part) for part in ids.split(1, dim=1)][-1]
        positions = batch.lengths[:, None] + np.arange(ids.shape[1])
        batch.lengths = ends = batch.lengths + ids.shape[1]
        mask = np.arange(ends.max()) >= (ends.max() - ends)[:, None]
        kwargs = {"position_ids": self.to_array(positions), "past_key_values": batch}
        kwargs["cache_params"] = batch  # the name in Mamba, which would mask new tokens alone
        if "cache_params" not in self._arguments:
            kwargs["attention_mask"] = self.to_array(mask.astype(np.int64))
        kwargs = {name: value for name, value in kwargs.items() if name in self._arguments}
        return self._trunk(input_ids=ids, use_cache=True, **kwargs).last_hidden_state[:, -1]

    @torch.inference_mode()
    def _is_off(self) -> bool:
        """Whether two rows of a text, fed in parts, differ from the whole text."""
        ids = np.arange(3, 11) * 7 % self.vocabulary
        [truth] = self._trunk(input_ids=self.to_array(ids)[None], use_cache=False).last_hidden_state
        rows, starts, errors = PlainRows(self), np.zeros(2, np.int64), []
        for counts in (np.array([4, 2]), np.array([3, 3]), np.array([1, 1])):
            states = rows.feed(ids[starts[:, None] + np.arange(counts.max())], starts, counts - 1)
            starts = starts + counts
            expected = truth[starts - 1]
            errors.append(float(((states - expected).norm(dim=-1) / expected.norm(dim=-1)).mean()))
        return not np.mean(errors) < _TOLERANCE[truth.dtype.itemsize]


class _States(tuple):
    """What layers return, as a head reads it: hidden states and nothing else."""

    def __getattr__(self, name: str) -> Any:
        return self[0] if name == "last_hidden_state" else None


class PlainRows(TorchRows):
    """A wordle_rl.policy.prefix_cache.CachedModel. A copied slot is a row that is read twice."""

    appends_only = True

    def __init__(self, lm: PlainLM) -> None:
        self._lm = lm
        self._rows: dict[int, tuple[CacheRows, int]] = {}  # by slot

    @torch.inference_mode()
    def feed(self, ids: Ints, starts: Ints, last: Ints) -> torch.Tensor:
        groups: dict[tuple[bool, int], list[int]] = {}
        for slot, kind in enumerate(zip(starts > 0, last + 1, strict=True)):
            groups.setdefault(kind, []).append(slot)
        table = {slot: row for slot, row in self._rows.items() if slot >= len(ids) or starts[slot]}
        batch_ids = {id(table[slot][0]) for slot in table if slot < len(ids)}
        rest = [slot for slot in table if slot >= len(ids) and id(table[slot][0]) in batch_ids]
        if rest:  # else the batch that they are in would live on for them
            self._assign(rest, _join([table[slot] for slot in rest]))
        states = []
        for (begun, count), slots in groups.items():
            batch = self._lm.start(len(slots))
            if begun:
                rows, batch = [table[slot] for slot in slots], table[slots[0]][0]
                members = [(batch, row) for row in range(len(batch.lengths))]
                if rows != members or sum(b is batch for b, _ in table.values()) > len(rows):
                    batch = _join(rows)
            self._assign(slots, batch)
            states.append(self._lm.advance(batch, self._lm.to_array(ids[slots, :count])))
        return torch.cat(states)[np.argsort([slot for part in groups.values() for slot in part])]

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._rows |= dict(zip(targets, [self._rows[slot] for slot in sources], strict=True))

    def _assign(self, slots: Sequence[int], batch: CacheRows) -> None:
        self._rows |= {slot: (batch, row) for row, slot in enumerate(slots)}


def _join(rows: list[tuple[CacheRows, int]]) -> CacheRows:
    """A new batch of rows of some others."""
    sources = list({id(batch): batch for batch, _ in rows}.values())
    groups = [[i for i, (b, _) in enumerate(rows) if b is batch] for batch in sources]
    result = copy.copy(sources[0])
    result.lengths = np.array([batch.lengths[row] for batch, row in rows])

    def join(name: str, values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: join(name, [value[key] for value in values]) for key in values[0]}
        if not isinstance(values[0], torch.Tensor):
            return values[0]
        parts = [v[[rows[i][1] for i in index]] for v, index in zip(values, groups, strict=True)]
        if name in ("keys", "values"):
            width = int(result.lengths.max())
            parts = [part[:, :, -width:] for part in parts]
            parts = [nn.functional.pad(p, (0, 0, width - p.shape[2], 0)) for p in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)[np.argsort(np.concatenate(groups))]

    result.layers = [copy.copy(layer) for layer in result.layers]
    for number, layer in enumerate(result.layers):
        maps = [vars(batch.layers[number]) for batch in sources]
        vars(layer).update({name: join(name, [item[name] for item in maps]) for name in maps[0]})
    return result
