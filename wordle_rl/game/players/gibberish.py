"""A player that cannot play: random letters in the right format, or a broken format."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

import numpy as np

from wordle_rl.game.players.base import generator, guess_text
from wordle_rl.game.rules import State
from wordle_rl.words.lists import WORD_LENGTH


class Gibberish:
    """Half of its answers are five random letters in the right format; most others are broken."""

    name = "gibberish"

    def speak(self, states: Sequence[State], uniforms: np.ndarray) -> list[str]:
        return [
            _babble(generator(uniform))
            for _, uniform in zip(states, uniforms.tolist(), strict=True)
        ]


def _babble(draw: random.Random) -> str:
    def letters(count: int) -> str:
        return "".join(draw.choices(string.ascii_lowercase, k=count))

    word = letters(WORD_LENGTH)
    if draw.random() < 0.5:
        return guess_text(word)
    return draw.choice(
        [
            word,
            f"<guess>{word}",
            f"{word}</guess>",
            guess_text(letters(draw.choice([0, 3, 4, 6, 9]))),
            guess_text(f"{word[:2]}{draw.choice('0-. _')}{word[3:]}"),
            f"<think>{guess_text(word)}",
            "THINK " * draw.randint(1, 8),
        ]
    )
