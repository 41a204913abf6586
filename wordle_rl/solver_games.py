"""Plays the scripted players on every answer: python -m wordle_rl.solver_games.

Writes wordle_rl/reports/solvers.json, which the reports of runs show beside a model. It takes some
20 s, and is needed again only when a player or the original word lists change.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

from collections.abc import Sequence
from typing import Any

from wordle_rl.build_parts import PLAYERS
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws, Stream
from wordle_rl.reports.solvers import FILE, TITLES
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.scripted_actor import ScriptedActor
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.files import write_json
from wordle_rl.runs.paths import module_command
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets


def count_guesses(limit: int | None = None, players: Sequence[str] = tuple(TITLES)) -> Any:
    """The content of the file: player -> secret -> guesses, 7 for a loss.

    limit: only the first secrets, in the order in which eval.py plays words.split=test.
    """
    words = load_words()
    knowledge, rules = Knowledge(words, feedback_table(words)), Rules()
    secrets = split_secrets(words).secrets("all")[:limit]
    found = {}
    for name in players:
        draws = Draws(seed=0, stream=Stream.EVALUATION, first_rollout=0)
        actor = ScriptedActor(player=PLAYERS[name](knowledge), draws=draws)
        games = play(actor, new_games(secrets, words, rules))
        lost = rules.max_turns + 1
        found[name] = {game.secret: game.state.turn if game.won else lost for game in games}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = CommandParser(
        prog=module_command("solver_games"),
        description=f"Play the scripted players on every answer, into {FILE.name}.",
    )
    parser.parse_args(arguments)
    words = load_words()
    digits = {
        name: "".join(str(guesses[answer]) for answer in words.answers)
        for name, guesses in count_guesses().items()
    }
    write_json(FILE, {"words": words.digest, "guesses": digits})
    print(FILE)
    return 0


if __name__ == "__main__":
    run_plain(main)
