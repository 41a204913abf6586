"""How a set of rewards adds up, what it refuses, and what the shipped sets are."""

import math
import random

import pytest

from tests.helpers.reward_sets import POLICIES, SETS, UNLAWFUL, WORDS, guesses, play
from wordle_rl.game.rules import Game
from wordle_rl.rewards import scoring
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.repeat import Repeat
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win

TEXTS = ["", "<guess>x</guess>", "<think>well</think>", "<guess>zzzzz</guess>"]


def random_game(rng: random.Random, policy: dict) -> Game:
    words = guesses(*WORDS.allowed)
    return play([rng.choice(rng.choice([words, TEXTS])) for _ in range(40)], **policy)


# row 20
@pytest.mark.parametrize("name", SETS)
def test_the_sum_over_turns_is_the_sum_of_the_logged_breakdowns(name):
    rewards, rng = SETS[name], random.Random(4)
    for policy in POLICIES:
        game = random_game(rng, policy)
        before = list(game.turns)
        score = rewards.reward(game)
        total = sum(share for turn in score.turns for share in turn.values())
        assert len(score.turns) == len(game.turns)
        assert score.total == pytest.approx(total, abs=1e-8)
        assert sum(score.turn_totals) == pytest.approx(total, abs=1e-7)
        assert sum(score.components.values()) == pytest.approx(total, abs=1e-7)
        assert game.turns == before and rewards.reward(game) == score


def test_an_unlawful_set_is_the_weighted_sum_and_lets_repeating_a_word_pay():
    assert {n for n in SETS if not SETS[n].lawful} == {UNLAWFUL}, "what is shipped must be lawful"
    rewards = SETS[UNLAWFUL]
    game = play(guesses("patch", "patch", "chimp"))
    expected = [
        {name: weight * rewards.components[name](turn) for name, weight in rewards.weights.items()}
        for turn in game.turns
    ]
    assert list(rewards.reward(game).turns) == expected
    # The failure of the hobby project: the second PATCH, which tells nothing, beats a telling word.
    assert rewards.reward(game).turn_totals[1] > rewards.reward(game).turn_totals[2]
    totals = SETS["phase1"].reward(game).turn_totals
    assert totals[1] < totals[2]


def test_the_example_in_the_docstring_is_what_a_set_gives():
    rewards = RewardSet(
        components={"format": Format(words=WORDS), "win": Win(speed=0.5)},
        weights={"format": 1.0, "win": 2.0},
    )
    text = scoring.__doc__ or ""
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    score = rewards.reward(play(guesses("zzzzz", "crane", "match")))
    parts, totals = [*score.turns, score.components], [*score.turn_totals, score.total]
    for name, part, total in zip(
        ("non-word", "word", "secret", "game"), parts, totals, strict=True
    ):
        assert part.keys() <= {"format", "win", "credit"}
        expected = [f"{value:.3f}" for value in (*part.values(), total)]
        assert rows[name][: len(expected)] == expected
    retry = rewards.reward(play(guesses("zzzzz", "match"), invalid="retry")).turns[0]
    assert f"retry {retry['retry']:.3f}" in text
    forfeit = rewards.reward(play(guesses("zzzzz"), invalid="end_game")).turns[0]
    assert f"forfeit {forfeit['forfeit']:.3f}" in text


def test_a_violation_keeps_its_graded_format_score_and_loses_everything_else():
    scores = SETS["phase2"].reward(play(["<guess>x</guess>", *guesses("zzzzz", "catch", "catch")]))
    for turn, form in zip(scores.turns, (0.4, 0.5, 1.0, 0.5), strict=True):
        assert turn["format"] == pytest.approx(0.3 * form)
    for index in (0, 1, 3):
        rest = {name: share for name, share in scores.turns[index].items() if name != "format"}
        expected = {"feedback": -2.5, "value": 0.0, "repeat": -1.0, "win": 3 * -0.1}
        assert rest == pytest.approx(expected)


class Tax:
    """A reward that is never 0 or more."""

    range = (-2.0, -1.0)


@pytest.mark.parametrize("value", [1.5, -0.5, math.nan, None, "1"])
def test_a_reward_outside_its_declared_range_stops_the_run(value):
    class Wrong:
        range = (0.0, 1.0)

        def __call__(self, turn):
            return value

    rewards = RewardSet(components={"wrong": Wrong()}, weights={"wrong": 1.0}, lawful=False)
    with pytest.raises(ValueError, match="reward wrong gave"):
        rewards.reward(play(guesses("catch")))


@pytest.mark.parametrize(
    ("components", "weights", "message"),
    [
        ({"win": Win()}, {"win": 1.0, "wni": 1.0}, "weights must be for"),
        ({"win": Win()}, {"win": 0.0}, "exactly one win component with a weight above 0"),
        ({"a": Win(), "b": Win()}, {"a": 1.0, "b": 1.0}, "exactly one win component"),
        ({"win": Win(), "credit": Repeat()}, {"win": 1, "credit": 1}, "cannot be called"),
        ({"win": Win(), "tax": Tax()}, {"win": 1, "tax": 1}, "tax must be able to reach 0"),
    ],
)
def test_a_set_that_cannot_work_is_refused_by_name(components, weights, message):
    with pytest.raises(ValueError, match=message):
        RewardSet(components=components, weights=weights)
