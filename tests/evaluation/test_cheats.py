"""Repeating, reciting, misspelling and silence are counted, and losses that were paid for."""

import pytest

from wordle_rl.evaluation.cheats import AnsweredGame, count_cheats, count_paid_losses


def game(answers: str, *, won=False, reward=None, secret="slate", given=0):
    """A game from its answers, where ! marks a refused guess and - an unreadable answer."""
    guesses = [None if word == "-" else word.rstrip("!") for word in answers.split()]
    accepted = tuple(word != "-" and not word.endswith("!") for word in answers.split())
    return AnsweredGame(
        secret=secret, won=won, guesses=tuple(guesses), accepted=accepted, given=given,
        reward=reward,
    )  # fmt: skip


def test_the_example_of_the_docstring_is_counted_as_it_says():
    found = count_cheats([game("crane boofy boofy"), game("crane boofy! -")])
    assert (found.games, found.answers, found.later_answers) == (2, 6, 4)
    assert (found.common_guess, found.common_guesses) == ("boofy", 3)
    assert (found.repeats, found.recited) == (1, 3)
    assert (found.non_words, found.unreadable) == (1, 1)
    assert (found.stuck_games, found.silent_games) == (0, 0)


def test_a_player_that_says_one_word_is_stuck_in_every_game():
    found = count_cheats([game("think think think think think think")] * 2)
    assert (found.repeats, found.stuck_games) == (10, 2)  # five repeats in each game
    assert found.recited == found.later_answers == found.common_guesses == 10


def test_a_player_that_recites_a_list_repeats_nothing_within_a_game():
    found = count_cheats([game("stear clunk boofy primp")] * 3)
    assert (found.repeats, found.stuck_games) == (0, 0)
    assert found.recited == found.later_answers == 9
    assert found.common_guesses == 3  # the most common word is only a third of the list


def test_players_who_heed_the_clues_share_an_opener_and_recite_little():
    games = [game("crane slate", won=True), game("crane sleep crept"), game("crane mound")]
    found = count_cheats(games)
    assert found.wins == 1
    assert found.recited == 2  # each guess of turn 2 is made once, and so is that of turn 3


def test_a_non_word_is_repeated_like_a_word():
    found = count_cheats([game("aaaaa! aaaaa! aaaaa! crane")])
    assert (found.repeats, found.non_words, found.stuck_games) == (2, 3, 1)


def test_a_silent_game_has_no_guess_at_all():
    found = count_cheats([game("- - -"), game("- crane -")])
    assert (found.silent_games, found.unreadable, found.answers) == (1, 5, 6)
    silent = count_cheats([game("- -")])
    assert (silent.common_guess, silent.common_guesses, silent.recited) == (None, 0, 0)


def test_the_first_answer_after_given_clues_is_a_later_one():
    assert count_cheats([game("crane", given=1)]).later_answers == 1
    assert count_cheats([game("crane")]).later_answers == 0


def test_an_accepted_repeat_is_one_of_a_word_that_was_accepted_before():
    found = count_cheats([game("crane crane crane boofy! boofy! - -")])
    assert (found.repeats, found.accepted_repeats) == (3, 2)


def test_turns_are_counted_from_the_start_of_the_game():
    found = count_cheats([game("crane slate"), game("slate", given=1)])
    assert found.recited == 2  # slate is the second guess of both games


def test_the_mean_reward_needs_the_reward_of_every_game():
    assert count_cheats([game("-", reward=1.0), game("-", reward=2.0)]).reward == 1.5
    assert count_cheats([game("-", reward=1.0), game("-")]).reward is None


def test_no_games_are_refused():
    with pytest.raises(ValueError, match="no games"):
        count_cheats([])


def test_a_loss_for_which_more_is_paid_than_for_the_win_before_is_counted():
    before = [
        game("slate", secret="slate", won=True, reward=1.0),
        game("crane", secret="crane", won=True, reward=5.0),
        game("boofy", secret="mound", reward=0.0),
        game("steel", secret="steel", won=True, reward=2.0),  # not played again
    ]
    after = [
        game("boofy", secret="mound", reward=1.0),  # more reward, but it was lost before, too
        game("boofy", secret="crane", reward=4.0),  # lost for less
        game("boofy", secret="slate", reward=4.0),  # lost for more
    ]
    found = count_paid_losses(before, after)
    assert (found.pairs, found.lost, found.better_paid, found.paid_losses) == (3, 2, 2, 1)


def test_several_games_of_one_secret_are_paired_in_their_order():
    before = [game("slate", won=True, reward=1.0), game("slate", won=True, reward=9.0)]
    after = [game("boofy", reward=5.0), game("slate", won=True, reward=10.0)]
    found = count_paid_losses(before, after)
    assert (found.pairs, found.lost, found.better_paid, found.paid_losses) == (2, 1, 2, 1)


def test_losses_cannot_be_paid_where_a_reward_is_missing():
    with pytest.raises(ValueError, match="slate has no reward"):
        count_paid_losses([game("slate", won=True)], [game("slate", reward=1.0)])
