"""How a run ends: the exported checkpoint, the reports on start and end, and failures."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.summary import summarise
from wordle_rl.game.rules import Game
from wordle_rl.policy.lineage import describe_lineage
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.policy.stages import Stage, prompt_name, stages_of
from wordle_rl.runs.files import write_json
from wordle_rl.runs.instantiate import option_of
from wordle_rl.runs.paths import EVAL, TRAIN
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.held_out_play import HeldOutPlay
from wordle_rl.training.progress import announce
from wordle_rl.words.lists import words_digest

_PATIENCE = 30  # steps without a better validation after which a run warns


class TrainingFailed(RuntimeError):
    """The run cannot continue. The message says why, and where its state was saved."""


def describe_export(
    folder: Path, step: int, steps: int, best_step: int, best: Sequence[float]
) -> str:
    """Two lines: which checkpoint is the best, and where its model is.

    folder: the exported model. steps: how many the run did. best: rank_validation() of the best
    checkpoint.
    """
    if step != best_step:
        lost = f"best checkpoint: step {best_step}, but it is lost"
        return f"{lost}\nexported step {step} to {folder}"
    wins, guesses, reward = best
    reached = (
        f"{100 * wins:.1f} % wins, {-guesses:.2f} guesses (a lost game counts one more), "
        f"reward {reward:.2f}"
    )
    found = f"step {step} of {steps}" if step else "step 0, the start"
    return f"best checkpoint: {found}; validation had {reached}\nexported to {folder}"


def report(
    player: str,
    play: HeldOutPlay,
    secrets: Sequence[str],
    stages: Sequence[Stage],
    check: Callable[[], None],
) -> tuple[dict[str, Any], list[Game]]:
    """Play test secrets greedily. Returns the summary and the games.

    player: start or best. stages: of the model that plays.
    """
    begin, setup = time.monotonic(), play.setup
    split = "all" if len(setup.test) == len(setup.words.answers) else "test"
    what = f"report on the {player}"
    games = play.play(secrets, f"{what}, {split} secrets", check=check)
    seconds = time.monotonic() - begin
    with announce(f"{what}: judging {len(games)} games"):
        summary = summarise(
            games, setup.knowledge, player=player, split=split, rules=setup.recipe.rules,
            seconds=seconds, regret=setup.regret, rewards=setup.recipe.rewards,
        )  # fmt: skip
    return summary | {"lineage": describe_run_lineage(stages, setup)}, games


def warn_unless_improved(folder: Path) -> None:
    """Print a warning for a run whose validation never beat its start. folder: the run's."""
    print(
        "warning: no validation was better than the start's, so this run shows no improvement; "
        f"{EVAL} run={folder} checkpoint=last plays its end",
        file=sys.stderr,
        flush=True,
    )


class StallWarning:
    """Warns, once in a process, of a run that has not beaten its start for a while."""

    def __init__(self) -> None:
        self._given = False

    def look(self, step: int, *, improved: bool) -> None:
        """Look at a validation. improved: whether one has beaten the start so far."""
        if improved or self._given or step < _PATIENCE:
            return
        self._given = True
        print(
            f"warning: no validation in {step} steps was better than the start's; a lower optim.lr "
            "may help, or trainer.validation_samples=4 trainer.validation_temperature=1, which "
            "measures more precisely",
            file=sys.stderr,
            flush=True,
        )


def keep_failure(
    folder: Path, policy: Policy, *, reason: str, step: int, last: Mapping[str, Any]
) -> None:
    """Write a failed run's policy and last metrics to a folder, for inspection.

    It is not a checkpoint, since a run cannot resume from weights that are not finite.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    policy.save(folder)
    write_json(folder / "failure.json", {"reason": reason, "step": step, "metrics": dict(last)})


def explain_failure(bundle: Path, reason: str, step: int, newest: int) -> TrainingFailed:
    """The error of a run whose policy failed after a step.

    bundle: where keep_failure() kept the policy, in the run's folder. newest: the step of the
    newest checkpoint.
    """
    return TrainingFailed(
        f"{reason}, after step {step}: weights, optimiser and metrics are in {bundle}. A lower "
        f"optim.lr may help; continue from step {newest} with "
        f"{TRAIN} resume={bundle.parent} optim.lr=..."
    )


def stages_of_run(setup: Experiment, run: str) -> list[Stage]:
    """The stages of the model that this run makes: its start model's stages, then the run."""
    recipe, splits, data = setup.recipe, setup.splits, setup.data
    secrets = {*recipe.secrets, *recipe.allowed_secrets} if data is None else {*data.secrets}
    held_out = {*splits.val, *splits.test} - secrets
    earlier, teacher = stages_of(setup.model.location), recipe.algorithm.imitates
    protocol = setup.config["words"]["protocol"]
    own = {
        "run": run,
        **({} if earlier else {"start": _name_start(setup)}),
        "algorithm": option_of(recipe.algorithm),
        "player": None if teacher is None or recipe.teacher is None else teacher.player,
        **({"careless": teacher.careless} if teacher is not None and teacher.careless else {}),
        "protocol": protocol,
        **({"allowed_share": recipe.allowed_share} if recipe.allowed_share else {}),
        "secrets": len(secrets),
        "held_out": 0 if protocol == "all" or (data and data.unknown) else len(held_out),
        "digests": {
            "words": setup.words.digest,
            "splits": splits.digest,
            "secrets": words_digest(secrets),
        },
        "prompt": prompt_name(recipe.style),
        "form": recipe.rollout.form,
        **({} if data is None else {"data": data.record()}),
    }
    return [*earlier, own]


def _name_start(setup: Experiment) -> str:
    """The model that a run began with. Only its last part if it is a folder of this machine."""
    path = Path(setup.model.location)
    return path.name if path.is_dir() else setup.model.path


def describe_run_lineage(stages: Sequence[Stage], setup: Experiment) -> str:
    """The lineage of a model of this run, in one line."""
    untrained = setup.model.path == UNTRAINED
    return describe_lineage(stages, setup.words, setup.splits, untrained=untrained)


def describe_idle_groups(summary: dict[str, Any]) -> str | None:
    """One line about how many groups of a run taught nothing, None if each taught something."""
    groups, idle, skipped, replaced = (
        int(summary[f"total_{name}"])
        for name in ("groups", "zero_spread_groups", "skipped_groups", "resampled_groups")
    )
    if not idle:
        return None
    line = f"{idle:,} of {groups:,} groups ({100 * idle / groups:.1f} %) taught nothing"
    parts = {"skipped": skipped, "replaced by new ones": replaced}
    told = " and ".join(f"{count:,} were {done}" for done, count in parts.items() if count)
    return f"{line}: their rewards had no spread" + (f"; {told}" if told else "")


def describe_seconds(summary: dict[str, Any], total: float, *, resumed: bool) -> str:
    """One line about how long a run took, from its summary. total: seconds of this process."""
    training, reports = (round(summary.get(f"seconds_{p}", 0)) for p in ("training", "reports"))
    rest = max(round(total) - training - reports, 0)
    since = " since the resume" if resumed else ""
    return (
        f"took {total:.0f} s{since}: {training} s of training and validation, "
        f"{reports} s of reports, {rest} s of loading and saving"
    )
