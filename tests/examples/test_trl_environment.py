"""The environment for TRL's tool loop: results, rewards and ends are those of the rules."""

from typing import Any

import pytest

from tests.helpers.examples import load_example
from wordle_rl import build_knowledge, build_rewards, load_words
from wordle_rl.game.rules import Game
from wordle_rl.runs.paths import ROOT

GUESSES = ("slate", "zzzzz", "crane")  # of a game, the same in all


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example(ROOT / "examples" / "trl_environment.py")


def reward_of(secret: str) -> float:
    """The reward of a game with these guesses, which is lost unless they win it."""
    words = load_words()
    game = Game(secret, words.allowed_set)
    for guess in GUESSES:
        if not game.won:
            game.play(guess, text=f"<guess>{guess}</guess>")
    if not game.won:
        game.forfeit()
    return build_rewards("phase2", build_knowledge(words)).reward(game).total


def test_a_game_answers_with_marks_and_pays_the_reward_of_the_set(example):
    game = example.Wordle()
    for secret in ("crane", "mummy"):
        game.reset(secret=secret)
        replies = [game.guess(guess) for guess in GUESSES]
        assert ("xx✓x✓" if secret == "crane" else "xxxxx") in replies[0].replace(" ", "")
        assert (replies[2] == example.OVER) == (secret == "crane")
        assert game.get_reward() == pytest.approx(reward_of(secret))
    assert game.guess("crane") == example.OVER  # after the end
