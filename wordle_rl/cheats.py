"""Counts cheats in the validation games of runs: python -m wordle_rl.cheats outputs/<run> ...

Prints a table with a row for the first and the last validation, and below it the lost games of the
last one that earned most. Takes studies as well, such as sweeps/reward_hacking, with a row for each
arm. A study keeps no rewards, so its rows lack the columns that need them.
docs/REWARD_HACKING.md explains the columns.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.cheats import (
    AnsweredGame,
    Cheats,
    count_cheats,
    count_paid_losses,
)
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.paths import module_command
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries, printable

_GAMES = "validation_games.jsonl"
_HEAD = ("run or arm", "step", "games", "wins %", "reward", "repeats %", "accepted repeats %",
         "common %", "most common guess", "recited %", "non-words %", "unreadable %",
         "stuck games %", "silent games %", "paid losses %")  # fmt: skip
_ENTRIES = {"secret": str, "won": bool, "guesses": list[str | None], "kinds": list[str]}
_NONE = "-"
_LONGEST = 40  # characters that are shown of an answer without a guess
_PLAYED = ("run or arm", "step", "wins %", "repeats %", "accepted repeats %", "common %",
           "most common guess", "recited %", "non-words %", "stuck games %")  # fmt: skip
_PLAY = """\
Play at each validation, all seeds of an arm together:

- Repeats: answers that repeat a guess of their game, whether it was accepted or not. They are a
  share of all answers together. The effects above are means of games, and so differ a little.
- Accepted repeats: repeats of a word that had been accepted.
- Common: answers after the first turn that are the seed's most common one. Beside it is the guess
  of the seed that says one guess most, with that seed's share.
