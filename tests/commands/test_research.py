"""The scripts in research/: their numbers are of the games that eval.py and training played."""

from __future__ import annotations

import importlib.util
import json

import pandas as pd
import pytest

from wordle_rl.runs.paths import ROOT


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "research" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cheats():
    return load("cheats")


def record(step: int, secret: str, answers: str, reward: float | None = None) -> str:
    """A line of validation_games.jsonl; ! marks a non-word, and - an answer without a guess."""
    words = answers.split()
    kinds = {"-": "unparsable", "!": "not_a_word"}
    line = {
        "step": step,
        "secret": secret,
        "won": words[-1] == secret,
        "guesses": [None if word == "-" else word.rstrip("!") for word in words],
        "kinds": [kinds.get(word[-1], "accepted") for word in words],
        "texts": ["<guess>x" if word == "-" else f"<guess>{word}</guess>" for word in words],
    }
    if reward is not None:
        line["reward"] = {"total": reward, "turns": []}
    return json.dumps(line)


def rows(table: pd.DataFrame) -> list[str]:
    return [" ".join(map(str, row[1:])) for row in table.to_numpy()]


def test_cheats_of_a_run_are_counted_as_by_hand(cheats, tmp_path):
    lines = [
        record(0, "slate", "crane slate", 3.0),
        record(0, "mound", "crane abbey", 1.0),
        record(9, "slate", "crane - boofy! boofy! boofy!", 4.0),
        record(9, "mound", "crane mound", 2.0),
    ]
    (tmp_path / "validation_games.jsonl").write_text("\n".join(lines) + "\n")
    answers = cheats.read(tmp_path)
    first, last = rows(cheats.count(answers))
    assert first == "0 2 50.0 2.00 0.0 0.0 50.0 slate 50 % 50.0 0.0 0.0 0.0 0.0 -"
    # 7 answers, 2 of them repeats, 3 non-words, 1 unreadable. Of the 5 later ones mound at turn 2
    # and boofy at turns 3 to 5 are recited. The game on slate was lost for more reward.
    assert last == "9 2 50.0 3.00 28.6 0.0 60.0 boofy 60 % 80.0 42.9 14.3 50.0 0.0 50.0"
    [paid] = cheats.best_paid_losses(answers, 3)
    assert paid == '  slate, reward 4.00: crane "<guess>x" boofy! boofy! boofy!'
