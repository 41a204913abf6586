"""Words said whatever the clues are, plurals, answers and openers, against counts by hand."""

import math
from collections import Counter
from functools import partial

import pytest

from tests.helpers import played_games
from tests.helpers.played_games import played_with, summary_of
from wordle_rl.evaluation.habits import discoveries, is_plural, later_guesses, warn_of_repetition
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules, marks
from wordle_rl.training.metrics import habit_metrics
from wordle_rl.words.lists import WordLists

ANSWERS = ("crane", "crate", "glass", "grace", "slate")
WORDS = WordLists(answers=ANSWERS, allowed=(*ANSWERS[:4], "loops", ANSWERS[4], "trees", "virus"))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))

play = partial(played_with, WORDS.allowed_set)


def bits_by_hand(guess: str) -> float:
    sizes = Counter(marks(guess, secret) for secret in ANSWERS).values()
    return -sum(size / 5 * math.log2(size / 5) for size in sizes)


def test_no_original_answer_is_a_plural_but_every_fourth_allowed_word_is(original):
    assert not any(map(is_plural, original.words.answers))
    assert sum(map(is_plural, original.words.allowed)) == 3403


def test_openers_have_the_mean_bits_and_rank_of_a_count_by_hand():
    games = [play("crane", "trees", "crane"), play("glass", "crane", "glass")]
    bits = {word: bits_by_hand(word) for word in WORDS.allowed}
    ranks = {w: 1 + sum(value > bits[w] + 1e-9 for value in bits.values()) for w in bits}
    assert KNOWLEDGE.opener_bits.tolist() == pytest.approx(list(bits.values()))
    assert KNOWLEDGE.opener_ranks.tolist() == list(ranks.values())
    assert len(set(ranks.values())) < len(ranks)  # equal words share a rank
    metrics = discoveries(games, KNOWLEDGE)
    assert metrics["opener_bits"] == pytest.approx((bits["trees"] + bits["crane"]) / 2)
    assert metrics["opener_rank"] == (ranks["trees"] + ranks["crane"]) / 2


def stuck_games(words: int):
    """Games of six turns that open with crane and then say steel in `words` of the later turns."""
    rules, games = Rules(invalid="accept"), []
    for number in range(10):
        guesses = ["steel" if 5 * number + i < words else f"aa{number:c}a{i:c}" for i in range(5)]
        games.append(played_games.played("sleep", ["crane", *guesses], rules))
    return games


@pytest.mark.parametrize(("words", "warned"), [(12, False), (13, True)])
def test_a_warning_needs_more_than_a_quarter_of_the_later_turns(words: int, warned: bool):
    games = stuck_games(words)
    counts = later_guesses(games)
    assert counts == {"later_turns": 50, "later_guess": "steel", "later_guess_count": words}
    assert bool(warn_of_repetition("fake", counts)) is warned
    table = report_table([summary_of(games, Rules(invalid="accept"))])
    assert (f"WARNING: fake guesses steel in {words} of 50 turns" in table) is warned
    assert habit_metrics("val", games)["val/most_common_later_guess"] == pytest.approx(words / 50)
