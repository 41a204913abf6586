"""Where training games begin: how deep, after whose guesses, and always the same way."""

from collections import Counter

import pytest

from wordle_rl.commands.build import build_history
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy, Player, RandomConsistent
from wordle_rl.game.rules import Rules, State, feedback_code
from wordle_rl.rollouts.history import History
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.words.lists import WordLists


@pytest.fixture(scope="module")
def knowledge(original: Knowledge) -> Knowledge:
    return original


def history_of(knowledge: Knowledge, least: int, most: int, player: Player) -> History:
    stand_in = RandomConsistent(knowledge, "allowed")
    return History(least=least, most=most, player=player, stand_in=stand_in)


def states(history: History, secrets: list[str], *, first: int = 0, step: int = 0) -> list[State]:
    groups = range(first, first + len(secrets))
    return history.states(secrets, groups, seed=3, step=step, max_turns=6)


def test_each_depth_is_as_likely_and_no_game_is_over(knowledge) -> None:
    secrets = list(knowledge.words.answers)
    history = history_of(knowledge, 0, 4, RandomConsistent(knowledge))
    starts = states(history, secrets)
    depths = Counter(len(state.clues) for state in starts)
    assert sorted(depths) == [0, 1, 2, 3, 4]
    # The deepest lack some: after three guesses often no word but the secret fits.
    assert all(abs(depths[k] / len(secrets) - 0.2) < 0.04 for k in (0, 1, 2, 3))
    assert 0.12 < depths[4] / len(secrets) < 0.2
    for secret, state in zip(secrets, starts, strict=True):
        assert secret not in state.guesses
        assert (state.turn, state.max_turns) == (len(state.clues), 6)
        for number, clue in enumerate(state.clues):
            assert clue.feedback == feedback_code(clue.guess, secret)
            fits = [feedback_code(c.guess, clue.guess) == c.feedback for c in state.clues[:number]]
            assert all(fits), "a guess must fit all clues before it"


def test_a_guess_that_would_win_is_not_made_but_another_that_fits(knowledge) -> None:
    history = history_of(knowledge, 1, 1, GreedyEntropy(knowledge, "crane"))
    crane_start, slate_start = states(history, ["crane", "slate"])
    assert slate_start.guesses == ("crane",)
    [guess] = crane_start.guesses
    assert guess in knowledge.words.allowed_set - {"crane"}


def test_a_game_in_which_only_the_secret_is_left_to_guess_begins_there() -> None:
    words = WordLists(answers=("crane", "slate"), allowed=("crane", "slate"))
    knowledge = Knowledge(words, build_table(words))
    history = history_of(knowledge, 3, 3, RandomConsistent(knowledge))
    assert [s.guesses for s in states(history, ["crane", "slate"])] == [("slate",), ("crane",)]


def test_a_groups_state_depends_on_seed_step_and_number_alone(knowledge) -> None:
    secrets = list(knowledge.words.answers[:60])
    history = history_of(knowledge, 0, 4, RandomConsistent(knowledge, "allowed"))
    expected = states(history, secrets)
    parts = [states(history, secrets[a : a + 20], first=a) for a in (0, 20, 40)]
    assert [state for part in parts for state in part] == expected
    assert states(history, secrets, step=1) != expected
    assert states(history, secrets, first=1) != expected


def test_training_games_can_begin_with_one_word(knowledge) -> None:
    target = "wordle_rl.rollouts.history.HistorySettings"
    node = {"_target_": target, "least": 0, "most": 0, "player": "random_consistent"}
    node["opener"] = "Salet"
    history = build_history(node, knowledge, Rules())
    assert history is not None and history.least == 1
    secrets = [*knowledge.words.answers[::100], "salet"]
    *openings, last = states(history, secrets)
    assert {state.guesses for state in openings} == {("salet",)}
    assert last.guesses != ("salet",), "a guess that would win is drawn again"
    deep_history = build_history({**node, "most": 3}, knowledge, Rules())
    assert deep_history is not None
    starts = states(deep_history, secrets[:-1])
    assert {state.guesses[0] for state in starts} == {"salet"}
    assert {len(state.guesses) for state in starts} == {1, 2, 3}
    with pytest.raises(ConfigError, match=r"history\.opener must be an allowed word, not zzzzz"):
        build_history({**node, "opener": "zzzzz"}, knowledge, Rules())
