"""A training run around the step: learning rate, validation, checkpoints, logs, report.

Training is the same for every backend, which only decides who goes through Training.steps(): a
plain loop, or Lightning's Trainer (backends/torch/trainer.py). Nothing here draws random numbers,
and other programs affect only the number of threads. So with a fixed number of threads, a resumed
run repeats an uninterrupted one exactly. With several processes, each has a Training and does the
same work, but only the first writes files.
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import psutil

from wordle_rl.evaluation.boards import bold
from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import describe_drawing
from wordle_rl.rewards.scoring import GameReward, RewardFailed, reward_of_guess
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form, check_room
from wordle_rl.rollouts.play import check_grammar
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import games_of
from wordle_rl.rollouts.teacher import describe_cut
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.progress import Amount, announce, describe_time
from wordle_rl.runs.timing import Timers
from wordle_rl.training.checkpoint import Checkpointing, RunState
from wordle_rl.training.example_group import ExampleGroup
from wordle_rl.training.experiment import Experiment, describe_run_lineage, stages_of_run
from wordle_rl.training.failures import CallbackFailed, MemoryFull, TrainingFailed, describe_fault
from wordle_rl.training.forecast import measure_seconds
from wordle_rl.training.log import Reporter, RunLog
from wordle_rl.training.pipeline import Pipeline
from wordle_rl.training.progress import GUESS, StepLines, describe_wins
from wordle_rl.training.step import StepResult, check_lengths
from wordle_rl.training.validation import SMALL, HeldOutPlay, RunReports, report_metrics
from wordle_rl.training.work import plan_work

RESIDENT, DEVICE = "memory/resident_gb", "memory/device_gb"
_PATIENCE = 5  # updates in a row that may fail before the run stops
_FRAMES = 3  # of a traceback


@dataclass(kw_only=True)
class _Step:
    """A step that the policy has learnt, and that is not logged yet."""

    done: int  # steps, with this one
    metrics: dict[str, float]
    rewards: list[GameReward]
    example: ExampleGroup | None = None  # a group of it, scored before the update
    best: bool = False  # whether a validation after it was the best so far


def run_training(
    training: Training, run_steps: Callable[[], object], *, resume: bool, interrupts: Interrupts
) -> dict[str, Any]:
    """Run training from the start, or from where it stopped, to the report. Returns the summary.

    run_steps: training's, or what goes through training.steps() in its place. Raises Interrupted
    after a signal, once everything that a resumed run needs is saved.
    """
    with user_errors():
        resumed = resume and training.restore()
    num_trained, total = training.policy.machine.num_parameters
    summary = f"{training.setup.model.name}: {total:,} parameters, {num_trained:,} of them trained"
    computing = training.policy.computing
    verdict = training.lineage.partition(". ")[2] or training.lineage  # its chain is in the report
    print(summary, *computing.reasons, training.work, verdict, sep="\n", flush=True)
    training.folder.note_computing(computing.record())
    if resume:  # changed settings also apply to every later resume
        keep_config(training.folder, training.setup.config)
    interrupts.hold()
    try:
        with announce("", training.amount):
            with training.clock("training"):
                if not resumed:
                    training.begin()
                run_steps()
            return training.finish()
    except NotFinite as error:
        raise training.describe_failure(str(error)) from error
    except (Exception, Interrupted) as error:
        if training.pipeline.between_steps:
            training.complete()
            training.save()
        if (fault := describe_fault(error)) is None:
            raise
        if isinstance(error, RewardFailed | CallbackFailed) and error.__cause__:  # for its author
            traceback.print_exception(error.__cause__, limit=-_FRAMES, chain=False)
        if training.folder.begun:
            note = "the run is saved, " if training.pipeline.between_steps else ""
            fault += f": {note}continue with {training.folder.resume_command}"
        raise TrainingFailed(fault) from error


class Training:
    """One run: its steps, and what happens before, between and after them."""

    def __init__(
        self,
        policy: Policy,
        setup: Experiment,
        folder: RunFolder,
        reporter: Reporter,
        check: Callable[[], None] = lambda: None,
        page: Callable[[], None] = lambda: None,
    ) -> None:
        """check: raises to stop the run. It is called only where stopping loses nothing.

        page: writes report.html. It is called after each validation, with trainer.report.
        """
        self.policy, self.setup, self.folder = policy, setup, folder
        recipe, trainer = setup.recipe, setup.trainer
        form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
        room = setup.model.max_context
        guesses, turns = setup.most_earlier_guesses, recipe.rules.max_turns
        check_room(form, recipe.sampling, room, turns=turns, guesses=guesses)
        check_grammar(form, recipe.sampling, recipe.words.allowed_set)
        if recipe.teacher is not None:
            words = recipe.words.answers[::50]  # their letters differ, their lengths hardly
            if warning := describe_cut(form, recipe.sampling, words):
                print(warning, file=sys.stderr)
        if recipe.dialogues is not None:
            check_lengths(recipe.dialogues, form.chat, room)
        self._form, self._writes = form, policy.processes.rank == 0
        self._check, self._page = check, page
        whole_games = recipe.rollout.credit != "turn" or recipe.rollout.discount == 1.0
        self._log = RunLog(folder, reporter, trainer, writes=self._writes, whole_games=whole_games)
        step = Step(policy=policy, form=form, recipe=recipe, number=0)
        self.pipeline = Pipeline(setup, step)
        self._play = HeldOutPlay(policy=policy, form=form, setup=setup, portions=step.portions)
        stages = stages_of_run(setup, folder.path.name)
        self._reports = RunReports(self._play, folder, stages, check)
        self._drawing = describe_drawing(trainer.validation_temperature)
        self.clock = Timers()  # seconds of this process: training, without reports, and reports
        self._memory: dict[str, float] = {}  # seen after the last step
        self._state = RunState()
        self._step: _Step | None = None  # the last one, until it is complete
        self._notes: dict[str, float] = {}  # metrics of others, for the next row
        self.work = plan_work(setup, policy.machine.num_parameters[1])
        self.lineage = describe_run_lineage(stages, setup)
        self._lines = StepLines(trainer.steps, recipe.algorithm.imitates is None, whole_games)
        self._seconds: list[float] = []  # of each step of this process
        self._end = math.nan  # when the command will be over
        self.checkpoints = Checkpointing(
            policy, setup.curriculum, folder, stages, keep=trainer.keep_checkpoints
        )
        if recipe.algorithm.needs.reference and policy.reference is None:
            policy.keep_reference()
        if recipe.algorithm.needs.values:
            policy.machine.add_value_head()

    # -- before and after -------------------------------------------------------------------------

    def begin(self) -> None:
        """Report on and validate the start policy, and save it as the first checkpoint."""
        large = self.policy.machine.num_parameters[1] >= SMALL
        if large and self._writes and self.setup.recipe.dialogues is None:
            self._tell_time()
        report: dict[str, float] = {}
        if self.setup.trainer.report:
            with self.clock("reports"):
                report = report_metrics(self._reports.begin())
        metrics = self._validate(0, self._check)[0] | self._watch(0, self._check)
        self._log.metrics(0, metrics, metrics | report)
        if self._writes and (wins := describe_wins({}, metrics, self._drawing)):
            print(bold(wins), flush=True)
        self._write_page(0)
        self.save(best=True)

    def _write_page(self, done: int) -> None:
        """Write the page of a run where that is due."""
        if self._writes and self.setup.trainer.report and self._validates(done):
            with self.clock("reports"):
                self._page()

    def _tell_time(self) -> None:
        """Print how long the run will take, where that can be measured."""
        if rehearsal := self.policy.rehearsal():
            with announce("timing an answer of each game of a step"):
                seconds = measure_seconds(self.setup, self.work, rehearsal, self._form)
            print(
                f"about {describe_time(seconds)} on this machine, if it stays as busy as it is",
                flush=True,
            )

    def restore(self) -> bool:
        """Return to the newest checkpoint. Returns whether begin() was complete there."""
        self._state, self.pipeline.waiting = self.checkpoints.restore()
        self._log.cut_back(self._state.step if self._state.begun else -1)
        return self._state.begun

    def finish(self) -> dict[str, Any]:
        """Export the best checkpoint and report on it. Returns the summary, written last."""
        self.save()
        with announce("saving the best model"):
            exported_step = self.checkpoints.load_best()
            self.checkpoints.export(self._state, exported_step, self._drawing)
        summary: dict[str, Any] = {
            "best_step": self._state.best_step,
            "exported_step": exported_step,
            "val_win_rate": self._state.best[0],
            **{f"total_{name}": value for name, value in self._state.totals.items()},
        }
        if self.setup.trainer.report:
            with self.clock("reports"):
                summary |= self._reports.end(exported_step)
            self._log.report(self._state.step, report_metrics(summary))
        summary |= {f"seconds_{part}": seconds for part, seconds in self.clock.take().items()}
        if self._writes:
            if self._stop_reason:
                print(self._stop_reason, flush=True)
            if not self._state.improved and exported_step < self.setup.trainer.steps:
                print(
                    "warning: no validation was better than the start's: its secrets show no "
                    f"improvement; {self.folder.eval_command} checkpoint=last plays its end",
                    file=sys.stderr,
                    flush=True,
                )
            write_json(self.folder.path / "summary.json", summary)
            self.folder.set_status("finished", self._stop_reason or None)
        return summary

    # -- one step ---------------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """Steps that are still to be done: 0 once the run has stopped early."""
        return 0 if self._stop_reason else self.setup.trainer.steps - self.step

    @property
    def step(self) -> int:
        """Whole steps that are done."""
        return self._state.step

    def steps(self) -> Iterator[int]:
        """The numbers of the steps that are still to be done, from 0. Who asks does each.

        The learning rate is set with a number. What a step measured is logged, and a checkpoint
        written where one is due, when the next number is asked for. All processes ask together.
        """
        while self.remaining:
            self.policy.machine.set_learning_rate(self._learning_rate)
            yield self.step
            self.complete()
            self._share_stop()

    @property
    def _learning_rate(self) -> float:
        return self.setup.optim.lr_at(self.step, self.setup.trainer.steps)

    @property
    def _stop_reason(self) -> str:
        """Why the run ends before its last step, "" otherwise."""
        state, trainer = self._state, self.setup.trainer
        message = f"stopped early, after step {state.step} of {trainer.steps}: "
        if state.step == trainer.steps:
            return ""
        if state.stopped_before == trainer.steps:
            return message + "a callback asked for it"
        if state.waited < (trainer.patience or math.inf):
            return ""
        return message + (
            "none of the last validations was better than the best "
            f"(trainer.patience={trainer.patience})"
        )

    def stop(self) -> None:
        """Let this step be the last one of all processes, until trainer.steps is another number."""
        self._state.stopped_before = self.setup.trainer.steps

    def _share_stop(self) -> None:
        """Learn whether a callback of the first process has stopped the run."""
        if self.setup.callbacks:
            stopped_before = self.policy.processes.gather(self._state.stopped_before)[0]
            self._state.stopped_before = stopped_before

    def run_steps(self) -> None:
        """Do all steps that are left."""
        for number in self.steps():
            self.run_step(number)

    def run_step(self, number: int) -> None:
        """Do step `number`, counted from 0, and the validation due after it."""
        self.learn(number)
        if self.validation_is_due():
            self.validate()

    def learn(self, number: int) -> dict[str, float]:
        """Play and learn step `number`, counted from 0. Returns its metrics."""
        self._check_memory()
        self._check()
        begin, trainer, done = time.monotonic(), self.setup.trainer, number + 1
        lr = self._learning_rate
        self.policy.timers.take()
        with announce(
            lambda: f"step {done}/{trainer.steps} {self.policy.timers.now}".strip(), first=10.0
        ):  # a log has a line of each step anyway
            sample, result = self.pipeline.advance(self._state, self._check)
        seconds = time.monotonic() - begin
        if sample.switch is not None:
            self._log.line("curriculum", f"curriculum after step {done}: {sample.switch}", done)
        metrics = {
            **result.metrics,
            **sample.course,
            **({"staleness": float(number - sample.learnt)} if trainer.lag else {}),
            "lr": lr,
            "time/step": seconds,
            "games_per_second": result.metrics["train/games"] / seconds,
            **{f"time/{name}": value for name, value in self.policy.timers.take().items()},
        }
        metrics |= self._state.count(metrics)
        metrics |= self._observe(result)
        if done % trainer.games_every == 0:
            self._log.training_games(done, result, self.setup.recipe.rollout.num_generations)
        self._step = _Step(
            done=done, metrics=metrics, rewards=result.rewards, example=result.example
        )
        self._step.metrics |= self._watch(done)
        return self._step.metrics

    def validation_is_due(self) -> bool:
        """Whether a validation follows the step that was learnt. All processes ask together."""
        self._share_stop()
        return self._validates(self.step)

    def _validates(self, done: int) -> bool:
        """Whether a validation is due after so many steps: also where a callback ends the run."""
        return self.setup.trainer.validates(done) or not self.remaining

    def validate(self) -> dict[str, float]:
        """Validate the policy after the step that was learnt. Returns metrics."""
        assert self._step is not None
        done, example = self._step.done, self._step.example
        metrics, self._step.best = self._validate(done, example=example)
        self._step.metrics |= metrics
        return metrics

    def note(self, metrics: Mapping[str, float]) -> None:
        """Log these beside the metrics of the step that is not complete, or of the next one."""
        self._notes |= metrics

    def complete(self) -> None:
        """Log the last step, and save where a checkpoint is due; nothing if that was done."""
        if (step := self._step) is None:
            return
        self._step, metrics = None, self._notes | step.metrics
        self._notes = {}
        display = metrics | {GUESS: sum(reward_of_guess(step.rewards).values())}
        self._log.metrics(step.done, metrics, display)
        self._log.rewards(step.done, step.rewards)
        if step.best or step.done % self.setup.trainer.checkpoint_every == 0:
            self.save(best=step.best)
        if self._state.failures >= _PATIENCE:
            self.save()
            raise self.describe_failure(
                f"loss or gradient was not finite in {_PATIENCE} updates in a row"
            )
        self._seconds.append(metrics["time/step"] + metrics.get("time/skill", 0.0))
        if self._writes:
            self._print_step(step.done, display)
        self._write_page(step.done)

    def _print_step(self, done: int, metrics: dict[str, float]) -> None:
        steps, (seconds, games) = self.setup.trainer.steps, self._play.spent
        per_game = seconds / max(games, 1)
        eta = (steps - done) * fmean(self._seconds[1:] or self._seconds)  # the first one warms up
        eta += self.work.held_out_after(done) * per_game
        self._end = time.monotonic() + eta
        print(*self._lines.format(done, metrics, eta), sep="\n", flush=True)
        if wins := describe_wins(self._log.start, metrics, self._drawing):
            print(bold(wins), flush=True)
        if done == 2 and self.policy.machine.num_parameters[1] >= SMALL:  # the first step warms up
            recipe, rest = self.setup.recipe, self.work.held_out * per_game
            base, overhead = recipe.rollout.num_generations, metrics.get("time/optimizer", 0.0)
            times = []
            for size in (2, 4, 8, 16) if recipe.teacher is None else (base,):
                step = overhead + (metrics["time/step"] - overhead) * size / base
                times += [f"{size}: {describe_time(step)}, {describe_time(step * steps + rest)}"]
            print(
                "num_generations, with the time of a step and of the whole run:", "; ".join(times)
            )

    def amount(self) -> Amount:
        """The steps that are done, and the seconds until the end of the command."""
        eta = self._end - time.monotonic()
        return Amount(self._state.step, self.setup.trainer.steps, max(eta, 0.0))

    def _observe(self, result: StepResult) -> dict[str, float]:
        """Metrics of skill in a step's games, and of the memory in use."""
        begin = time.monotonic()
        self._memory = measure_memory(self.policy)
        if not self._writes or not result.rollouts:
            return self._memory
        skill = skill_metrics(games_of(result.rollouts), self.setup.knowledge, self.setup.regret)
        return {**self._memory, **skill, "time/skill": time.monotonic() - begin}

    def _check_memory(self) -> None:
        """Raise MemoryFull if the last step left the run above a memory limit."""
        for key, name in (RESIDENT, "memory_limit_gb"), (DEVICE, "device_memory_limit_gb"):
            limit, usage = getattr(self.setup.trainer, name), self._memory.get(key, 0.0)
            if limit is not None and usage > limit:
                raise MemoryFull(
                    f"{usage:.2f} GB are in use, more than trainer.{name}={limit:g} allows"
                )

    def describe_failure(self, reason: str) -> TrainingFailed:
        """The error to raise where weights or gradients are not finite numbers."""
        if not self._state.step:
            return TrainingFailed(f"{reason} before the first step: start from another model")
        return TrainingFailed(
            f"{reason}, after step {self._state.step}. A lower optim.lr may help; continue from "
            f"the newest checkpoint with {self.folder.resume_command} optim.lr=..."
        )

    # -- what is due between steps ----------------------------------------------------------------

    def _validate(
        self,
        step: int,
        check: Callable[[], None] = lambda: None,
        example: ExampleGroup | None = None,
    ) -> tuple[dict[str, float], bool]:
        """Validate the policy. Returns metrics, and whether it is the best so far.

        example: a group of the step that led to it.
        """
        if example is not None:
            self._log.group(step, example.after_update(self.policy))
        with announce("validation: judging its games"):
            metrics = self._play.validate(check, partial(self._log.validation_games, step))
        self.policy.timers.take()
        return metrics, self._state.note_validation(step, metrics)

    def _watch(self, step: int, check: Callable[[], None] = lambda: None) -> dict[str, float]:
        interval = self.setup.trainer.watch_every
        if not interval or (step % interval and step != self.setup.trainer.steps):
            return {}
        metrics = self._play.watch(check)
        self.policy.timers.take()
        return metrics

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint unless this step has one. best: mark it as the best one.

        Raises TrainingFailed, and writes none, when weights are not finite numbers.
        """
        self._log.sync()
        try:
            self.checkpoints.save(self._state, self.pipeline.waiting, best=best)
        except NotFinite as error:
            raise self.describe_failure(str(error)) from error


def measure_memory(policy: Policy) -> dict[str, float]:
    """The memory in use, as metrics in GB: the largest of all processes."""
    usage = resident_bytes() / 1e9, policy.machine.device_bytes / 1e9
    resident, device = zip(*policy.processes.gather(usage), strict=True)
    return {RESIDENT: max(resident), DEVICE: max(device)}


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    return psutil.Process().memory_info().rss
