"""A training run around the step: learning rate, validation, checkpoints, logs, report.

Training is the same for every backend: a backend only decides who calls run_step. Nothing here
draws random numbers, and the clock affects only the number of threads. So with a fixed number of
threads, a resumed run repeats an uninterrupted one exactly. With several processes, each has a
Training and does the same work, but only the first writes files.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.game.rules import Game
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import EngineLost, NotFinite
from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form, check_room
from wordle_rl.rollouts.play import check_grammar
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.rollouts.talk import Rollout, games_of
from wordle_rl.rollouts.teacher import check_thoughts
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import FolderError, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import EVAL, TRAIN
from wordle_rl.runs.timing import Timers
from wordle_rl.training.checkpoint import Checkpointing, RunState
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.experiment import Experiment, stages_of_run
from wordle_rl.training.log import Reporter, RunLog
from wordle_rl.training.memory import MemoryFull, check_memory, measure_memory
from wordle_rl.training.progress import announce
from wordle_rl.training.report import RunReports
from wordle_rl.training.step import StepResult, check_lengths, learn_answers, train_step
from wordle_rl.training.validation import HeldOutPlay

_PATIENCE = 5  # updates in a row that may fail before the run stops
_STALL = 30  # steps without a better validation after which a run warns


class TrainingFailed(RuntimeError):
    """The run cannot continue. The message says why, and where its state was saved."""


def run_training(
    training: Training, fit: Callable[[], None], *, resume: bool, interrupts: Interrupts
) -> dict[str, Any]:
    """Run training from the start, or from where it stopped, to the report. Returns the summary.

    fit: does the remaining steps. Raises Interrupted after a signal, once everything that a resumed
    run needs is saved.
    """
    with user_errors():
        resumed = resume and training.restore()
    trained, everything = training.policy.num_parameters
    print(
        f"{training.setup.model.name}: {everything:,} parameters, {trained:,} of them trained",
        flush=True,
    )
    computing = training.policy.computing
    for line in computing.reasons:
        print(line, flush=True)
    training.folder.note_computing(computing.record())
    if resume:  # changed settings also apply to every later resume
        keep_config(training.folder, training.setup.config)
    interrupts.hold()
    try:
        with training.clock("training"):
            if not resumed:
                training.begin()
            fit()
        return training.finish()
    except Interrupted:
        training.save()
        raise
    except NotFinite as error:
        raise training.record_failure(str(error)) from error
    except EngineLost as error:
        training.save()
        again = f"the run is saved, continue with {TRAIN} resume={training.folder.path}"
        raise TrainingFailed(f"{error}: {again}") from error
    except DoesNotFit as error:
        again = f"{TRAIN} resume={training.folder.path}"
        raise TrainingFailed(f"{error}, with {again}") from error


class Training:
    """One run: its steps, and what happens before, between and after them."""

    def __init__(
        self,
        policy: Policy,
        setup: Experiment,
        folder: RunFolder,
        reporter: Reporter,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """check: raises to stop the run. It is called only where stopping loses nothing."""
        self.policy = policy
        self.setup = setup
        self.folder = folder
        recipe, trainer = setup.recipe, setup.trainer
        self._form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
        most, room = setup.most_given, setup.model.max_context
        check_room(self._form, recipe.sampling, room, guesses=most)
        check_grammar(self._form, recipe.sampling, recipe.words.allowed_set)
        if recipe.teacher is not None:
            check_thoughts(recipe.teacher, self._form, recipe.sampling)
        if recipe.dialogues is not None:
            check_lengths(recipe.dialogues, self._form.chat, setup.model.max_context)
        self._writes = policy.processes.rank == 0
        self.first_step = 0
        self._check = check
        self._log = RunLog(
            folder, reporter, trainer, tables=setup.logger.tables, writes=self._writes
        )
        self._held_out = HeldOutPlay(policy=policy, form=self._form, setup=setup)
        stages = stages_of_run(setup, folder.path.name)
        self._reports = RunReports(self._held_out, folder, stages, check, writes=self._writes)
        self.clock = Timers()  # seconds of this process: training, without reports, and reports
        self._memory: dict[str, float] = {}  # seen after the last step
        self._state, self._stalled = RunState(), False
        self._checkpoints = Checkpointing(policy, setup.curriculum, folder, stages)
        if recipe.algorithm.needs_reference:
            policy.keep_reference()
        if recipe.algorithm.needs_values:
            policy.add_value_head()

    # -- before and after -------------------------------------------------------------------------

    def begin(self) -> None:
        """Report on and validate the start policy, and save it as the first checkpoint."""
        if self.setup.trainer.report:
            with self.clock("reports"):
                self._reports.begin()
        metrics, _ = self._validate(0, self._check)
        self._log.metrics(0, metrics | self._watch(0, self._check))
        self.save(best=True)
        if self._writes:
            self.folder.note_first_checkpoint()

    def restore(self) -> bool:
        """Return to the newest checkpoint. Returns whether begin() was complete there."""
        self._state = self._checkpoints.restore()
        self.first_step = self._state.step
        self._log.cut_back(self._state.step if self._state.begun else -1)
        return self._state.begun

    def finish(self) -> dict[str, Any]:
        """Export the best checkpoint and report on it. Returns the summary, written last."""
        self.save()
        exported = self._checkpoints.load_best()
        self._checkpoints.export(self._state, exported)
        summary: dict[str, Any] = {
            "best_step": self._state.best_step,
            "exported_step": exported,
            "val_win_rate": self._state.best[0],
            **{f"total_{name}": value for name, value in self._state.totals.items()},
        }
        if self.setup.trainer.report:
            with self.clock("reports"):
                summary |= self._reports.end(exported)
        summary |= {f"seconds_{part}": spent for part, spent in self.clock.take().items()}
        if self._writes:
            if not self._state.improved:
                _warn(
                    "no validation was better than the start's, so this run shows no improvement; "
                    f"{EVAL} run={self.folder.path} checkpoint=last plays its end"
                )
            write_json(self.folder.path / "summary.json", summary)
            self.folder.set_status("finished")
        return summary

    # -- one step ---------------------------------------------------------------------------------

    def run_step(self, number: int) -> dict[str, float]:
        """Do step `number`, counted from 0, and everything due after it. Returns metrics."""
        self._check()
        self._check_memory()
        begin, trainer = time.monotonic(), self.setup.trainer
        lr = self.setup.optim.lr_at(number, trainer.steps)
        self.policy.set_learning_rate(lr)
        self.policy.timers.take()
        recipe = plan_step(self.setup.curriculum, self.setup.recipe)
        step = Step(
            policy=self.policy, form=self._form, recipe=recipe, number=number, check=self._check
        )
        done = number + 1
        with announce(partial(_describe_part, done, trainer.steps, self.policy.timers)):
            dialogues = recipe.dialogues
            result = train_step(step) if dialogues is None else learn_answers(step, dialogues)
        self._state.step = done
        seconds = time.monotonic() - begin
        course, switch = observe_step(self.setup.curriculum, result.rollouts)
        if switch is not None:
            self._log.line("curriculum", f"curriculum after step {done}: {switch}", done)
        metrics = {
            **result.metrics,
            **course,
            "lr": lr,
            "time/step": seconds,
            "games_per_second": result.metrics["train/games"] / seconds,
            **{f"time/{name}": spent for name, spent in self.policy.timers.take().items()},
        }
        metrics |= self._state.count(metrics)
        metrics |= self._observe(result)
        self._log.training_rewards(done, result)
        if done % trainer.games_every == 0:
            self._log.training_games(done, result, recipe.rollout.num_generations)
        best, stopped = False, None
        try:
            if done % trainer.validate_every == 0 or done == trainer.steps:
                validation, best = self._validate(done)
                metrics |= validation
            metrics |= self._watch(done)
        except (EngineLost, Interrupted) as error:  # the step itself is whole
            stopped = error
        self._log.metrics(done, metrics)
        if stopped or best or done % trainer.checkpoint_every == 0:
            self.save(best=best)
        if stopped:
            raise stopped
        self._check_failures()
        return metrics

    def _observe(self, result: StepResult) -> dict[str, float]:
        """Metrics of skill in a step's games, and of the memory in use."""
        begin = time.monotonic()
        self._memory = measure_memory(self.policy)
        if not self._writes or not result.rollouts:
            return self._memory
        skill = skill_metrics(games_of(result.rollouts), self.setup.knowledge, self.setup.regret)
        return {**self._memory, **skill, "time/skill": time.monotonic() - begin}

    def _check_memory(self) -> None:
        """Save and raise MemoryFull if the last step left the run above its limit."""
        try:
            check_memory(self._memory, self.setup.trainer, self._state.step - self.first_step)
        except MemoryFull:
            self.save()
            raise

    def _check_failures(self) -> None:
        if self._state.failures >= _PATIENCE:
            self.save()
            raise self.record_failure(
                f"loss or gradient was not finite in {_PATIENCE} updates in a row"
            )

    def record_failure(self, reason: str) -> TrainingFailed:
        """Save the failed policy to the folder `failure`. Returns the error to raise.

        That is no checkpoint, since a run cannot resume from weights that are not finite.
        """
        newest = self._checkpoints.newest()
        if newest is None:
            return TrainingFailed(f"{reason}, before the first step: the weights may be broken")
        bundle, done = self.folder.path / "failure", self._state.step
        if self._writes:
            shutil.rmtree(bundle, ignore_errors=True)
            bundle.mkdir()
            self.policy.save(bundle)
            last = {"reason": reason, "step": done, "metrics": self._log.last_metrics()}
            write_json(bundle / "failure.json", last)
        return TrainingFailed(
            f"{reason}, after step {done}: weights, optimiser and metrics are in {bundle}. A lower "
            f"optim.lr may help; continue from step {newest} with "
            f"{TRAIN} resume={self.folder.path} optim.lr=..."
        )

    # -- what is due between steps ----------------------------------------------------------------

    def _validate(
        self, step: int, check: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, float], bool]:
        """Validate the policy. Returns metrics, and whether it is the best so far."""
        metrics = self._held_out.validate(check, partial(self._log.validation_games, step))
        self.policy.timers.take()
        best = self._state.note_validation(step, metrics)
        if self._writes and step >= _STALL and not (self._state.improved or self._stalled):
            self._stalled = True
            _warn(
                f"no validation in {step} steps was better than the start's; a lower optim.lr may "
                "help, or trainer.validation_samples=4 trainer.validation_temperature=1, which "
                "measures more precisely"
            )
        return metrics, best

    def _watch(self, step: int, check: Callable[[], None] = lambda: None) -> dict[str, float]:
        every = self.setup.trainer.watch_every
        if not every or (step % every and step != self.setup.trainer.steps):
            return {}
        metrics = self._held_out.watch(check)
        self.policy.timers.take()
        return metrics

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint unless this step has one. Call it only between steps.

        best: mark it as the best one.
        """
        self._log.sync()
        self._checkpoints.save(self._state, best=best)


def _describe_part(number: int, steps: int, timers: Timers) -> str:
    """Which step is running, and which part of it."""
    return f"step {number} of {steps}" + (f", {timers.now}" if timers.now else "")


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def plan_step(curriculum: Curriculum, recipe: Recipe) -> Recipe:
    """The recipe of the next step. Raises FolderError for a state with unknown secrets."""
    plan = curriculum.plan()
    known = {*recipe.secrets, *recipe.allowed_secrets}
    if unknown := [secret for secret in plan.replayed if secret not in known]:
        raise FolderError(f"state.json: {unknown[0]!r} waits to be replayed but is no secret")
    return replace(recipe, rewards=plan.rewards, replayed=plan.replayed)


def observe_step(
    curriculum: Curriculum, rollouts: Sequence[Rollout]
) -> tuple[dict[str, float], str | None]:
    """Show the curriculum the games of a finished step, once.

    Returns metrics, and a text about the switch to another stage if there was one.
    """
    plan = curriculum.plan()
    first: dict[int, Rollout] = {}  # of each game: with candidates a game has many rollouts
    groups: dict[int, list[Game]] = {}
    for rollout in rollouts:
        first.setdefault(id(rollout.whole_game), rollout)
    for rollout in first.values():
        groups.setdefault(rollout.group, []).append(rollout.whole_game)
    curriculum.observe([*groups.values()])
    stage = curriculum.plan().stage
    metrics: dict[str, Any] = {**curriculum.metrics(), "replayed": len(plan.replayed)}
    return (
        {f"curriculum/{name}": float(value) for name, value in metrics.items()},
        None if stage == plan.stage else f"{plan.stage} -> {stage}",
    )
