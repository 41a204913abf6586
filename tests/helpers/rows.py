"""Files of rows for tests of data=."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordle_rl.game.rules import marks

URL = "https://example.invalid/words.csv"


def letters(guess: str, secret: str) -> str:
    """Feedback as predibase/wordle-grpo writes it: C(x) R(x) A(-) N(x) E(-)."""
    pairs = zip(guess.upper(), marks(guess, secret), strict=True)
    return " ".join(f"{letter}({mark})" for letter, mark in pairs)


def predibase(secret: str, *guesses: str) -> dict[str, str]:
    """A row with the columns of predibase/wordle-grpo."""
    history = [[guess.upper(), letters(guess, secret)] for guess in guesses]
    return {
        "prompt": "<|im_start|>system\nPlay Wordle.<|im_end|>\n<|im_start|>assistant\n",
        "word_list": URL,
        "past_guess_history": str(history),
        "secret": secret.upper(),
    }


def pair(number: int, **fields: Any) -> dict[str, Any]:
    """A plain prompt and its answer."""
    return {"prompt": f"question {number}", "answer": f"<guess>crane</guess> {number}", **fields}


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
