"""The names of `import wordle_rl`: docs/API.md runs as written, and wrong input is one line."""

import doctest
import importlib.util
import re
import subprocess
import sys

import pytest

from tests.helpers.runs import run, settings
from wordle_rl import board, load_player, score_guess
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import TurnKind
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import WordLists

PAGE = (ROOT / "docs" / "API.md").read_text(encoding="utf-8")
SECTIONS = {
    title: "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    if "```python" in text
}


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    words = WordLists(
        answers=("crane", "crate", "grape", "slate"),
        allowed=("crane", "crate", "grape", "slate", "speed"),
    )
    return Knowledge(words, build_table(words))


@pytest.mark.parametrize("title", SECTIONS)
def test_the_examples_of_the_page_print_what_it_says(title, monkeypatch):
    if title == "Gymnasium" and importlib.util.find_spec("gymnasium") is None:
        pytest.skip("needs gymnasium: pip install -e '.[gym]'")
    monkeypatch.chdir(ROOT)
    example = doctest.DocTestParser().get_doctest(SECTIONS[title], {}, title, "docs/API.md", 0)
    assert example.examples
    output: list[str] = []
    doctest.DocTestRunner().run(example, out=output.append)
    assert not output, "".join(output)


def test_importing_the_package_imports_no_library():
    source = (
        "import sys; before = set(sys.modules); import wordle_rl; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(result.stdout.split()) <= {"wordle_rl", *sys.stdlib_module_names}


def test_the_score_of_a_guess_against_four_words_is_as_by_hand(knowledge):
    # The marks of slate leave crane and grape together:
    # crane xx✓x✓, crate xx✓✓✓, grape xx✓x✓, slate ✓✓✓✓✓.
    score = score_guess("slate", board(), knowledge)
    assert score.bits == pytest.approx(1.5)  # 1/4, 1/4, 1/2
    assert score.expected_candidates == pytest.approx(1.5)
    assert (score.candidates, score.fits, score.candidate) == (4, True, True)
    state = board(("slate", "xx✓x✓"))
    assert score_guess("crate", state, knowledge).fits is False
    assert score_guess("crane", state, knowledge).best_bits == pytest.approx(1.0)
    nonword = score_guess("brave", state, knowledge)
    assert (nonword.kind, nonword.fits, nonword.candidate) == (TurnKind.NOT_A_WORD, True, False)


def test_guesses_depend_on_the_number_of_a_game_and_not_on_the_others():
    player = load_player(player="random")
    boards = [board()] * 8
    guesses = player.guesses(boards)
    assert len(set(guesses)) > 4
    assert player.guesses(boards[3:], first=3) == guesses[3:]
    games = player.play(["crane"] * 8)
    assert [game.turns[0].guess for game in games] == guesses


def test_a_run_is_loaded_with_its_words_rules_rewards_and_prompt(tmp_path, root, capsys):
    overrides = settings(tmp_path, "sft")
    _, folder = run(root, *overrides, "rules.max_turns=3", "trainer.steps=1", "prompt=letters")
    capsys.readouterr()
    player = load_player(run=str(folder), settings=["backend.threads=1"])
    assert (player.rules.max_turns, player.style.name) == (3, "letters")
    assert player.words.name.endswith("words.txt") and "brevity" in player.rewards.components
    games = player.play(player.splits.test)
    assert [game.secret for game in games] == list(player.splits.test)
    assert all(1 <= len(game.turns) <= 3 for game in games)
    assert capsys.readouterr().out == ""
