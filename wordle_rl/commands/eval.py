"""What eval.py runs: full games of a run, a model or a scripted player, and of the solvers."""

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from wordle_rl.commands.eval_players import (
    EvalSettings,
    LoadedPlayer,
    Tournament,
    build_players,
    build_solvers,
    build_tournament,
    enter,
    learnt_sampling,
    read_settings,
)
from wordle_rl.evaluation.boards import boards_side_by_side, columns, shows_colours
from wordle_rl.evaluation.record import check_id, record_result
from wordle_rl.evaluation.summary import game_record, summarise
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.players import Decoder
from wordle_rl.game.rules import Game
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import describe_drawing
from wordle_rl.rewards.scoring import build_reward_set
from wordle_rl.rollouts.play import build_decoder
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.files import json_bytes, plain, write_bytes, write_json
from wordle_rl.runs.folder import RunFolder, make_outputs
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import Amount, announce
from wordle_rl.training.progress import GameCount

_METRICS = ("win_rate", "mean_guesses", "mean_guesses_with_losses")  # of the other players


def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, write summary.json and games.jsonl, print the tables. Returns the summary."""
    with user_errors():
        config, settings = read_settings(cfg, overrides)
        if settings.record is not None:
            check_id(settings.record)
        make_outputs(ROOT / settings.output_dir)
        tournament = build_tournament(config, settings)
        if tournament.settings.opener:
            print(f"the first guess of every game is {tournament.settings.opener.upper()}")
        players, computing = build_players(config, tournament)
        decoder = None
        if not settings.player:
            decoder = build_decoder(tournament.sampling, tournament.knowledge)
        if settings.compare:
            players += _enter_solvers(config, tournament, decoder, name=players[0].name)
    (summary, games), *others = _play_in_turn(players)
    summaries = [figures for figures, _ in others]
    summary["computing"] = computing
    if not settings.player:
        summary["drawn"] = describe_drawing(tournament.sampling.temperature)
    summary["opener"] = tournament.settings.opener
    summary["decoder"] = decoder and decoder.name  # its row is in compared_with
    summary["compared_with"] = {row["player"]: {k: row[k] for k in _METRICS} for row in summaries}
    folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    write_bytes(folder / "games.jsonl", b"".join(map(json_bytes, map(game_record, games))))
    write_json(folder / "summary.json", summary)
    boards = choose_games(games, settings.show)
    print(boards_side_by_side(boards, columns(), colour=shows_colours()))
    print(f"\nwritten to {shorten(folder)}\n")
    if settings.record is not None:
        _record(settings, summary, games, overrides)
    print(report_table([summary, *summaries], columns()))
    if sampling := learnt_sampling(settings, tournament.sampling):
        print(_note_grammar(f"sampling.grammar={sampling.grammar}", compared=settings.compare))
    if settings.json:
        print(json.dumps(plain(summary), ensure_ascii=False))
    return summary


def _record(
    settings: EvalSettings,
    summary: Mapping[str, Any],
    games: Sequence[Game],
    overrides: Sequence[str],
) -> None:
    """Add a result under settings.record. Its command names the run's folder, never `latest`."""
    assert settings.record is not None
    parts = [part for part in overrides if not part.startswith(("record=", "run="))]
    run = [] if settings.run is None else [f"run={shorten(Path(settings.run))}"]
    command = f"python eval.py {shlex.join(run + parts)}"
    path = record_result(
        settings.record, summary, games, command=command, computing=summary["computing"] or {}
    )
    print(f"recorded in {shorten(path)}\n")


def _note_grammar(setting: str, *, compared: bool) -> str:
    row = "the row below it has this grammar" if compared else f"add {setting}"
    return f"\nnote: the run trained with {setting}; here any text was allowed, {row}"


def _enter_solvers(
    config: Mapping[str, Any], tournament: Tournament, decoder: Decoder | None, *, name: str
) -> list[LoadedPlayer]:
    """The scripted players to compare with, but for the one of this name."""
    rewards = build_reward_set(config["reward"], tournament.knowledge)
    solvers = build_solvers(tournament.knowledge, decoder)
    return [enter(solver, tournament, rewards) for solver in solvers if solver.name != name]


def _play_in_turn(players: Sequence[LoadedPlayer]) -> list[tuple[dict[str, Any], list[Game]]]:
    """The summary and the games of each player. A signal or broken weights end the command."""
    try:
        return [play_all(player) for player in players]
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")
    except SystemExit as signal:
        if signal.code in (130, 143):
            print("stopped before the last game, so nothing was written", file=sys.stderr)
        raise


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
    by_secret = {game.secret: game for game in reversed(games)}
    pool = [game for game in games if by_secret[game.secret] is game]
    losses = [game for game in pool if not game.won][: count // 2]
    return losses + [game for game in pool if game not in losses][: count - len(losses)]
