"""What metrics of skill say about turns, and what games cost beyond the best player's."""

import math
import random
from collections import Counter
from functools import partial

import pytest

from tests.helpers.played_games import played_with
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.skill import skill_metrics, skills, summary
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, Rules, State, feedback_code, marks
from wordle_rl.words.lists import WordLists

ANSWERS = tuple(sorted({f"{a}{b}{c}er" for a in "bcdfl" for b in "ao" for c in "nstv"}))
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted({*ANSWERS, "clasp", "bonds", "zzzzz"})))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))

play = partial(played_with, WORDS.allowed_set)


def entropy_by_hand(guess: str, candidates: list[str]) -> tuple[float, float]:
    """Bits and mean number of words left, from the marks that a person would write."""
    sizes = Counter(marks(guess, secret) for secret in candidates).values()
    n = len(candidates)
    bits = -sum(size / n * math.log2(size / n) for size in sizes)
    return bits, sum(size * size for size in sizes) / n


def test_bits_words_left_and_best_bits_are_those_of_a_count_by_hand():
    game = play("cater", "bonds", "zzzzz", "laver", "cater")
    words = list(ANSWERS)
    for turn, skill in zip(game.turns, skills([game], KNOWLEDGE), strict=True):
        assert turn.guess is not None
        bits, remaining = entropy_by_hand(turn.guess, words)
        best = max(entropy_by_hand(guess, words)[0] for guess in WORDS.allowed)
        assert (skill.bits, skill.remaining) == pytest.approx((bits, remaining), abs=1e-9)
        assert skill.best_bits == pytest.approx(best, abs=1e-9)
        words = [word for word in words if marks(turn.guess, word) == marks(turn.guess, "cater")]


@pytest.mark.parametrize(
    ("guess", "placed", "elsewhere", "absent"),
    [
        ("dater", True, True, True),  # the secret's own kind
        ("later", True, True, False),  # L was absent
        ("dbter", False, True, True),  # A was in place
        ("danso", True, False, True),  # neither T, E nor R, which were elsewhere
        ("darte", True, False, True),  # T where it was seen not to be
    ],
)
def test_each_kind_of_clue_is_judged_alone(guess, placed, elsewhere, absent):
    # against DATER: L absent, A in place, R, T and E elsewhere
    game = play("dater", "larte", guess, rules=Rules(invalid="accept"))
    assert marks("larte", "dater") == "x✓---"
    first, second = skills([game], KNOWLEDGE)
    assert (first.fits, first.fits_placed, first.fits_elsewhere, first.fits_absent) == (None,) * 4
    kinds = (second.fits_placed, second.fits_elsewhere, second.fits_absent)
    assert kinds == (placed, elsewhere, absent)
    assert second.fits == all(kinds)


def test_a_guess_fits_exactly_when_it_breaks_no_kind_and_could_be_the_secret():
    rng = random.Random(2)
    letters = "aabenrst"
    misfits = 0
    for _ in range(600):
        secret, first, second, guess = ("".join(rng.choices(letters, k=5)) for _ in range(4))
        game = play(secret, rules=Rules(invalid="accept"))
        game.state = State(tuple(Clue(w, feedback_code(w, secret)) for w in (first, second)), 2)
        game.play(guess)
        [skill] = skills([game], KNOWLEDGE, best=False)
        could_be = all(marks(w, guess) == marks(w, secret) for w in (first, second))
        kinds = (skill.fits_placed, skill.fits_elsewhere, skill.fits_absent)
        assert skill.fits == could_be == all(kind is not False for kind in kinds)
        misfits += not could_be
    assert 0 < misfits < 600


def test_metrics_of_a_few_games_are_those_of_all_their_turns_but_for_best_bits():
    rng = random.Random(1)
    games = [
        play(secret, *rng.choices(["clasp", "bonds", "zzzzz"], k=3), secret)
        for secret in ANSWERS[:30]
    ]
    metrics = skill_metrics(games, KNOWLEDGE, Regret(KNOWLEDGE, 6))
    expected = summary(skills(games, KNOWLEDGE))
    for name in ("consistency", "bits_gained", "expected_remaining"):
        assert metrics[f"skill/{name}"] == pytest.approx(expected[name])
    sample = summary(skills(games[::6], KNOWLEDGE))
    assert metrics["skill/bits_ratio"] == pytest.approx(sample["bits_ratio"])
    assert 0.0 < metrics["skill/bits_ratio"] < 1.0


# -- regret ---------------------------------------------------------------------------------------


def test_the_best_player_needs_what_is_published_for_greedy_entropy_from_salet(original):
    regret = Regret(original, 6)
    guesses = [regret.needed(secret) for secret in original.words.answers]
    assert sum(guesses) / len(guesses) == pytest.approx(3.433, abs=1e-3)
    assert max(guesses) <= 6  # no loss


def test_regret_is_the_mean_of_guesses_beyond_those_of_the_best_player():
    words = WordLists(answers=("crane", "moist", "slate"), allowed=("crane", "moist", "slate"))
    regret = Regret(Knowledge(words, build_table(words)), 3)  # crane tells the others apart
    assert [regret.needed(word) for word in words.answers] == [1, 2, 2]
    game = partial(played_with, words.allowed_set, rules=Rules(max_turns=3))
    assert regret.mean([game("crane", "slate", "crane")]) == 1.0
    assert regret.mean([game("slate", "slate")]) == -1.0
    loss = game("crane", None, "moist", "slate")
    assert regret.mean([loss]) == 3.0  # lost in three is four, the best player's first guess wins
    assert regret.mean([loss, game("slate", "slate")]) == 1.0
    assert regret.mean([game("crane", "slate")]) is None  # still going
    later_game = Game(
        "slate",
        words.allowed_set,
        Rules(max_turns=3),
        state=State((Clue("moist", feedback_code("moist", "slate")),), 1, max_turns=3),
    )
    later_game.play("slate")
    assert later_game.won and regret.mean([later_game]) is None  # the first guess was not its own
