"""What eval.py runs: full games of a run, a model or a scripted player, and of the solvers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from wordle_rl.commands.players import (
    add_run,
    build_contestants,
    build_player,
    build_solvers,
    build_tournament,
    read_settings,
)
from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.summary import write_games, write_summary
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.rules import Game
from wordle_rl.policy.engine import NotFinite
from wordle_rl.rewards.build import build_reward_set
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.terminal import columns, shows_colours


def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, write summary.json and games.jsonl, print the tables. Returns the summary."""
    with user_errors():
        config = add_run(cfg, overrides)
        settings = read_settings(config)
        tournament = build_tournament(config, settings)
        knowledge = tournament.knowledge
        build_player(settings, knowledge)  # a wrong name is refused before anything is printed
        who = settings.run or settings.player or config["model"]["path"]
        many = f"{len(tournament.secrets)} {tournament.split} secrets"
        print(f"evaluation of {who} on {many}", flush=True)
        contestants, computing = build_contestants(config, tournament)
        own = contestants[0].name
        if settings.opener is not None and settings.player != "entropy":
            contestants = [contestant.after(settings.opener) for contestant in contestants]
        if settings.compare:
            rewards = build_reward_set(config["reward"], knowledge.words, knowledge)
            contestants += [
                tournament.scripted(solver, rewards)
                for solver in build_solvers(knowledge)
                if solver.name != own
            ]
    try:
        summary, games = tournament.summary(contestants[0])
        others = [tournament.summary(contestant)[0] for contestant in contestants[1:]]
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")
    except SystemExit as stopped:  # by a signal
        if stopped.code in (130, 143):
            print("stopped before the last game, so nothing was written", file=sys.stderr)
        raise
    if late := sum(one["out_of_time"] for one in (summary, *others)):
        print(f"warning: {late} games ran out of time and count as lost", file=sys.stderr)
    folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    write_games(folder, games)
    summary["computing"] = computing
    summary["compared_with"] = {
        s["player"]: {k: s[k] for k in ("win_rate", "mean_guesses", "mean_guesses_with_losses")}
        for s in others
    }
    written = write_summary(folder, summary)
    shown = choose_games(games, settings.show)
    print(boards_side_by_side(shown, columns(), colour=shows_colours()), f"\n\n{folder}\n")
    print(report_table([summary, *others], columns()))
    if settings.json:
        print(json.dumps(json.loads(written.read_bytes()), ensure_ascii=False))
    return summary


def choose_games(games: Sequence[Game], count: int) -> list[Game]:
    """The games to show: one of a secret, in their order, and up to half of them lost."""
    lost = {game.secret: game for game in reversed(games) if not game.won}
    first = {game.secret: game for game in reversed(games)}
    shown = [game for game in games if lost.get(game.secret) is game][: count // 2]
    seen = {game.secret for game in shown}
    rest = [g for g in games if first[g.secret] is g and g.secret not in seen]
    return shown + rest[: count - len(shown)]
