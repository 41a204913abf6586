"""Credit by letter: which letter spoils a guess, which token holds it, and what each one earns."""

from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny import recipe_of
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, Rules, State, feedback_code
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.training.advantages import letter_advantages, locate_letters
from wordle_rl.words.lists import WordLists

WORDS = WordLists(
    answers=("charm", "chart", "crane"), allowed=("champ", "charm", "chart", "crane"), name="ch"
)
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
# Tokens with one letter, with several, and without any.
TEXTS = ["<guess>", " C", " H", " A", " R", " P", " T", "</guess>", "char", "t</guess>", "c", "M"]
TEXTS += [" N", " E"]


class Texts:
    """A tokenizer whose tokens are TEXTS."""

    def decode(self, ids: list[int]) -> str:
        return "".join(TEXTS[i] for i in ids)


def state_after(*guesses: str, secret: str = "chart") -> State:
    return State(tuple(Clue(g, feedback_code(g, secret)) for g in guesses), len(guesses), 6)


@pytest.mark.parametrize(
    ("guess", "after", "place"),
    [
        ("chart", (), None),
        ("charp", (), 4),
        ("chats", (), 3),
        ("zebra", (), 0),
        ("champ", (), None),  # allowed, though it is no answer
        ("crane", ("charm",), 1),  # the H is known to be second
        ("charm", ("charm",), 4),  # a repeat cannot be the secret
        ("champ", ("crane",), 3),  # the R is known
        ("chart", ("charm",), None),
    ],
)
def test_the_letter_after_which_no_word_fits_spoils_a_guess(guess, after, place):
    assert KNOWLEDGE.spoiling_letter(guess, state_after(*after)) == place


@pytest.mark.parametrize(
    ("ids", "places"),
    [
        ([0, 1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 5]),  # a token for each letter
        ([0, 8, 9], [1, 1, 1, 1, 2]),  # several letters in a token
        ([8, 9, 0, 8, 9], [3, 3, 3, 3, 4]),  # the guess is the last such place
        ([10, 0, 8, 9], [2, 2, 2, 2, 3]),  # not the thought's c
        ([0, 7], []),
    ],
)
def test_letters_are_found_in_the_tokens_of_an_answer(ids, places):
    assert locate_letters(ids, "chart", Texts()) == places


def rollout_of(
    group: int, *answers: list[int], secret: str = "crane", forced: tuple[int, ...] = ()
) -> Rollout:
    """A game with these answers, tokens of TEXTS. forced: those that a grammar leaves no choice."""
    game, talk = Game(secret, WORDS.allowed_set, Rules()), Talk()
    for ids in answers:
        text = Texts().decode(ids)
        letters = text.lower().removeprefix("<guess>").removesuffix("</guess>").replace(" ", "")
        game.play(letters or None, text=text, reason=None if letters else "no_guess_tag")
        talk.hear([0, 0], len(game.turns) - 1)
        choices = []
        if forced:
            choices = [np.array([i] if i in forced else [i, 99]) for i in ids]
        talk.answer(ids, len(game.turns) - 1, choices=choices)
    return Rollout(game=game, group=group, talks=[talk])


CHART, CHARP = [0, 1, 2, 3, 4, 6, 7], [0, 1, 2, 3, 4, 5, 7]
CHATP, NOTHING = [0, 1, 2, 3, 6, 5, 7], [7]


def recipe(**fields: Any):
    return recipe_of(Grpo(beta=0.0), lambda turn: 0.0, knowledge=KNOWLEDGE, **fields)


def test_a_letter_is_compared_with_the_same_letter_of_the_groups_guesses():
    rollouts = [
        rollout_of(0, CHART),
        rollout_of(0, CHARP),
        rollout_of(0, CHATP),
        rollout_of(0, NOTHING),
        rollout_of(1, CHARP),
    ]
    advantages = letter_advantages(rollouts, recipe(letter_weight=2.0), Texts())
    thirds = [0, 0, 0, 0, 2 * (1 - 2 / 3), 2 * (1 - 1 / 2), 0]
    np.testing.assert_allclose(advantages[0][0], thirds)
    np.testing.assert_allclose(advantages[1][0], [*thirds[:5], 2 * (0 - 1 / 2), 0])
    np.testing.assert_allclose(advantages[2][0], [0, 0, 0, 0, 2 * (0 - 2 / 3), 0, 0])
    assert advantages[3][0].tolist() == [0], "an answer without a guess"
    assert not advantages[4][0].any(), "a guess without others to compare"


