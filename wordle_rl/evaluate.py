"""The eval command: plays full games with a run, a model or a scripted player, and the solvers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from wordle_rl.build import check_keys, resolve
from wordle_rl.build_parts import build_history, build_reward_set, build_style
from wordle_rl.contestants import (
    Tournament,
    build_contestants,
    build_player,
    build_solvers,
    check_opener,
)
from wordle_rl.earlier_run import adopt, list_keys, read_saved_config
from wordle_rl.eval_settings import EvalSettings
from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.summary import write_games, write_summary
from wordle_rl.evaluation.tables import report_table
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.history import fixed_states
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.terminal import columns, shows_colours
from wordle_rl.words.settings import WordSettings
from wordle_rl.words.splits import Splits

KEYS = {
    *("model", "backend", "prompt", "reward", "words", "rules", "sampling"),
    *("history", "run", "checkpoint", "player"),
    *("opener", "tree", "compare", "samples", "limit", "time_limit", "show", "seed", "output_dir"),
    *("form", "shots", "allow_mismatch", "json"),
}
_FOR_TRAINING = {"optim", "rollout", "num_generations"}  # a model's file may choose these
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden


def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, write summary.json and games.jsonl, print the tables. Returns the summary."""
    with user_errors():
        config = add_run(cfg, overrides)
        settings = read_settings(config)
        tournament, splits = build_tournament(config, settings)
        knowledge = tournament.knowledge
        check_opener(settings, knowledge.words)
        rewards = partial(build_reward_set, config["reward"], knowledge.words, knowledge)
        player, computing = build_player(settings, knowledge), None
        who = settings.run or settings.player or config["model"]["path"]
        many = f"{len(tournament.secrets)} {tournament.split} secrets"
        print(f"evaluation of {who} on {many}", flush=True)
        if player is None:
            judged = rewards(settings.form)
            contestants, computing = build_contestants(config, tournament, splits, judged)
        else:
            contestants = [tournament.scripted(player, rewards())]
        if settings.opener is not None and settings.player != "entropy":
            contestants = [contestant.after(settings.opener) for contestant in contestants]
        if settings.compare:
            contestants += [
                tournament.scripted(other, rewards())
                for other in build_solvers(knowledge)
                if player is None or other.name != player.name
            ]
        folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    with broken_weights_told(), _leave_no_empty_folder(folder):
        summary, games = tournament.summary(contestants[0])
        others = [tournament.summary(contestant)[0] for contestant in contestants[1:]]
    if late := sum(one["out_of_time"] for one in (summary, *others)):
        print(f"warning: {late} games ran out of time and count as lost", file=sys.stderr)
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


def read_settings(config: dict[str, Any]) -> EvalSettings:
    """The settings of this command alone. Raises ConfigError for a config that lacks a part."""
    check_keys(config, KEYS)
    own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
    target = {"_target_": f"{EvalSettings.__module__}.EvalSettings"}
    return instantiate("", target | own, EvalSettings)


def build_tournament(config: dict[str, Any], settings: EvalSettings) -> tuple[Tournament, Splits]:
    """What every contestant plays, and the splits of the word lists."""
    listed: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = listed.load()
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    # A scripted player does not sample, but wrong settings are refused all the same.
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    if settings.samples > 1 and settings.player is None and sampling.temperature == 0.0:
        raise ConfigError(
            "sampling.temperature must be above 0 where samples is above 1, because greedy games "
            "on one secret are all alike, not 0: add sampling=default"
        )
    history = build_history(config["history"], knowledge, rules)
    if history is not None:
        settings.check_history()
    secrets = listed.eval_secrets(words, splits)[: settings.limit]
    tournament = Tournament(
        knowledge=knowledge,
        regret=Regret(knowledge, rules.max_turns, settings.tree),
        rules=rules,
        style=build_style(config, rules),
        sampling=sampling,
        secrets=secrets,
        starts=fixed_states(history, secrets, seed=settings.seed, max_turns=rules.max_turns),
        guesses=history.most if history else 0,
        split=listed.split,
        settings=settings,
    )
    return tournament, splits


def choose_games(games: Sequence[Game], count: int) -> list[Game]:
    """The games to show: one of a secret, in their order, and up to half of them lost."""
    lost = {game.secret: game for game in reversed(games) if not game.won}
    first = {game.secret: game for game in reversed(games)}
    shown = [game for game in games if lost.get(game.secret) is game][: count // 2]
    seen = {game.secret for game in shown}
    rest = [g for g in games if first[g.secret] is g and g.secret not in seen]
    return shown + rest[: count - len(shown)]


@contextmanager
def _leave_no_empty_folder(folder: Path) -> Iterator[None]:
    """Remove a new folder when the command ends before it wrote anything there."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            folder.rmdir()
            if isinstance(error, SystemExit) and error.code in (130, 143):
                print(
                    "stopped before the last game, so nothing was written",
                    file=sys.stderr,
                    flush=True,
                )
        raise


@contextmanager
def broken_weights_told() -> Iterator[None]:
    """End in one line if the model's predictions are not finite."""
    try:
        yield
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")


def add_run(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Resolve the config. A run's settings apply unless the command line overrides them."""
    given = list_keys(overrides)
    if not _FOR_TRAINING & {key.partition(".")[0] for key in given}:
        with open_dict(cfg):
            for part in _FOR_TRAINING:
                cfg.pop(part, None)
    if cfg.player is not None and "model" in given:
        raise ConfigError("player and model exclude each other: give one of them")
    if cfg.run is None:
        return resolve(cfg)
    folder = find_run(str(cfg.run), "run", ROOT, ROOT / str(cfg.output_dir))
    saved = read_saved_config(folder)
    if other := [key for key in sorted(given) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{other[0]} and run exclude each other: a run has its own model")
    # Checkpoints need their run's backend, but this command chooses how that computes.
    other = saved.backend._target_ != cfg.backend._target_
    for node in (*_FROM_RUN, *["backend"] * other):
        adopt(cfg, saved, node, given)
    config = resolve(cfg)
    if "form" not in given:
        config["form"] = saved.rollout.form
    if "words" not in given and "words.split" not in given:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


if __name__ == "__main__":
    fail("this module is part of a command: run python eval.py")
