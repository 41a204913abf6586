"""Feedback of every legal guess to every possible secret, as one table.

The table is built once per pair of word lists (under a second for the original ones) and
memory-mapped from a cache afterwards. wordle_rl.game.rules has the rule for one pair of words.
"""

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from wordle_rl.runs.files import write_bytes
from wordle_rl.words.lists import WORD_LENGTH, WordLists

CACHE_VERSION = 2  # part of the file name; raise it when the meaning of the bytes changes
_BLOCK = 64  # guesses computed together, so that temporaries stay in the processor's cache


def letters_of(words: Sequence[str]) -> np.ndarray:
    """ASCII codes uint8 [words, 5] of lower-case words of five letters."""
    codes = np.frombuffer("".join(words).encode("ascii"), dtype=np.uint8)
    return codes.reshape(len(words), WORD_LENGTH)


def feedback_row(guess: str, secrets: np.ndarray) -> np.ndarray:
    """Feedback codes uint8 [secrets] of any five letters. secrets: from letters_of."""
    return _codes(letters_of([guess]), secrets)[0]


def feedback_table(words: WordLists, *, cache_dir: Path | None = None) -> np.ndarray:
    """Feedback codes uint8 [allowed, answers], read-only.

    cache_dir: folder of the cached table, default $WORDLE_RL_CACHE, else ~/.cache/wordle-rl. A file
    that cannot be read is replaced; without write access the table is built at every start.
    """
    path = cache_folder(cache_dir) / f"feedback-v{CACHE_VERSION}-{words.digest[:32]}.npy"
    try:
        return np.load(path, mmap_mode="r").view(np.ndarray)
    except (OSError, EOFError, ValueError):
        table = build_table(words)
    buffer = io.BytesIO()
    np.save(buffer, table)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, buffer.getvalue())
    return table


def build_table(words: WordLists) -> np.ndarray:
    """The table computed from the words, without the cache."""
    guesses, secrets = letters_of(words.allowed), letters_of(words.answers)
    table = np.empty((len(guesses), len(secrets)), dtype=np.uint8)
    for start in range(0, len(guesses), _BLOCK):
        table[start : start + _BLOCK] = _codes(guesses[start : start + _BLOCK], secrets)
    table.flags.writeable = False
    return table


def cache_folder(cache_dir: Path | None = None) -> Path:
    """The folder for computed tables: the argument, $WORDLE_RL_CACHE, or ~/.cache/wordle-rl."""
    return Path(cache_dir or os.environ.get("WORDLE_RL_CACHE") or Path.home() / ".cache/wordle-rl")


def _codes(guesses: np.ndarray, secrets: np.ndarray) -> np.ndarray:
    """Codes uint8 [guesses, secrets] from letters [guesses, 5] and [secrets, 5].

    Letters in place come first. Then each other letter of the guess, from the left, takes the first
    free equal letter of the secret; which of several equal ones it takes makes no difference.
    """
    columns = np.ascontiguousarray(secrets.T)
    placed = [guesses[:, i, None] == columns[i] for i in range(WORD_LENGTH)]
    free = [~p for p in placed]
    code = np.zeros(placed[0].shape, dtype=np.uint8)
    for i in range(WORD_LENGTH):
        waiting = ~placed[i]
        for j in range(WORD_LENGTH):
            if i == j:
                continue
            taken = guesses[:, i, None] == columns[j]
            taken &= free[j]
            taken &= waiting
            free[j] ^= taken
            waiting ^= taken
        # 2 in place, 1 when something was taken, 0 while still waiting
        code *= 3
        code += placed[i].view(np.uint8)
        code += (~waiting).view(np.uint8)
    return code
