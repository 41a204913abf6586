"""A word that a player says whatever the clues are is counted, and warned about."""

import pytest

from tests.helpers.played_games import played, summary_of
from wordle_rl.evaluation.repetition import later_guesses, warn_of_repetition
from wordle_rl.evaluation.report_table import report_table
from wordle_rl.game.rules import Clue, Game, Rules, State, feedback_code
from wordle_rl.training.metrics import habit_metrics


def stuck_games(words: int, games: int = 10):
    """Games of six turns that open with crane and then say steel in `words` of the later turns."""
    rules, made = Rules(invalid="accept"), []
    for number in range(games):
        later = ["steel" if 5 * number + i < words else f"aa{number:c}a{i:c}" for i in range(5)]
        made.append(played("sleep", ["crane", *later], rules))
    return made


def test_the_word_of_most_turns_after_the_first_jumps_to_the_eye():
    games = stuck_games(20)
    table = report_table([summary_of(games, Rules(invalid="accept"))])
    assert "most common guess: steel, 20 of 60 turns" in table
    assert "WARNING: fake guesses steel in 20 of 50 turns after the first" in table
    assert habit_metrics("val", games)["val/most_common_later_guess"] == pytest.approx(20 / 50)


@pytest.mark.parametrize(("words", "warned"), [(12, False), (13, True)])
def test_a_warning_needs_more_than_a_quarter_of_the_later_turns(words: int, warned: bool):
    found = later_guesses(stuck_games(words))
    assert found == {"later_turns": 50, "later_guess": "steel", "later_guess_count": words}
    assert bool(warn_of_repetition("fake", found)) is warned


def test_one_opener_for_all_games_and_a_few_turns_are_no_repetition():
    games = [played("crane", ["slate", "crane"]) for _ in range(19)]
    assert later_guesses(games)["later_guess_count"] == 19  # of as many turns: too few to judge
    assert not warn_of_repetition("fake", later_guesses(games))
    assert warn_of_repetition("fake", later_guesses([*games, games[0]]))
    assert later_guesses([played("crane", ["crane"])] * 30)["later_turns"] == 0


def test_a_first_answer_after_given_clues_is_no_opener():
    clue = Clue("slate", feedback_code("slate", "crane"))
    game = Game("crane", {"crane"}, state=State((clue,), 1))
    game.play("crane")
    assert later_guesses([game])["later_guess"] == "crane"


def test_answers_without_a_guess_count_as_turns_but_have_no_word():
    found = later_guesses([played("crane", [None] * 6)])
    assert found == {"later_turns": 5, "later_guess": None, "later_guess_count": 0}
