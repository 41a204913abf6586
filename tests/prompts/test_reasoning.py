"""Thoughts before a teacher's guess are true, varied, and leave the guess itself to the answer."""

import random
import re
from collections import Counter
from dataclasses import dataclass, field

from tests.helpers.thoughts import KNOWLEDGE, fitting, states
from wordle_rl.game.players import RandomConsistent
from wordle_rl.game.rules import feedback_code, marks
from wordle_rl.prompts.reasoning import Reasoning


@dataclass
class Said:
    """What a thought says, read from its text alone."""

    placed: dict[int, str] = field(default_factory=dict)
    known: list[tuple[str, int, bool, set[int]]] = field(default_factory=list)
    absent: str = ""
    left: str = ""
    why: str = ""  # fits, tests or nothing
    nothing: bool = False


NOTES = re.compile(r"([a-z_.?]{5})((?:\+[a-z]+[1-5]*!?)*)(?:-([a-z]+))?=(\d+\+?)(✓|x|)", re.ASCII)


def read(text: str) -> Said:
    """The statements of a think block; fails on anything that it does not know."""
    found = NOTES.fullmatch(text.removeprefix("<think>").removesuffix("</think>\n"))
    assert found and text.startswith("<think>") and text.endswith("</think>\n"), text
    pattern, known, absent, left, why = found.groups()
    said = Said(absent=absent or "", left=left, why={"✓": "fits", "x": "tests", "": ""}[why])
    said.placed = {i: letter for i, letter in enumerate(pattern, 1) if letter.isalpha()}
    for letters, places, exact in re.findall(r"\+([a-z]+)([1-5]*)(!?)", known):
        assert len(set(letters)) == 1
        said.known.append((letters[0], len(letters), bool(exact), {int(p) for p in places}))
    said.nothing = not (said.placed or said.known or said.absent)
    return said


def test_every_statement_follows_from_the_clues_and_none_is_left_out():
    reasoning = Reasoning(KNOWLEDGE)
    draw = random.Random(1)
    kinds: Counter[str] = Counter()
    for state, guess, secret in states(150, seed=5):
        said = read(reasoning(state, guess, draw.random()))
        possible = fitting(list(state.clues))
        for word in possible:
            assert all(word[place - 1] == letter for place, letter in said.placed.items())
            for letter, copies, exact, barred in said.known:
                assert word.count(letter) == copies if exact else word.count(letter) >= copies
                assert all(word[place - 1] != letter for place in barred)
            assert not set(word) & set(said.absent)
        pairs = [(c.guess, marks(c.guess, secret)) for c in state.clues]
        assert said.placed == {
            i: g
            for guessed, m in pairs
            for i, (g, mark) in enumerate(zip(guessed, m), 1)  # noqa: B905
            if mark == "✓"
        }
        tried = {letter for guessed, _ in pairs for letter in guessed}
        assert Counter(said.absent) == Counter(tried - set(secret))
        sure = {a: max(min(g.count(a), secret.count(a)) for g, _ in pairs) for a in tried}
        told = Counter(said.placed.values())
        sure = {a: max(n, told[a]) for a, n in sure.items() if n or told[a]}
        for letter, copies, _, barred in said.known:
            told[letter] = max(told[letter], copies)
            if copies > list(said.placed.values()).count(letter):
                yellow = {i for g, m in pairs for i in range(5) if g[i] == letter and m[i] != "✓"}
                assert barred == {i + 1 for i in yellow}
        assert sure == dict(told)
        known_ends = {a for g, _ in pairs for a in g if g.count(a) > secret.count(a) > 0}
        assert known_ends == {letter for letter, _, exact, _ in said.known if exact}
        assert said.nothing == (not state.clues)
        assert_left(said.left, len(possible))
        fits = all(feedback_code(c.guess, guess) == c.feedback for c in state.clues)
        assert said.why == ("fits" if fits else "tests")
        kinds.update(exact=bool(known_ends), doubles=max(sure.values(), default=0) > 1)
        kinds[said.why] += 1
    assert min(kinds["exact"], kinds["doubles"], kinds["fits"], kinds["tests"]) > 2


def assert_left(said: str, left: int) -> None:
    if said.endswith("+"):
        assert int(said[:-1]) <= left < 10 * int(said[:-1]) and left >= 10
    else:
        assert int(said) == left


def test_the_guess_is_not_named_and_every_choice_of_a_teacher_follows_the_same_thought():
    reasoning, teacher = Reasoning(KNOWLEDGE), RandomConsistent(KNOWLEDGE)
    for state, _, _ in states(15, seed=3):
        words = [teacher.pool[i] for i in teacher.choices(state)]
        thoughts = {reasoning(state, word, 0.5) for word in words}
        [thought] = thoughts
        assert not any(word in thought for word in words if word not in state.guesses)
