"""wordle-rl openers: the first guesses with the most information."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Secrets(StrEnum):
    """Which words are possible secrets."""

    answers = "answers"
    allowed = "allowed"


def openers(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD ...]", help="Show these words alone.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the best to show.")] = 10,
    secrets: Annotated[
        Secrets, typer.Option("--words", help="The possible secrets, equally likely.")
    ] = Secrets.answers,
    answers: Annotated[Path | None, typer.Option(help="A file of answers of your own.")] = None,
    allowed: Annotated[Path | None, typer.Option(help="A file of guesses, as well.")] = None,
) -> None:
    """Print the first guesses that tell most about the secret, in bits of entropy."""
    import numpy as np

    from wordle_rl.data.rows import read_word
    from wordle_rl.evaluation.boards import columns, tabulate
    from wordle_rl.game.feedback_table import feedback_table
    from wordle_rl.game.knowledge import Knowledge
    from wordle_rl.runs.instantiate import ConfigError
    from wordle_rl.words.lists import load_words

    lists = load_words(answers=answers, allowed=allowed)
    if secrets is Secrets.allowed:
        lists = lists.over_allowed
    guesses = [read_word("word", word) for word in words or ()]
    if unknown := [word for word in guesses if word not in lists.guess_index]:
        raise ConfigError(f"WORD must be an allowed guess, not {unknown[0]}")
    knowledge = Knowledge(lists, feedback_table(lists))
    bits, ranks = knowledge.opener_bits, knowledge.opener_ranks
    indices = [lists.guess_index[word] for word in guesses]
    rows = [
        [str(ranks[i]), lists.allowed[i].upper(), f"{bits[i]:.3f}"]
        for i in indices or np.argsort(-bits, kind="stable")[:top]
    ]
    print(f"first guesses over {len(lists.answers):,} possible secrets, all equally likely")
    print(tabulate(("rank", "word", "bits"), rows, columns()))
