"""The eval command: plays full games with a run, a model or a scripted player, and the solvers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from omegaconf import DictConfig, open_dict

from wordle_rl.build import check_keys, resolve
from wordle_rl.build_parts import build_reward_set, build_style
from wordle_rl.contestants import (
    EvalSettings,
    Tournament,
    build_contestant,
    build_player,
    build_solvers,
    check_opener,
)
from wordle_rl.earlier_run import adopt, list_keys, read_form, read_saved_config
from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.report_table import report_table
from wordle_rl.evaluation.summary import write_games, write_summary
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.errors import fail, full_disk_told, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.settings import WordSettings

KEYS = {
    *("model", "backend", "prompt", "reward", "words", "rules", "sampling"),
    *("run", "checkpoint", "player"),
    *("opener", "tree", "compare", "samples", "limit", "time_limit", "show", "seed", "output_dir"),
    *("form", "allow_mismatch"),
}
_FOR_TRAINING = {"optim", "rollout", "num_generations"}  # a model's file may choose these
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden


@full_disk_told()
def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, print the table, write summary.json and games.jsonl. Returns the summary."""
    with user_errors():
        config = _add_run(cfg, overrides)
        check_keys(config, KEYS)
        own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
        target = {"_target_": f"{EvalSettings.__module__}.EvalSettings"}
        settings: EvalSettings = instantiate("", target | own, EvalSettings)
        words, splits = instantiate("words", config["words"], WordSettings).load()
        knowledge = Knowledge(words, feedback_table(words))
        split = config["words"]["split"]
        rules: Rules = instantiate("rules", config["rules"], Rules)
        tournament = Tournament(
            knowledge=knowledge,
            regret=Regret(knowledge, rules.max_turns, settings.tree),
            rules=rules,
            style=build_style(config, rules),
            # A scripted player does not sample, but wrong settings are refused all the same.
            sampling=instantiate("sampling", config["sampling"], Sampling),
            secrets=splits.secrets(split)[: settings.limit],
            split=split,
            settings=settings,
        )
        check_opener(settings, words)
        rewards = partial(build_reward_set, config["reward"], words, knowledge)
        player, computing = build_player(settings, knowledge), None
        who = settings.run or settings.player or config["model"]["path"]
        print(f"evaluation of {who} on {len(tournament.secrets)} {split} secrets", flush=True)
        if player is None:
            judged = rewards(settings.form)
            contestant, computing = build_contestant(config, tournament, splits, judged)
        else:
            contestant = tournament.scripted(player, rewards())
        if settings.opener is not None and settings.player != "entropy":
            contestant = contestant.after(settings.opener)
        folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    with _report_broken_weights():
        summary, games = tournament.summary(contestant)
    summaries = [summary]
    if settings.compare:
        summaries += [
            tournament.summary(tournament.scripted(other, rewards()))[0]
            for other in build_solvers(knowledge)
            if player is None or other.name != player.name
        ]
    if late := sum(one["out_of_time"] for one in summaries):
        print(f"warning: {late} games ran out of time and count as lost", file=sys.stderr)
    write_games(folder, games)
    shown = [g for g in games if not g.won][: settings.show // 2]
    shown += [g for g in games if g not in shown][: settings.show - len(shown)]
    print(boards_side_by_side(shown, colour=sys.stdout.isatty()), "\n")
    print(report_table(summaries), f"\n\n{folder}")
    summary["computing"] = computing
    summary["compared_with"] = {
        s["player"]: {k: s[k] for k in ("win_rate", "mean_guesses", "mean_guesses_with_losses")}
        for s in summaries[1:]
    }
    written = write_summary(folder, summary)
    print(json.dumps(json.loads(written.read_bytes()), ensure_ascii=False))
    return summary


@contextmanager
def _report_broken_weights() -> Iterator[None]:
    """End in one line if the model's predictions are not finite."""
    try:
        yield
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")


def _add_run(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
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
    folder = RunFolder.open(ROOT / str(cfg.run))
    saved = read_saved_config(folder)
    if other := [key for key in sorted(given) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{other[0]} and run exclude each other: a run has its own model")
    # Checkpoints need their run's backend, but this command chooses how that computes.
    other = saved.backend._target_ != cfg.backend._target_
    for node in (*_FROM_RUN, *["backend"] * other):
        adopt(cfg, saved, node, given)
    config = resolve(cfg)
    if "form" not in given:
        config["form"] = read_form(saved)
    if "words" not in given and "words.split" not in given:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


if __name__ == "__main__":
    fail("this module is part of a command: run python eval.py")
