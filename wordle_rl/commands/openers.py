"""wordle-rl openers: scores every first guess by its information."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from wordle_rl.words.lists import WordLists

_BLOCK = 256  # guesses per batch, so that the counters fit into the processor's cache


def openers(
    answers: Annotated[
        str | None, typer.Option(help="possible secrets, .txt or .csv [default: original game]")
    ] = None,
    allowed: Annotated[
        str | None, typer.Option(help="legal guesses, .txt or .csv [default: the answers]")
    ] = None,
    column: Annotated[str | None, typer.Option(help="of the words in a .csv file")] = None,
    top: Annotated[int, typer.Option(min=1, help="how many to print")] = 20,
    csv: Annotated[Path, typer.Option(help="file for all scores")] = Path("outputs/openers.csv"),
) -> None:
    """Score every first guess by its information."""
    from wordle_rl.game.feedback_table import feedback_table
    from wordle_rl.words.lists import load_words

    words = load_words(answers=answers, allowed=allowed, column=column)
    scored = score_openers(words, feedback_table(words))
    print(scored.head(top).round(3).to_string())
    best = scored[scored.answer].iloc[0]
    print(
        f"best possible secret: {best.word} {best.bits:.3f} bits "
        f"({words.name}: {len(words.answers)} answers, {len(words.allowed)} allowed)"
    )
    csv.parent.mkdir(parents=True, exist_ok=True)
    scored.astype({"answer": int}).round({"bits": 6, "remaining": 4}).to_csv(csv)
    print(f"all {len(scored)} in {csv}")


def score_openers(words: WordLists, table: np.ndarray) -> pd.DataFrame:
    """A row for every allowed word. Most bits come first, ties are in alphabetical order.

    table: feedback codes uint8 [allowed, answers]. The index is the rank, from 1. bits: Shannon
    entropy of the feedback. remaining: mean number of secrets left after it. Both are over all
    answers and look only one guess ahead. answer: whether the word can be the secret.
    """
    import numpy as np
    import pandas as pd

    from wordle_rl.game.entropy import count_codes, entropy

    bits, remaining = np.empty(len(table)), np.empty(len(table))
    for start in range(0, len(table), _BLOCK):
        counts = count_codes(table[start : start + _BLOCK])
        bits[start : start + _BLOCK] = entropy(counts)
        remaining[start : start + _BLOCK] = np.square(counts).sum(axis=1) / len(words.answers)
    found = pd.DataFrame({
        "word": words.allowed, "bits": bits, "remaining": remaining,
        "answer": [word in words.answer_index for word in words.allowed],
    })  # fmt: skip
    # Rounded, so that ties stay in alphabetical order.
    found = found.iloc[np.argsort(-np.round(bits, 9), kind="stable")]
    return found.set_axis(pd.RangeIndex(1, len(found) + 1, name="rank"))
