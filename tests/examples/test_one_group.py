"""Rewards, advantages and probabilities agree in the example and in its page, docs/GRPO.md."""

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.helpers.examples import load_example
from wordle_rl.runs.paths import ROOT

FILE = ROOT / "examples" / "one_group.py"
PAGE = (ROOT / "docs" / "GRPO.md").read_text(encoding="utf-8")


KINDS = {
    "turn": int,
    "game": int,
    "word": str,
    "marks": str,
    "reward": float,
    "mean": float,
    "advantage": float,
    "tokens": int,
    "before": float,
    "after": float,
}
Row = dict[str, Any]


def read_table(text: str) -> list[Row]:
    """The rows of a printed group."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [
        {name: kind(cell) for (name, kind), cell in zip(KINDS.items(), row, strict=True)}
        for row in cells
    ]


@pytest.fixture(scope="module")
def printed() -> str:
    """What the example prints for the page's seed."""
    module = load_example(FILE)
    return "\n".join(module.describe_group(module.build_step(2, None)))


@pytest.fixture(params=["page", pytest.param("run", marks=pytest.mark.slow)])
def rows(request: pytest.FixtureRequest) -> list[Row]:
    return read_table(PAGE if request.param == "page" else request.getfixturevalue("printed"))


def test_an_advantage_is_the_distance_from_the_groups_mean_in_standard_deviations(rows):
    turns = defaultdict(list)
    for row in rows:
        turns[row["turn"]].append(row)
    assert sorted({row["game"] for row in rows}) == [1, 2, 3, 4] and len(turns[1]) == 4
    for group in turns.values():
        rewards = np.array([row["reward"] for row in group])
        means = [row["mean"] for row in group]
        assert means == pytest.approx([rewards.mean()] * len(means), abs=1e-4)
        spread = rewards.std(ddof=1) if len(rewards) > 1 else 0.0
        expected = (rewards - rewards.mean()) / spread if spread > 1e-4 else 0 * rewards
        advantages = [row["advantage"] for row in group]
        assert advantages == pytest.approx(expected.tolist(), abs=2e-3)
    assert {row["advantage"] for row in turns[1]} != {0.0}


def test_better_guesses_become_likelier_and_worse_ones_less_likely(rows):
    subset = [row for row in rows if abs(row["advantage"]) > 0.3]
    signs = [np.sign(row["after"] - row["before"]) == np.sign(row["advantage"]) for row in subset]
    assert len(subset) >= 6 and np.mean(signs) >= 0.8


def test_the_page_says_what_its_table_says():
    rows = read_table(PAGE)
    gains, losses = ([row for row in rows if row["advantage"] * sign > 0] for sign in (1, -1))
    assert len(gains) == len(losses) == 6
    assert all(row["after"] > row["before"] for row in gains)
    assert all(row["after"] < row["before"] for row in losses)
    win = next(row for row in rows if row["word"] == "BUTCH" and row["turn"] == 3)
    assert win["reward"] == pytest.approx(0.6531 + 0.5 + 0.15, abs=1e-4)
    rewards = np.array([row["reward"] for row in rows if row["turn"] == 1])
    assert rewards.std(ddof=1) == pytest.approx(0.160, abs=5e-4)
    assert f"python examples/{FILE.name} --seed 2" in PAGE


KL_SECTION = " ".join(PAGE.split("## KL and beta")[1].split("\n## ")[0].split())


def test_the_number_beside_beta_is_that_of_the_table():
    [botch] = [row for row in read_table(PAGE) if row["word"] == "BOTCH"]
    ratio = botch["before"] / botch["after"]
    bracket = ratio - 1 - np.log(ratio)
    assert f"{ratio:.3f} - 1 - log {ratio:.3f} = {bracket:.3f}" in PAGE
    assert f"{0.04 * bracket:.3f}" in KL_SECTION


def test_the_wins_beside_beta_are_those_of_the_study():
    games: Any = pd.read_csv(ROOT / "sweeps" / "kl" / "games.csv.xz", keep_default_na=False)
    shares = games.assign(won=games.guesses.str.split().str[-1] == games.secret)
    wins = 100 * shares.groupby(["arm", "step"]).won.mean()
    places = (("none", 0), ("none", 16), ("loss", 16), ("reward", 16))
    assert {f"{wins[place]:.0f} %" for place in places} <= set(re.findall(r"\d+ %", KL_SECTION))
    assert str(games.secret.nunique()) in KL_SECTION
    assert games.seed.nunique() == 6
