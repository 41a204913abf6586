"""What eval.py runs: full games of a run, a model or a scripted player, and of the solvers."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from wordle_rl.commands.eval_players import (
    LoadedPlayer,
    build_players,
    build_solvers,
    build_tournament,
    enter,
    learnt_sampling,
    read_settings,
)
from wordle_rl.evaluation.boards import boards_side_by_side, columns, shows_colours
from wordle_rl.evaluation.summary import game_record, summarise
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.rules import Game
from wordle_rl.policy.engine import NotFinite
from wordle_rl.rewards.scoring import build_reward_set
from wordle_rl.rollouts.play import build_decoder
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.files import json_bytes, plain, write_bytes, write_json
from wordle_rl.runs.folder import RunFolder, make_outputs
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import Amount, announce
from wordle_rl.training.progress import GameCount


def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, write summary.json and games.jsonl, print the tables. Returns the summary."""
    with user_errors():
        config, settings = read_settings(cfg, overrides)
        make_outputs(ROOT / settings.output_dir)
        tournament = build_tournament(config, settings)
        knowledge = tournament.knowledge
        if tournament.settings.opener:
            print(f"the first guess of every game is {tournament.settings.opener.upper()}")
        players, computing = build_players(config, tournament)
        own = players[0].name
        decoder = None if settings.player else build_decoder(tournament.sampling, knowledge)
        if settings.compare:
            rewards = build_reward_set(config["reward"], knowledge)
            for solver in build_solvers(knowledge, decoder):
                if solver.name != own:
                    players.append(enter(solver, tournament, rewards))
    try:
        summary, games = play_all(players[0])
        others = [play_all(player)[0] for player in players[1:]]
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")
    except SystemExit as stopped:  # by a signal
        if stopped.code in (130, 143):
            print("stopped before the last game, so nothing was written", file=sys.stderr)
        raise
    folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    write_bytes(folder / "games.jsonl", b"".join(map(json_bytes, map(game_record, games))))
    summary["computing"] = computing
    summary["opener"] = tournament.settings.opener
    summary["decoder"] = decoder and decoder.name  # its row is in compared_with
    summary["compared_with"] = {
        s["player"]: {k: s[k] for k in ("win_rate", "mean_guesses", "mean_guesses_with_losses")}
        for s in others
    }
    write_json(folder / "summary.json", summary)
    shown = choose_games(games, settings.show)
    print(boards_side_by_side(shown, columns(), colour=shows_colours()))
    print(f"\nwritten to {shorten(folder)}\n")
    print(report_table([summary, *others], columns()))
    if learnt := learnt_sampling(settings, tournament.sampling):
        asked = f"sampling.grammar={learnt.grammar}"
        row = "the row below it has this grammar" if settings.compare else f"add {asked}"
        print(f"\nnote: the run trained with {asked}; here any text was allowed, {row}")
    if settings.json:
        print(json.dumps(plain(summary), ensure_ascii=False))
    return summary


def play_all(player: LoadedPlayer) -> tuple[dict[str, Any], list[Game]]:
    """Play all games of the player's tournament. Returns the summary and the games."""
    name, samples = player.name, player.samples or player.settings.samples
    secrets = [secret for secret in player.secrets for _ in range(samples)]
    starts = [start for start in player.starts for _ in range(samples)]
    begin, count = time.monotonic(), GameCount(len(secrets))
    with announce(lambda: f"{name}: {count}", lambda: Amount(count.over, count.total)):
        games = player.play(secrets, starts=starts, count=count)
    seconds = time.monotonic() - begin
    with announce(f"{name}: judging {len(games)} games"):
        summary = summarise(
            games,
            player.knowledge,
            player=name,
            split=player.split,
            rules=player.rules,
            seconds=seconds,
            regret=player.regret,
            rewards=player.rewards,
        )
    lineage = {} if player.lineage is None else {"lineage": player.lineage}
    return summary | lineage, games


def choose_games(games: Sequence[Game], count: int) -> list[Game]:
    """The games to show: the first on each secret, half of them lost as far as there are any."""
    first = {game.secret: game for game in reversed(games)}
    every = [game for game in games if first[game.secret] is game]
    lost = [game for game in every if not game.won][: count // 2]
    return lost + [game for game in every if game not in lost][: count - len(lost)]
