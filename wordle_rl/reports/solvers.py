"""The scripted players on any secrets of the original lists, without playing: solvers.json.

The file has the number of guesses of each player on every answer, as digits in alphabetical order
of the answers, 7 for a loss. `python -m wordle_rl.solver_games` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from wordle_rl.reports.results import MAX_TURNS, Estimate, Result, summarise_guesses
from wordle_rl.words.lists import load_words

FILE = Path(__file__).with_name("solvers.json")
TITLES = {  # name of algorithm.player -> title on a page
    "entropy": "greedy entropy, knows the answers",
    "entropy_allowed": "greedy entropy, any allowed word",
    "random_consistent": "random answer that fits all clues",
    "random_consistent_allowed": "random allowed word that fits all clues",
}
OPTIMUM = Estimate(value=3.421)  # mean guesses over all answers, with no loss
OPTIMUM_TITLE = "optimum (published, all 2,315 answers)"


@lru_cache(maxsize=1)
def _guesses() -> tuple[str, dict[str, dict[str, int]]]:
    """The digest of the original lists, and player -> secret -> guesses."""
    known, answers = json.loads(FILE.read_text(encoding="utf-8")), load_words().answers
    return known["words"], {
        name: dict(zip(answers, map(int, digits), strict=True))
        for name, digits in known["guesses"].items()
    }


def are_known(words_digest: str | None, max_turns: int) -> bool:
    """Whether the file is about these word lists and this number of turns."""
    return max_turns == MAX_TURNS and words_digest == _guesses()[0]


def all_answers() -> tuple[str, ...]:
    """The answers of the original lists."""
    return tuple(next(iter(_guesses()[1].values())))


def play_solvers(secrets: Sequence[str]) -> dict[str, Result]:
    """Each player's result on some secrets; empty when there are none, or one is no answer."""
    distinct = list(dict.fromkeys(secrets))
    found = {}
    for name, guesses in _guesses()[1].items():
        if not distinct or any(secret not in guesses for secret in distinct):
            continue
        needed = [guesses[secret] for secret in distinct]
        wins, mean = summarise_guesses(needed, distinct, MAX_TURNS)
        found[name] = Result(label=TITLES[name], games=len(needed), wins=wins, guesses=mean)
    return found