- Recited: answers after the first turn that are the most common guess of their turn.
- Non-words: guesses that the rules refused.
- Stuck: games that say one word three times or more."""
# Name, step, and the games of each player: one of a run, one of each seed of an arm.
Validation = tuple[str, int, list[list[AnsweredGame]]]


def read_run(folder: Path) -> list[Validation]:
    """All validations of a run, oldest first. Raises FolderError."""
    path = folder / _GAMES
    if not path.is_file():
        raise FolderError(f"{folder}: has no {_GAMES}, and no study's games.csv.xz either")
    steps: dict[int, list[AnsweredGame]] = {}
    for record in StepLog(path).records():
        steps.setdefault(record["step"], []).append(_read_game(path, record))
    if not steps:
        raise FolderError(f"{path}: no games yet")
    return [(str(folder), step, [games]) for step, games in steps.items()]


def _read_game(path: Path, record: dict[str, Any]) -> AnsweredGame:
    place = f"{path}: step {record['step']}"
    check_all_entries(place, record, _ENTRIES)
    check_entries(place, record, {"reward": dict, "clues_at_start": list, "texts": list[str]})
    turns = [record["guesses"], record["kinds"], record.get("texts", record["guesses"])]
    if len(set(map(len, turns))) != 1:
        raise FolderError(f"{place}: guesses, kinds and texts must have the same length")
    check_entries(place, record.get("reward", {}), {"total": float})
    return AnsweredGame(
        secret=record["secret"],
        won=record["won"],
        guesses=tuple(record["guesses"]),
        accepted=tuple(kind == "accepted" for kind in record["kinds"]),
        given=len(record.get("clues_at_start", [])),
        reward=record.get("reward", {}).get("total"),
        texts=tuple(record.get("texts", [])),
    )


def read_study(folder: Path) -> dict[str, list[Validation]]:
    """The validations of each arm that a study keeps, with a player for each seed.

    Confirmations with fresh seeds are left out. Raises FolderError.
    """
    from wordle_rl.sweeps.games import REFUSED, UNREADABLE, read_games

    arms: dict[str, dict[int, dict[int, list[AnsweredGame]]]] = {}
    for (confirms, trial), games in read_games(folder).items():
        for game in () if confirms else games:
            words, steps = game.guesses, arms.setdefault(game.arm, {})
            steps.setdefault(game.step, {}).setdefault(trial, []).append(
                AnsweredGame(
                    secret=game.secret,
                    won=game.won,
                    guesses=tuple(
                        None if word == UNREADABLE else word.removesuffix(REFUSED) for word in words
                    ),
                    accepted=tuple(w != UNREADABLE and not w.endswith(REFUSED) for w in words),
                )
            )
    return {
        arm: [(arm, step, [*players.values()]) for step, players in sorted(steps.items())]
        for arm, steps in arms.items()
    }


def format_table(
    runs: Sequence[Sequence[Validation]], *, every: bool, head: Sequence[str] = _HEAD
) -> str:
    """A row for the first and the last validation of each run, or for every one.

    head: the columns to show. Columns that have nothing in any row are left out.
    """
    rows = []
    for validations in runs:
        ends = [validations[0], validations[-1]]
        for validation in validations if every or len(validations) < len(ends) else ends:
            rows.append(_format_row(validation, validations[0]))
    shown = [name for name in head if {row[name] for row in rows} != {_NONE}]
    lines = [shown, ["---"] * len(shown), *([row[name] for name in shown] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def describe_play(folder: Path) -> list[str]:
    """Paragraphs for the page of a study: a row for every validation of each arm, explained."""
    return [_PLAY, format_table([*read_study(folder).values()], every=True, head=_PLAYED)]


def _format_row(validation: Validation, first: Validation) -> dict[str, str]:
    """The entry of each column.

    Counts are taken of each player by itself, because each has words of its own to recite.
    """
    name, step, players = validation
    found = [count_cheats(games) for games in players]

    def share(part: Callable[[Cheats], int], whole: Callable[[Cheats], int]) -> str:
        parts, wholes = sum(map(part, found)), sum(map(whole, found))
        return f"{100 * parts / wholes:.1f}" if wholes else _NONE

    rewards = [cheats.reward for cheats in found if cheats.reward is not None]
    paid = _NONE
    if step != first[1] and rewards:
        [before], [after] = first[2], players  # only runs have rewards, and they have one player
        losses = count_paid_losses(before, after)
        paid = f"{100 * losses.paid_losses / losses.pairs:.1f}" if losses.pairs else _NONE
    entries = [
        name, str(step), str(sum(cheats.games for cheats in found)),
        share(lambda c: c.wins, lambda c: c.games),
        f"{rewards[0]:.2f}" if rewards else _NONE,
        share(lambda c: c.repeats, lambda c: c.answers),
        share(lambda c: c.accepted_repeats, lambda c: c.answers),
        share(lambda c: c.common_guesses, lambda c: c.later_answers),
        _format_common(found),
        share(lambda c: c.recited, lambda c: c.later_answers),
        share(lambda c: c.non_words, lambda c: c.answers),
        share(lambda c: c.unreadable, lambda c: c.answers),
        share(lambda c: c.stuck_games, lambda c: c.games),
        share(lambda c: c.silent_games, lambda c: c.games),
        paid,
    ]  # fmt: skip
    return dict(zip(_HEAD, entries, strict=True))


def _format_common(found: Sequence[Cheats]) -> str:
    """The most common later guess, and its share with the player who says one guess most."""
    said = [c for c in found if c.common_guess is not None and c.later_answers]
    if not said:
        return _NONE
    most = max(said, key=lambda c: c.common_guesses / c.later_answers)
    share = 100 * most.common_guesses / most.later_answers
    return f"{most.common_guess} {share:.0f} %"


def best_paid_losses(games: Sequence[AnsweredGame], count: int) -> Iterator[str]:
    """A line for each of the lost games that earned most.

    ! marks a guess that was refused. An answer without a guess is in quotes.
    """
    paid = [(game.reward, game) for game in games if not game.won and game.reward is not None]
    for reward, game in sorted(paid, key=lambda pair: pair[0], reverse=True)[:count]:
        texts = game.texts or ("",) * len(game.guesses)
        turns = zip(game.guesses, game.accepted, texts, strict=True)
        words = [
            f'"{text[:_LONGEST]}"' if guess is None else guess if accepted else f"{guess}!"
            for guess, accepted, text in turns
        ]
        yield f"{game.secret}, reward {reward:.2f}: {' '.join(words)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = CommandParser(
        prog=module_command("cheats"), description="Count cheats in the validation games of runs."
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of studies"
    )
    parser.add_argument("--every", action="store_true", help="a row for every validation")
    parser.add_argument(
        "--games", type=int, default=3, metavar="N",
        help="best-paid lost games to print of each run (0 or more, default 3)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.games < 0:
        parser.error(f"--games must be 0 or more, not {options.games}")
    with user_errors():
        runs: list[list[Validation]] = []
        for folder in options.runs:
            study = (folder / "games.csv.xz").is_file()
            runs += read_study(folder).values() if study else [read_run(folder)]
        lines = [format_table(runs, every=options.every)]
        for name, step, players in (validations[-1] for validations in runs):
            shown = [*best_paid_losses(players[0], options.games)]
            if shown:
                lines += ["", f"{name}, step {step}:", *(f"  {line}" for line in shown)]
    print(printable("\n".join(lines)))
    return 0


if __name__ == "__main__":
    run_plain(main)
