"""The scripted players on any secrets of the original lists, without playing: solvers.json.

The file has the number of guesses of each player on every answer, as digits in alphabetical order
of the answers, 7 for a loss. A slow test plays all of them again and compares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from wordle_rl.reports.run import MAX_TURNS, Estimate, Result, Run, summarise
from wordle_rl.words.lists import load_words

FILE = Path(__file__).with_name("solvers.json")
TITLES = {  # name of algorithm.player -> title on a page
    "entropy": "greedy entropy, knows the answers",
    "entropy_allowed": "greedy entropy, any allowed word",
    "random_consistent": "random answer that fits all clues",
    "random_consistent_allowed": "random allowed word that fits all clues",
}
OPTIMUM = Estimate(3.421)  # mean guesses over all answers, with no loss
OPTIMUM_TITLE = "optimum (published, all 2,315 answers)"


@lru_cache(maxsize=1)
def _known() -> tuple[str, dict[str, dict[str, int]]]:
    """The digest of the original lists, and player -> secret -> guesses."""
    known, answers = json.loads(FILE.read_text(encoding="utf-8")), load_words().answers
    return known["words"], {
        name: dict(zip(answers, map(int, digits), strict=True))
        for name, digits in known["guesses"].items()
    }


def solvers_of(run: Run, secrets: Sequence[str] | None = None) -> dict[str, Result]:
    """Each player's result, teachers of the run marked; empty for other word lists or rules.

    secrets: that were played, None for all answers.
    """
    digest, players = _known()
    hard = any(result.hard_mode for result in (*run.results, *run.reports))
    if hard or run.max_turns != MAX_TURNS or run.manifest.get("digests", {}).get("words") != digest:
        return {}
    found = {}
    for name, guesses in players.items():
        played = [*guesses] if secrets is None else [*dict.fromkeys(secrets)]
        if not played or any(secret not in guesses for secret in played):
            return {}
        wins, mean = summarise([guesses[secret] for secret in played], played, MAX_TURNS)
        title = f"teacher: {TITLES[name]}" if name in run.teachers else TITLES[name]
        found[name] = Result(label=title, games=len(played), wins=wins, guesses=mean)
    return found
