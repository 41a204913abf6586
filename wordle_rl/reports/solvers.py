"""The scripted players on any secrets of the original lists, without playing: solvers.json.

The file has the number of guesses of each player on every answer, as digits in alphabetical order
of the answers, 7 for a loss. A slow test plays all of them again and compares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from wordle_rl.evaluation.summary import count_results
from wordle_rl.reports.run import MAX_TURNS, WINS, Estimate, Result, Run
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


def solvers_of(run: Run, secrets: Sequence[str] | None = None) -> list[Result]:
    """Each player's result, by wins.

    secrets: that were played, None for all answers. Empty for other word lists or rules.
    """
    digest, players = _known()
    known = run.manifest.get("digests", {}).get("words") == digest
    hard = any(one.measures.get("rules", {}).get("hard_mode") for one in run.reports)
    if not known or hard or any(one.max_turns != MAX_TURNS for one in run.reports):
        return []
    played = [*players["entropy"]] if secrets is None else [*dict.fromkeys(secrets)]
    if not played or any(secret not in players["entropy"] for secret in played):
        return []
    found = []
    for name, guesses in players.items():
        counted = count_results([guesses[secret] for secret in played], played, MAX_TURNS)
        found.append(Result(label=TITLES[name], measures={"games": len(played), **counted}))
    return sorted(found, key=lambda one: one.measures[WINS])
