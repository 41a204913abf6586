"""wordle-rl doctor: what keeps a run from learning, in at most ten lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

_MAX_FINDINGS = 4  # the report has ten lines
# The names of TRL's and verl's metrics that mean what ours do.
_ALIASES = {
    "lr": ("learning_rate", "actor/lr"),
    "reward/mean": ("reward", "critic/rewards/mean", "critic/score/mean"),
    "reward/std": ("reward_std",),
    "groups/zero_spread": ("frac_reward_zero_std",),
    "policy/entropy": ("entropy", "actor/entropy", "actor/entropy_loss"),
    "policy/kl": ("kl", "actor/kl_loss"),
    "policy/clipped": ("clip_ratio/region_mean", "clip_ratio", "actor/pg_clipfrac"),
    "policy/sampler_gap": ("sampling/sampling_logp_difference/mean",),
    "tokens/per_answer": ("completions/mean_length", "response_length/mean"),
    "tokens/cut": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "train/win_rate": ("rewards/win/mean", "rewards/won/mean"),
}


def doctor(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run folder, its number or latest, also while it trains. Or the log of TRL or "
            "verl: trainer_state.json, a file of JSON lines, or a folder of TensorBoard.",
        ),
    ],
) -> None:
    """Say what keeps a run from learning: the cause, what shows it, and what to change."""
    from wordle_rl.evaluation.doctor import Curves, describe_health, diagnose

    name, rows, settings = read_log(run)
    curves = Curves(rows)
    findings = diagnose(curves, settings)
    print(f"{name}: {curves.steps} steps, {_describe(curves)}")
    for number, finding in enumerate(findings[:_MAX_FINDINGS], 1):
        print(f"{number}. {finding.cause}: {finding.seen}\n   change: {finding.change}")
    if not findings:
        print(describe_health(curves))


def _describe(curves: Any) -> str:
    parts = [
        f"{name} {curves.first(name):.3g} -> {curves.last(name):.3g}"
        for name in ("reward/mean", "train/win_rate", "val/win_rate")
        if name in curves
    ]
    return ", ".join(parts) or "no reward in the log"


def read_log(given: str) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """The name, the metrics of each step, and the settings of a run, of ours, TRL's or verl's.

    Settings are as far as they are numbers; another trainer's are not read. Raises ConfigError.
    """
    from wordle_rl.evaluation.doctor import numeric_settings
    from wordle_rl.runs.config import flatten, read_config
    from wordle_rl.runs.folder import find_run
    from wordle_rl.runs.instantiate import ConfigError

    path = Path(given)
    if not path.exists() or (path / "manifest.json").is_file():
        folder = find_run(given, root=Path())
        settings = numeric_settings(flatten(read_config(folder.path)))
        return folder.path.name, folder.log("metrics").read(), settings
    if path.is_file():
        rows = _rename(_read_file(path))
    else:
        from wordle_rl.backends.events import read_scalars

        rows = _rename(read_scalars(path))
    if not rows:
        names = ", ".join(("reward/mean", *_ALIASES["reward/mean"]))
        raise ConfigError(f"{given}: no reward by one of the names {names}")
    return given, rows, {}


def _read_file(path: Path) -> list[dict[str, Any]]:
    from wordle_rl.runs.files import read_text
    from wordle_rl.runs.instantiate import ConfigError

    text = read_text(path)
    try:
        if path.suffix == ".json":
            return list(json.loads(text)["log_history"])
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [{**row, **row.get("data", {})} for row in rows]  # verl puts them under data
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path}: neither trainer_state.json nor JSON lines") from error


def _rename(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that have a reward, with our names beside the other trainer's."""
    table = []
    for row in rows:
        metrics = {name.removeprefix("train/"): value for name, value in row.items()}
        extras = {
            name: metrics[alias]
            for name, aliases in _ALIASES.items()
            for alias in aliases
            if alias in metrics
        }
        table.append({**row, **extras})
    return [row for row in table if "reward/mean" in row]
