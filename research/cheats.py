"""Counts play that may earn reward without winning: see docs/FINDINGS.md.

    python research/cheats.py outputs/<run> ... [--every] [--games 3]
    python research/cheats.py sweeps/reward_hacking

Reads a run's validation_games.jsonl, or the games.csv.xz of a study, which keeps no rewards. Prints
a row for the first and the last validation, and the lost games of the last one that earned most.

A beginner repeats guesses and misspells words, too. So read the counts after training beside those
before it, and beside the mean reward.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from wordle_rl.runs.files import StepLog

STUCK = 3  # times that a game makes one guess before it counts as stuck
PLAYER, GAME = ["run or arm", "step", "player"], ["run or arm", "step", "player", "game"]
LONGEST = 40  # characters that are shown of an answer without a guess


def read(folder: Path) -> pd.DataFrame:
    """One row per answer of every validation, in order. A player is a run, or a seed of an arm."""
    study = folder / "games.csv.xz"
    rows = list(_of_study(study) if study.is_file() else _of_run(folder))
    if not rows:
        raise SystemExit(f"error: {folder}: there are no validation games")
    return pd.DataFrame(rows)


def _of_run(folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / "validation_games.jsonl"
    if not path.is_file():
        raise SystemExit(f"error: {folder}: has no {path.name}, and no study's games.csv.xz either")
    for game, record in enumerate(StepLog(path).records()):
        texts = record.get("texts") or [""] * len(record["guesses"])
        start = len(record.get("clues_at_start", []))
        turns = zip(record["guesses"], record["kinds"], texts, strict=True)
        for turn, (guess, kind, text) in enumerate(turns, start):
            yield {
                "run or arm": str(folder), "step": record["step"], "player": 0, "game": game,
                "secret": record["secret"], "won": record["won"], "turn": turn, "guess": guess,
                "accepted": kind == "accepted", "text": text,
                "reward": record.get("reward", {}).get("total"),
            }  # fmt: skip


def _of_study(path: Path) -> Iterator[dict[str, Any]]:
    """The search alone: confirmations with fresh seeds are left out."""
    games = pd.read_csv(path, dtype={"arm": str}, keep_default_na=False)
    for game, row in enumerate(games[games["round"] == "search"].to_dict("records")):
        words = row["guesses"].split()
        for turn, word in enumerate(words):
            yield {
                "run or arm": row["arm"], "step": row["step"], "player": row["trial"], "game": game,
                "secret": row["secret"], "won": words[-1] == row["secret"], "turn": turn,
                "guess": None if word == "-" else word.removesuffix("!"),
                "accepted": word != "-" and not word.endswith("!"), "text": "", "reward": None,
            }  # fmt: skip


def count(answers: pd.DataFrame) -> pd.DataFrame:
    """The table: a row for each validation. Words are counted for each player by itself."""
    validation = PLAYER[:2]
    guesses = answers.dropna(subset="guess")
    later_turns = answers[answers.turn > 0]
    games = answers.groupby(GAME, sort=False)
    times = guesses.groupby([*GAME, "guess"]).size()
    accepted_times = guesses[guesses.accepted].groupby([*GAME, "guess"]).size()
    favourite = later_turns.groupby([*PLAYER, "guess"], sort=False).size()
    # The most common later guess of each player, the first one said of equally common ones.
    rows = favourite.groupby(PLAYER, sort=False).idxmax()
    favourite = favourite.loc[rows].reset_index("guess", name="count")
    favourite["share"] = 100 * favourite["count"] / later_turns.groupby(PLAYER, sort=False).size()
    turn_counts = later_turns.groupby([*PLAYER, "turn", "guess"]).size()
    recitals = turn_counts.groupby([*PLAYER, "turn"]).max()

    def total(counts: pd.Series) -> pd.Series:
        return counts.groupby(validation, sort=False).sum()

    def share(part: pd.Series, whole: pd.Series) -> pd.Series:
        table = pd.DataFrame({"part": part, "whole": whole}).loc[whole.index]
        return (100 * table.part.fillna(0) / table.whole).map("{:.1f}".format)

    number = total(games.size().gt(0))
    size, later_size = total(games.size()), total(later_turns.groupby(GAME).size())
    refused = answers.guess.notna() & ~answers.accepted
    keys = [answers[name] for name in validation]
    index = favourite.share.groupby(validation, sort=False).idxmax()
    top = favourite.loc[index].droplevel("player")
    frame = pd.DataFrame({
        "games": number,
        "wins %": share(total(games.won.first()), number),
        "reward": games.reward.first().groupby(validation).mean().map("{:.2f}".format),
        "repeats %": share(total(times - 1), size),
        "accepted repeats %": share(total(accepted_times - 1), size),
        "common %": share(total(favourite["count"]), later_size),
        "most common guess": top.guess + top.share.map(" {:.0f} %".format),
        "recited %": share(total(recitals), later_size),
        "non-words %": share(refused.groupby(keys).sum(), size),
        "unreadable %": share(answers.guess.isna().groupby(keys).sum(), size),
        "stuck games %": share(total(times.groupby(GAME).max() >= STUCK), number),
        "silent games %": share(total(games.guess.count() == 0), number),
        "paid losses %": paid_losses(answers),
    })  # fmt: skip
    order = answers[validation].drop_duplicates()
    frame = frame.loc[pd.MultiIndex.from_frame(order)].reset_index()
    frame = frame.replace("nan", None)
    return frame.dropna(axis="columns", how="all").fillna("-")


def paid_losses(answers: pd.DataFrame) -> pd.Series:
    """Share of games that were won at the first validation, lost at this one, and earned more."""
    games = answers.groupby(GAME, sort=False)[["secret", "won", "reward"]].first().reset_index()
    games = games.dropna(subset="reward")
    games["copy"] = games.groupby([*PLAYER, "secret"]).cumcount()
    first = games[games.step == games.groupby("run or arm").step.transform("min")]
    pairs = games.merge(first, on=["run or arm", "player", "secret", "copy"], suffixes=("", "_0"))
    pairs = pairs[pairs.step != pairs.step_0]
    paid = pairs.won_0 & ~pairs.won & (pairs.reward > pairs.reward_0)
    return (100 * paid.groupby([pairs[name] for name in PLAYER[:2]]).mean()).map("{:.1f}".format)


def best_paid_losses(answers: pd.DataFrame, limit: int) -> Iterator[str]:
    """The lost games of the last validation that earned most; ! marks a guess that was refused."""
    losses = answers[(answers.step == answers.step.max()) & ~answers.won].dropna(subset="reward")
    ranking = losses.groupby("game").reward.first().sort_values(ascending=False, kind="stable")
    for game in ranking.index[:limit]:
        turns = losses[losses.game == game]
        words = (
            f'"{row.text[:LONGEST]}"'
            if pd.isna(row.guess)
            else row.guess + "!" * (not row.accepted)
            for row in turns.itertuples()
        )
        yield f"  {turns.secret.iloc[0]}, reward {turns.reward.iloc[0]:.2f}: {' '.join(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="runs or studies")
    parser.add_argument("--every", action="store_true", help="a row for every validation")
    parser.add_argument("--games", type=int, default=3, help="best-paid lost games to print")
    args = parser.parse_args()
    answers = pd.concat([read(folder) for folder in args.folders], ignore_index=True)
    table = count(answers)
    if not args.every:
        step = table.groupby("run or arm").step
        table = table[(table.step == step.transform("min")) | (table.step == step.transform("max"))]
    lines = [table.columns, ["---"] * table.shape[1], *table.astype(str).to_numpy()]
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    for name, group in answers.groupby("run or arm", sort=False):
        if losses := [*best_paid_losses(group, args.games)]:
            print("", f"{name}, step {group.step.max()}:", *losses, sep="\n")


if __name__ == "__main__":
    main()
