"""wordle-rl openers: ranks every first guess by its information."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def openers(
    answers: Annotated[
        str | None, typer.Option(help="possible secrets, .txt or .csv [default: original game]")
    ] = None,
    allowed: Annotated[
        str | None, typer.Option(help="legal guesses, .txt or .csv [default: the answers]")
    ] = None,
    column: Annotated[str | None, typer.Option(help="of the words in a .csv file")] = None,
    top: Annotated[int, typer.Option(min=1, help="how many to print")] = 20,
    csv: Annotated[Path, typer.Option(help="file for all of them")] = Path("outputs/openers.csv"),
) -> None:
    """Rank every first guess by the bits that its feedback tells on average."""
    import pandas as pd

    from wordle_rl.game.feedback_table import feedback_table
    from wordle_rl.game.knowledge import Knowledge
    from wordle_rl.words.lists import load_words

    words = load_words(answers=answers, allowed=allowed, column=column)
    bits = Knowledge(words, feedback_table(words)).opener_bits
    possible = [int(word in words.answer_index) for word in words.allowed]  # as a secret
    ranked = pd.DataFrame({"word": words.allowed, "bits": bits.round(6), "answer": possible})
    ranked = ranked.sort_values("bits", ascending=False, kind="stable")  # ties: by the alphabet
    ranked.index = pd.RangeIndex(1, len(ranked) + 1, name="rank")
    print(ranked.head(top).to_string())
    print(f"{words.name}: {len(words.answers)} answers, {len(words.allowed)} allowed; all in {csv}")
    csv.parent.mkdir(parents=True, exist_ok=True)
    ranked.to_csv(csv)
