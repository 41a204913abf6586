"""pass@k against all choices of k games and against chance, and wins by given guesses."""

import itertools

import numpy as np
import pytest

from tests.helpers.played_games import WORDS, played, summary_of
from wordle_rl.evaluation.results import pass_at_k, passes, results_by_depth
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.rules import Clue, Game, State, feedback_code


def take_over(secret: str, clues: list[str], guesses: list[str]) -> Game:
    """A game with these guesses, taken over after others."""
    prefix = tuple(Clue(guess, feedback_code(guess, secret)) for guess in clues)
    game = Game(secret, WORDS, state=State(prefix, len(prefix)))
    for guess in guesses:
        game.play(guess)
    return game


@pytest.mark.parametrize(("wins", "games"), [(0, 5), (1, 5), (3, 6), (6, 6)])
def test_it_is_the_share_of_all_choices_of_k_games_that_hold_a_win(wins: int, games: int):
    results = [True] * wins + [False] * (games - wins)
    for k in range(1, games + 1):
        choices = list(itertools.combinations(results, k))
        assert pass_at_k(wins, games, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def games_of(wins: dict[str, list[bool]]):
    return [
        played(secret, [secret] if won else ["steel"] * 6)
        for secret, results in wins.items()
        for won in results
    ]


def test_secrets_count_alike_and_k_is_each_power_of_two_and_all_games():
    rates = passes(games_of({"crane": [True, False, False], "sleep": [True, True, False]}))
    assert list(rates) == ["1", "2", "3"]
    assert passes(games_of({"crane": [True, True], "sleep": [False]})) == {}, "unequal numbers"
    # By hand: of 3 pairs of crane's games 2 hold the win, of sleep's all 3.
    assert [rates[k]["pass"] for k in rates] == pytest.approx([1 / 2, (2 / 3 + 1) / 2, 1.0])


def test_the_interval_holds_the_truth_in_95_of_100_cases():
    rng = np.random.default_rng(5)
    examples = {won: played("crane", ["crane"] if won else ["mound"] * 6) for won in (True, False)}

    class Result:  # a game as far as pass@k looks at it
        def __init__(self, secret: int, won: bool) -> None:
            self.secret, self.won = str(secret), examples[won].won

    chances = rng.beta(0.6, 1.0, size=(300, 40))
    rates = rng.beta(0.6, 1.0, size=200_000)
    truth = float(np.mean(1 - (1 - rates) ** 2))  # of secrets drawn like these
    hits = 0
    for row in chances:
        won = rng.random((40, 4)) < row[:, None]
        games = [Result(i, bool(w)) for i, line in enumerate(won) for w in line]
        estimate = passes(games)["2"]  # type: ignore[arg-type]
        hits += estimate["low"] <= truth <= estimate["high"]
    assert 0.92 <= hits / 300 <= 0.99


GAMES = [
    played("crane", ["crane"]),
    take_over("crane", ["slate", "mound"], ["crane"]),
    take_over("sleep", ["slate", "mound"], ["crane", "abbey", "steel", "crept"]),
    take_over("sleep", ["slate"] * 4, ["sleep"]),
]


def test_games_are_counted_by_the_guesses_that_were_given():
    by_depth = results_by_depth(GAMES)
    assert {k: (v["games"], v["wins"], v["win_rate"]) for k, v in by_depth.items()} == {
        "0": (1, 1, 1.0),
        "2": (2, 1, 0.5),
        "4": (1, 1, 1.0),
    }
    # Given guesses count: the third guess won one game, and the other one is lost.
    assert by_depth["2"]["mean_guesses_with_losses"] == pytest.approx((3 + 7) / 2)


def test_the_report_and_the_metrics_show_them():
    text = report_table([summary_of(GAMES)], 200)
    assert "after given guesses: 0 given 100.0 (1), 2 given 50.0 (2), 4 given 100.0 (1)" in text
    summary = summary_of(GAMES[:1])
    assert not {"by_depth", "pass_at"} & summary.keys() and "given" not in report_table([summary])
