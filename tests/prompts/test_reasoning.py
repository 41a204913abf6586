"""Thoughts before a teacher's guess are true, varied, and leave the guess itself to the answer."""

import random
import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.helpers.thoughts import KNOWLEDGE, fitting, states
from wordle_rl.game.players import RandomConsistent
from wordle_rl.game.rules import feedback_code, marks
from wordle_rl.prompts.reasoning import Reasoning

lengths = pytest.mark.parametrize("length", ["notes", "brief"])


@dataclass
class Said:
    """What a thought says, read from its text alone."""

    placed: dict[int, str] = field(default_factory=dict)
    known: list[tuple[str, int, bool, set[int]]] = field(default_factory=list)
    absent: str = ""
    left: str = ""
    why: str = ""  # fits, tests or nothing
    rest: float | None = None
    nothing: bool = False


NOTES = re.compile(r"([a-z_.?]{5})((?:\+[a-z]+[1-5]*!?)*)(?:-([a-z]+))?=(\d+\+?)(✓|x|)", re.ASCII)
LETTER = re.compile(r"(?:(exactly|at least) (\d) )?([a-z])(?: \(not ([1-5](?:, [1-5])*)\))?")


def read(text: str, length: str) -> Said:
    """The statements of a think block; fails on anything that it does not know."""
    block = re.fullmatch(r"<think>([^<>]*)</think>\n", text)
    assert block, text
    return read_notes(block[1]) if length == "notes" else read_english(block[1])


def read_notes(thought: str) -> Said:
    found = NOTES.fullmatch(thought)
    assert found, thought
    pattern, known, absent, left, why = found.groups()
    said = Said(absent=absent or "", left=left, why={"✓": "fits", "x": "tests", "": ""}[why])
    said.placed = {i: letter for i, letter in enumerate(pattern, 1) if letter.isalpha()}
    for letters, places, exact in re.findall(r"\+([a-z]+)([1-5]*)(!?)", known):
        assert len(set(letters)) == 1
        said.known.append((letters[0], len(letters), bool(exact), {int(p) for p in places}))
    said.nothing = not (said.placed or said.known or said.absent)
    return said


def read_english(thought: str) -> Said:
    said = Said()
    for statement in thought.split("; "):
        if statement == "nothing known":
            said.nothing = True
        elif re.fullmatch("[a-z_]{5}", statement):
            said.placed = {i: a for i, a in enumerate(statement, 1) if a != "_"}
        elif statement == "taking such a word":
            said.why = "fits"
        elif found := re.fullmatch(r"testing, leaves about (\d+\.\d)", statement):
            said.why, said.rest = "tests", float(found[1])
        elif found := re.fullmatch(r"(\d+) fits?", statement):
            said.left = found[1]
        elif found := re.fullmatch("no ([a-z](?:, [a-z])*)", statement):
            said.absent = found[1].replace(", ", "")
        else:
            assert statement.startswith("has "), statement
            for item in re.split(r", (?=exactly|at least|[a-z])", statement.removeprefix("has ")):
                letter = LETTER.fullmatch(item)
                assert letter, item
                how, copies, name, places = letter.groups()
                barred = {int(p) for p in re.findall("[1-5]", places or "")}
                said.known.append((name, int(copies or 1), how == "exactly", barred))
    return said


@lengths
def test_every_statement_follows_from_the_clues_and_none_is_left_out(length):
    reasoning = Reasoning(KNOWLEDGE, length)
    draw = random.Random(1)
    kinds: Counter[str] = Counter()
    for state, guess, secret in states(150, seed=len(length)):
        said = read(reasoning(state, guess, draw.random()), length)
        possible = fitting(list(state.clues))
        for word in possible:
            assert all(word[place - 1] == letter for place, letter in said.placed.items())
            for letter, copies, exact, barred in said.known:
                assert word.count(letter) == copies if exact else word.count(letter) >= copies
                assert all(word[place - 1] != letter for place in barred)
            assert not set(word) & set(said.absent)
        pairs = [(c.guess, marks(c.guess, secret)) for c in state.clues]
        assert said.placed == {
            i: g for guessed, m in pairs for i, (g, mark) in enumerate(zip(guessed, m), 1)  # noqa: B905
            if mark == "✓"
        }  # fmt: skip
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
        if said.rest is not None:
            counts = Counter(feedback_code(guess, word) for word in possible)
            mean = sum(n * n for n in counts.values()) / len(possible)
            assert said.rest == pytest.approx(mean, abs=0.0501)
        kinds.update(["exact"] * bool(known_ends), doubles=max(sure.values(), default=0) > 1)
        kinds[said.why] += 1
    assert min(kinds["exact"], kinds["doubles"], kinds["fits"], kinds["tests"]) > 2


def assert_left(said: str, left: int) -> None:
    if said.endswith("+"):
        assert int(said[:-1]) <= left < 10 * int(said[:-1]) and left >= 10
    else:
        assert int(said) == left


@lengths
def test_the_guess_is_not_named_and_every_choice_of_a_teacher_follows_the_same_thought(length):
    reasoning, teacher = Reasoning(KNOWLEDGE, length), RandomConsistent(KNOWLEDGE)
    for state, _, _ in states(15, seed=3):
        words = [teacher.pool[i] for i in teacher.choices(state)]
        thoughts = {reasoning(state, word, 0.5) for word in words}
        [thought] = thoughts
        assert not any(word in thought for word in words if word not in state.guesses)
