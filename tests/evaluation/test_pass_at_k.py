"""pass@k: against all choices of k games, against chance, and its interval against simulation."""

import itertools

import numpy as np
import pytest

from tests.helpers.played_games import played, summary_of
from wordle_rl.evaluation.pass_at_k import pass_at_k, pass_differences, passes, pooled_passes
from wordle_rl.evaluation.report_table import report_table


@pytest.mark.parametrize(("wins", "games"), [(0, 5), (1, 5), (3, 6), (6, 6)])
def test_it_is_the_share_of_all_choices_of_k_games_that_hold_a_win(wins: int, games: int):
    results = [True] * wins + [False] * (games - wins)
    for k in range(1, games + 1):
        choices = list(itertools.combinations(results, k))
        assert pass_at_k(wins, games, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_it_is_unbiased_where_the_chance_of_a_win_is_known():
    chance, games, k = 0.2, 8, 3
    expected = sum(
        pass_at_k(wins, games, k)
        * chance**wins * (1 - chance) ** (games - wins)
        * len(list(itertools.combinations(range(games), wins)))
        for wins in range(games + 1)
    )  # fmt: skip
    assert expected == pytest.approx(1 - (1 - chance) ** k)


def test_numbers_out_of_range_are_refused():
    for wins, k in ((0, 0), (0, 5), (5, 1), (-1, 1)):
        with pytest.raises(ValueError, match=r"k must be 1\.\.4"):
            pass_at_k(wins, 4, k)


def games_of(wins: dict[str, list[bool]]):
    return [
        played(secret, [secret] if won else ["steel"] * 6)
        for secret, results in wins.items()
        for won in results
    ]


def test_secrets_count_alike_and_k_is_each_power_of_two_and_all_games():
    found = passes(games_of({"crane": [True, False, False], "sleep": [True, True, False]}))
    assert list(found) == ["1", "2", "3"]
    # By hand: of 3 pairs of crane's games 2 hold the win, of sleep's all 3.
    assert [found[k]["pass"] for k in found] == pytest.approx([1 / 2, (2 / 3 + 1) / 2, 1.0])


def test_one_game_each_or_unequal_numbers_have_no_pass_at_k():
    assert passes(games_of({"crane": [True], "sleep": [False]})) == {}
    assert passes(games_of({"crane": [True, True], "sleep": [False]})) == {}
    assert "pass_at" not in summary_of(games_of({"crane": [True]}))
    assert "pass@" not in report_table([summary_of(games_of({"crane": [True]}))])


def test_pass_at_1_is_the_win_rate_with_its_interval():
    s = summary_of(games_of({"crane": [True, False], "sleep": [False, False],
                             "abbey": [True, True], "mound": [True, False]}))  # fmt: skip
    one = s["pass_at"]["1"]
    assert [one["pass"], one["low"], one["high"]] == pytest.approx(
        [s["win_rate"], s["win_rate_low"], s["win_rate_high"]]
    )


def test_the_interval_holds_the_truth_in_95_of_100_cases():
    rng = np.random.default_rng(5)
    made = {won: played("crane", ["crane"] if won else ["mound"] * 6) for won in (True, False)}

    class Result:  # a game as far as pass@k looks at it
        def __init__(self, secret: int, won: bool) -> None:
            self.secret, self.won = str(secret), made[won].won

    chances = rng.beta(0.6, 1.0, size=(300, 40))
    exact = rng.beta(0.6, 1.0, size=200_000)
    truth = float(np.mean(1 - (1 - exact) ** 2))  # of secrets drawn like these
    hits = 0
    for row in chances:
        won = rng.random((40, 4)) < row[:, None]
        games = [Result(i, bool(w)) for i, line in enumerate(won) for w in line]
        two = passes(games)["2"]  # type: ignore[arg-type]
        hits += two["low"] <= truth <= two["high"]
    assert 0.92 <= hits / 300 <= 0.99


def test_several_runs_give_the_mean_of_their_estimates():
    one = games_of({"crane": [True, False], "sleep": [False, False]})
    other = games_of({"crane": [True, True], "sleep": [True, False]})
    found = pooled_passes([one, other])
    # By hand: pass@1 is 1/4 and 3/4, pass@2 is 1/2 and 1.
    assert [found[k]["pass"] for k in ("1", "2")] == pytest.approx([0.5, 0.75])
    assert all(found[k]["low"] < found[k]["pass"] < found[k]["high"] for k in found)
    assert pooled_passes([one, other[:3]]) == {}
    with pytest.raises(ValueError, match="same secrets"):
        pooled_passes([one, other[:2]])


def test_only_wins_within_so_many_guesses_count():
    quick, slow = ["crane"], ["steel", "mound", "crane"]
    games = [played("crane", guesses) for guesses in (quick, slow, slow, slow)]
    assert pooled_passes([games])["1"]["pass"] == 1.0
    for within, share in ((3, 1.0), (2, 0.25), (1, 0.25)):
        assert pooled_passes([games], within=within)["1"]["pass"] == share


def test_the_difference_pairs_the_secrets():
    before = games_of({"crane": [True, False], "sleep": [False, False], "mound": [True, True]})
    same = pass_differences(before, [before, before])
    assert {tuple(of.values()) for of in same.values()} == {(0.0, 0.0, 0.0)}
    after = games_of({"crane": [True, True], "sleep": [True, False], "mound": [True, True]})
    one = pass_differences(before, [after])["1"]
    # By hand: gains of 1/2, 1/2 and 0, whose standard error is their deviation over sqrt(3).
    half = 1.959964 * np.std([0.5, 0.5, 0.0], ddof=1) / np.sqrt(3)
    assert list(one.values()) == pytest.approx([1 / 3, 1 / 3 - half, 1 / 3 + half])
    assert pass_differences(before[:5], [after]) == {}


def test_the_table_has_greedy_games_beside_the_sampled_ones():
    sampled = summary_of(games_of({"crane": [True, False] * 4, "sleep": [False] * 8}))
    greedy = summary_of(games_of({"crane": [True], "sleep": [False]}))
    text = report_table([sampled, greedy])
    header, _, first, second = text.partition("pass@1")[2].splitlines()[:4]
    assert header.split("(95 %)")[1:-1] == ["      pass@2 ", "      pass@4 ", "      pass@8 "]
    # crane's: 1 - C(4, k) / C(8, k), which is 1/2, 11/14, 69/70 and 1; sleep's: 0
    assert [float(cell) for cell in first.split()[1::2]] == [25.0, 39.3, 49.3, 50.0]
    assert second.split()[1] == "50.0" and second.split()[-3:] == ["-", "-", "-"]
    assert max(map(len, text.splitlines())) <= 100
