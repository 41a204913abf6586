"""Each distinct beginning of some sequences has one row, which sees what it continues."""

import numpy as np
import pytest

from wordle_rl.policy import batch as prefixes
from wordle_rl.policy.batch import arrange_blocks, number_prefixes


@pytest.mark.parametrize("least", [1, 2, 5, 32])  # rows of a block
@pytest.mark.parametrize("words", [1, 2, 50])
def test_rows_are_the_distinct_beginnings_and_see_their_own_tokens(words, least, monkeypatch):
    monkeypatch.setattr(prefixes, "_LEAST", least)
    random = np.random.default_rng(words)
    for _ in range(20):
        count, width = random.integers(1, 9), random.integers(1, 12)
        ids, ends = random.integers(0, words, (count, width)), random.integers(0, width + 1, count)
        places = {
            tuple(ids[row, : n + 1].tolist()): (row, n)
            for row in range(count)
            for n in range(ends[row])
        }
        trie = number_prefixes(ids, ends)
        assert len(trie.tokens) == len(places)
        blocks = arrange_blocks(trie)
        rows = np.arange(len(blocks.tokens)).reshape(-1, blocks.visible.shape[1])
        by_row = {
            row: sorted(keys[visible].tolist())
            for group, keys, masks in zip(rows, blocks.keys, blocks.visible, strict=True)
            for row, visible in zip(group.tolist(), masks, strict=True)
        }
        for prefix, (row, n) in places.items():
            number = int(trie.numbers[row, n])
            assert (blocks.tokens[number], blocks.depths[number]) == (prefix[-1], n)
            assert by_row.pop(number) == sorted(trie.numbers[row, : n + 1].tolist())
        assert all(keys == [row] for row, keys in by_row.items()), "padding sees itself alone"
