"""Folders of runs that nobody trained, and what a page's HTML holds."""

import math
from pathlib import Path
from typing import Any

from tests.helpers.played_games import played, summary_of
from wordle_rl.evaluation.summary import game_record
from wordle_rl.game.rules import Game
from wordle_rl.runs.files import StepLog, json_bytes, write_json

NAME = "20261122-0856_{}"
CONFIG = "seed: 0\ntrainer: {validation_temperature: 0.7}\nsampling: {temperature: 0.9}\n"
WIN_RATE = ("win_rate", "win_rate_low", "win_rate_high")
# A line of groups.jsonl without its step: a readable guess, and one that is not.
GUESS = {
    "game": 1,
    "turn": 0,
    "clues": [],
    "guess": "crane",
    "marks": "x-xx✓",
    "kind": "accepted",
    "parts": {"win": 0.0, "value": 0.75},
    "reward": 0.75,
    "advantage": -0.5,
    "tokens": 2,
    "before": math.log(0.02),
    "after": math.log(0.03),
}
GROUP = {
    "secret": "sleep",
    "kind": "game",
    "turns_used": 0,
    "algorithm": "grpo",
    "credit": "turn",
    "discount": 0.0,
    "temperature": 0.7,
    "by_letter": False,
    "groups": 64,
    "means": [0.8, 0.6],
    "guesses": [
        GUESS,
        {**GUESS, "turn": 1, "guess": None, "marks": None, "kind": "unparsable", "after": None}
        | {"clues": [["crane", "x-xx✓"]]},
    ],
}
BEFORE = [
    ("crane", ["slate", "crane"]),
    ("sleep", ["abbey", None, "mound", "abbey", "slate", "zzzzz"]),
    ("crept", ["crane", "abbey", "mound", "slate", "steel", "crane"]),
]
AFTER = [(secret, ["slate" if secret == "crane" else "crane", secret]) for secret, _ in BEFORE]


def games(plays: Any) -> list[Game]:
    return [played(secret, guesses) for secret, guesses in plays]


def make_run(
    root: Path, name: str = "demo", *, before: Any = BEFORE, after: Any = AFTER, **manifest: Any
) -> Path:
    """A finished run of 40 steps with reports on the test secrets."""
    folder = root / NAME.format(name)
    folder.mkdir(parents=True)
    write_json(
        folder / "manifest.json",
        {
            "status": "finished",
            "started": "2026-11-22T08:56:39+00:00",
            "seconds": 120.0,
            "command": ["train.py", "model=mini"],
            "choices": {"model": "mini", "algorithm": "grpo"},
            "seeds": {"seed": 0},
            "digests": {"words": "unknown"},
            **manifest,
        },
    )
    (folder / "config.yaml").write_text(CONFIG)
    log = StepLog(folder / "metrics.jsonl")
    validations = StepLog(folder / "validation_games.jsonl")
    for step in range(0, 41, 10):
        plays = games(before if step < 20 else after)
        log.append(
            step,
            {
                "train/games": 512.0,
                "train/wins": 100.0 + 5 * step,
                "reward/mean": step / 40,
                "time/step": 2.0,
                "time/decode": 1.5,
                "memory/resident_gb": 0.5,
                "total/games": 512 * step,
                **{f"val/{name}": summary_of(plays)[name] for name in WIN_RATE},
                "val/mean_guesses_with_losses": 5.0 - step / 40,
                "val/reward": step / 40,
                "val/reward_standard_error": 0.1,
                "skill/consistency": 0.5,
                "train/non_words": 0.1,
                "val/skill/consistency": 0.6,
                "val/skill/turn_1/bits_ratio": 0.7,
            },
        )
        validations.extend(step, map(game_record, plays))
    write_report(folder, "start", before, step=0)
    write_report(folder, "best", after, step=40)
    return folder


def write_report(folder: Path, name: str, plays: Any, *, step: int) -> None:
    game_list = games(plays)
    records = ({"step": step, "split": "test", **game_record(game)} for game in game_list)
    (folder / f"{name}_games.jsonl").write_bytes(b"".join(map(json_bytes, records)))
    summary = summary_of(game_list) | {"lineage": "lineage: untrained.", "drawn": "greedy"}
    file = "start.json" if name == "start" else "summary.json"
    write_json(folder / file, summary | ({} if name == "start" else {"exported_step": step}))
