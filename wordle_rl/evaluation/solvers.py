"""The scripted players on any secrets of the original lists, without playing: solvers.json.

The file has the number of guesses of each player on every answer, as digits in alphabetical order
of the answers, 7 for a loss. A slow test plays all of them again and compares.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.results import count_results
from wordle_rl.words.lists import load_words

FILE = Path(__file__).with_name("solvers.json")
MAX_TURNS = 6


@lru_cache(maxsize=1)
def _read_file() -> tuple[str, dict[str, dict[str, int]]]:
    """The digest of the original lists, and player -> secret -> guesses."""
    record, answers = json.loads(FILE.read_text(encoding="utf-8")), load_words().answers
    return record["words"], {
        name: dict(zip(answers, map(int, digits), strict=True))
        for name, digits in record["guesses"].items()
    }


def solver_results(
    words: str | None, secrets: Sequence[str] | None, max_turns: int, hard_mode: bool
) -> dict[str, dict[str, Any]]:
    """What each player, by its option's name, makes of some secrets, by wins.

    words: digest of the lists. secrets: None for all answers. Empty for other lists or rules.
    """
    digest, players = _read_file()
    answers = [*players["entropy"]] if secrets is None else [*dict.fromkeys(secrets)]
    plain = words == digest and max_turns == MAX_TURNS and not hard_mode
    if not (plain and answers and players["entropy"].keys() >= {*answers}):
        return {}
    results = {
        name: {"games": len(answers)}
        | count_results([guesses[secret] for secret in answers], answers, MAX_TURNS)
        for name, guesses in players.items()
    }
    return dict(sorted(results.items(), key=lambda item: item[1]["win_rate"]))