def test_letters_count_as_much_where_a_grammar_forces_what_surrounds_them():
    rollouts = [rollout_of(0, ids, forced=(0, 1, 7)) for ids in (CHART, CHARP)]
    assert rollouts[0].talks[0].trained == [False] * 4 + [True] * 4 + [False]
    advantages = letter_advantages(rollouts, recipe(letter_weight=1.0), Texts())
    assert advantages[0][0].tolist() == [0, 0, 0, 0, 0, 0.5, 0]
    assert advantages[1][0].tolist() == [0, 0, 0, 0, 0, -0.5, 0]


def test_each_turn_of_a_group_is_compared_by_itself():
    rollouts = [rollout_of(0, CHARP, CHARP), rollout_of(0, CHARP, CHART)]
    advantages = letter_advantages(rollouts, recipe(letter_weight=1.0), Texts())
    assert not advantages[0][0].any() and not advantages[1][0].any()
    assert advantages[0][1].tolist() == [0, 0, 0, 0, 0, -0.5, 0]
    assert advantages[1][1].tolist() == [0, 0, 0, 0, 0, 0.5, 0]


@pytest.mark.parametrize(("most", "blame"), [(2, -0.5), (1, 0.0), (None, -0.5)])
def test_while_too_many_words_fit_letters_answer_for_non_words_alone(most, blame):
    crane, champ, charm = [0, 1, 4, 3, 12, 13, 7], [0, 1, 2, 3, 11, 5, 7], [0, 1, 2, 3, 4, 11, 7]
    by_letter = recipe(letter_weight=1.0, letter_from=most)
    rollouts = [rollout_of(0, crane, ids, secret="charm") for ids in (champ, charm)]
    advantages = letter_advantages(rollouts, by_letter, Texts())  # CHARM and CHART fit
    assert advantages[0][1].tolist() == [0, 0, 0, 0, blame, 0, 0]
    rollouts = [rollout_of(0, crane, ids, secret="charm") for ids in (CHARP, charm)]
    advantages = letter_advantages(rollouts, by_letter, Texts())
    assert advantages[0][1].tolist() == [0, 0, 0, 0, 0, -0.5, 0]


def test_a_guess_that_left_the_clues_early_is_still_told_where_it_stops_being_a_word():
    crane, champ, charp = [0, 1, 4, 3, 12, 13, 7], [0, 1, 2, 3, 11, 5, 7], [0, 1, 2, 3, 4, 5, 7]
    rollouts = [rollout_of(0, crane, ids, secret="charm") for ids in (champ, charp)]
    fits = letter_advantages(rollouts, recipe(letter_weight=1.0), Texts())  # CHARM or CHART
    words = letter_advantages(rollouts, recipe(word_letter_weight=3.0), Texts())
    assert fits[0][1].tolist() == [0, 0, 0, 0, -0.5, 0, 0], "the M of CHAMP, where an R fits"
    assert fits[1][1].tolist() == [0, 0, 0, 0, 0.5, 0, 0], "its P alone has nothing beside it"
    assert words[0][1].tolist() == [0, 0, 0, 0, 0, 1.5, 0], "CHAMP is a word"
    assert words[1][1].tolist() == [0, 0, 0, 0, 0, -1.5, 0], "CHARP is none"
    mixture = recipe(letter_weight=1.0, word_letter_weight=3.0)
    for rollout, sums in zip(rollouts, letter_advantages(rollouts, mixture, Texts()), strict=True):
        i = rollouts.index(rollout)
        np.testing.assert_allclose(sums[1], fits[i][1] + words[i][1])
