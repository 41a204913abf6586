"""A training run around the step: learning rate, validation, checkpoints, logs, report.

One Training serves every backend, which only decides who calls run_step. Nothing here draws random
numbers, and the clock decides nothing but how many threads are used, so with a fixed number of them
a resumed run repeats an unbroken one. With several processes each has a Training; all do the same,
and the first alone writes files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.report_table import report_table
from wordle_rl.evaluation.skill import skill_metrics
from wordle_rl.evaluation.summary import write_summary
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.stages import write_stages
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import check_room, form_of
from wordle_rl.rollouts.lesson import check_thoughts
from wordle_rl.rollouts.records import games_of
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.full_disk import full_disk_named
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.training.curriculum import CurriculumRunner
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.game_log import GameLog
from wordle_rl.training.memory import MemoryFull, MemoryGuard
from wordle_rl.training.outcome import (
    TrainingFailed,
    exported,
    keep_failure,
    report,
    score,
    stages_of_run,
    start_report,
)
from wordle_rl.training.progress import told
from wordle_rl.training.reporter import Reporter
from wordle_rl.training.state import STATE, read_state
from wordle_rl.training.step import StepResult, train_step
from wordle_rl.training.validation import validate, watch

_PATIENCE = 5  # updates in a row that may fail before the run stops


def run_training(
    training: Training, fit: Callable[[], None], *, resume: bool, interrupts: Interrupts
) -> dict[str, Any]:
    """A run from its begin, or from where it stopped, to its report. Returns the summary.

    fit: does the steps that are left. Raises Interrupted, when a signal came, with everything saved
    that a resumed run needs.
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
    if resume:  # what was changed stays in force for every later resume
        keep_config(training.folder, training.setup.config)
    interrupts.hold()
    try:
        if not resumed:
            training.begin()
        fit()
        return training.finish()
    except Interrupted:
        training.save()
        raise
    except NotFinite as error:
        raise training.failed(str(error)) from error


class Training:
    """One run: what happens before, in, between and after its steps."""

    def __init__(
        self,
        policy: Policy,
        setup: Experiment,
        folder: RunFolder,
        reporter: Reporter,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """check: raises to stop the run, called only where nothing is lost by that."""
        self.policy = policy
        self.setup = setup
        self.folder = folder
        self.reporter = reporter
        self.chat = Chat(policy.tokenizer)
        recipe = setup.recipe
        form = form_of(recipe.form, self.chat, recipe.style)
        guesses = recipe.history.most if recipe.history else 0
        check_room(form, recipe.sampling, setup.model.max_context, guesses=guesses)
        if recipe.teacher is not None:
            check_thoughts(recipe.teacher, form, recipe.sampling)
        self.writes = policy.processes.rank == 0
        self.store = CheckpointStore(folder.checkpoints, read_only=not self.writes)
        self._stages = stages_of_run(setup, folder.path.name)
        self.first_step = 0
        self._check = check
        self._done = 0  # whole steps that the policy has seen
        self._saved: int | None = None  # step of the checkpoint that was saved or restored last
        self._metrics_log = folder.metrics_log()
        self._games_log = folder.games_log()
        self._games = GameLog(self._games_log, reporter, setup.trainer.show_games)
        self._memory = MemoryGuard(
            resident=setup.trainer.memory_limit_gb, device=setup.trainer.device_memory_limit_gb
        )
        # What a checkpoint restores besides weights and optimiser.
        self._curriculum = CurriculumRunner(setup.curriculum, reporter, tells=self.writes)
        self._best: list[float] = []  # score of the best checkpoint, see outcome.score
        self._best_step = 0
        counted = ("games", "extra_games", "wins", "groups", "zero_spread_groups",
                   "skipped_groups", "resampled_groups")  # fmt: skip
        self._totals: dict[str, float] = dict.fromkeys(counted, 0.0)
        self._failures = 0
        if setup.recipe.algorithm.needs_reference:
            policy.keep_reference()
        if setup.recipe.algorithm.needs_values:
            policy.add_value_head()

    # -- before and after -------------------------------------------------------------------------

    def begin(self) -> None:
        """Report and validate the start policy, and keep it as the first checkpoint."""
        if self.setup.trainer.report:
            report = self._report("start")
            if self.writes:
                write_json(self.folder.path / "start.json", report)
        metrics, _ = self._validation(0, self._check)
        metrics |= self._watch(0, self._check)
        self._log(0, metrics)
        self._save(0, best=True)
        if self.writes:
            self.folder.note_first_checkpoint()

    def restore(self) -> bool:
        """Go back to the newest checkpoint. Returns whether begin() was over by then."""
        newest = self.store.load_latest() if self.writes else None
        checkpoint = self.policy.processes.gather(newest)[0]
        if checkpoint is not None:
            self.policy.load(checkpoint.path)
            state = read_state(checkpoint.path)
            self.first_step = self._done = state["step"]
            self._best, self._best_step = state["best"], state["best_step"]
            self._totals |= state["totals"]
            self._failures = state["failures"]
            self._curriculum.load_state_dict(state["curriculum"])
        begun = bool(self._best)
        if begun:
            self._saved = self.first_step
        if self.writes:
            for log in (self._metrics_log, self._games_log):
                log.truncate_after(self.first_step if begun else -1)
            self.reporter.go_on(self._metrics_log.read())
            if begun and self._best_step == self.first_step:
                self.store.mark_best(self.first_step)  # a kill may have come before that
        return begun

    def save(self) -> None:
        """Keep the state for a later restore(), after whole steps only."""
        self._save(self._done)

    def finish(self) -> dict[str, Any]:
        """Report the best checkpoint; writes summary.json last of all. Returns the summary."""
        self._save(self._done)
        with user_errors():
            best = self.store.load_best() if self.writes else None
        best = self.policy.processes.gather(best)[0]
        assert best is not None
        self.policy.load(best.path)
        if self.writes:
            with full_disk_named(self.folder.path / "model"):
                self.policy.export(self.folder.path / "model")
                write_stages(self.folder.path / "model", self._stages)
            model = self.folder.path / "model"
            line = exported(model, best.step, self._done, self._best_step, self._best)
            print(f"\n{line}", flush=True)
        summary: dict[str, Any] = {
            "best_step": self._best_step,
            "exported_step": best.step,
            "val_win_rate": self._best[0],
            **{f"total_{name}": value for name, value in self._totals.items()},
        }
        if self.setup.trainer.report:
            reports = [self._report("end")]
            summary |= reports[0]
            if self.writes:
                if (start := start_report(self.folder.path / "start.json")) is not None:
                    reports.append(start)
                    summary["start"] = start
                print("\n" + report_table(reports), flush=True)
        if self.writes:
            write_summary(self.folder.path, summary)
            self.folder.set_status("finished")
        return summary

    def _report(self, player: str) -> dict[str, Any]:
        return report(player, self.policy, self.chat, self.setup, self._check)

    # -- one step ---------------------------------------------------------------------------------

    def run_step(self, step: int) -> dict[str, float]:
        """Step number `step`, counted from 0, and everything that is due after it."""
        self._check()
        self._check_memory()
        begin = time.monotonic()
        setup = self.setup
        lr = setup.optim.lr_at(step, setup.trainer.steps)
        self.policy.set_learning_rate(lr)
        self.policy.timers.take()
        recipe = self._curriculum.planned(setup.recipe)
        done = step + 1
        with told(f"step {done} of {setup.trainer.steps}"):
            result = train_step(self.policy, self.chat, recipe, step, self._check)
        self._done = done
        seconds = time.monotonic() - begin
        metrics = {
            **result.metrics,
            **self._curriculum.follow(done, result),
            "lr": lr,
            "time/step": seconds,
            **self._watch_threads(seconds),
            "games_per_second": result.metrics["train/games"] / seconds,
            **{f"time/{name}": spent for name, spent in self.policy.timers.take().items()},
        }
        self._count(metrics)
        metrics |= {f"total/{name}": value for name, value in self._totals.items()}
        metrics |= self._observe(result)
        if self.writes and done % setup.trainer.games_every == 0:
            self._games.training(done, result, setup.recipe.num_generations)
        best = False
        if done % setup.trainer.validate_every == 0 or done == setup.trainer.steps:
            validation, best = self._validation(done)
            metrics |= validation
        metrics |= self._watch(done)
        self._log(done, metrics)
        if best or done % setup.trainer.checkpoint_every == 0:
            self._save(done, best=best)
        self._check_failures(done)
        return metrics

    def _observe(self, result: StepResult) -> dict[str, float]:
        """What the games of a step say about skill, and the memory in use."""
        begin = time.monotonic()
        memory = self._memory.look(self.policy)
        if not self.writes:
            return memory
        skill = skill_metrics(games_of(result.rollouts), self.setup.knowledge, self.setup.regret)
        return {**memory, **skill, "time/skill": time.monotonic() - begin}

    def _watch_threads(self, seconds: float) -> dict[str, float]:
        """The threads that computed a step of so many seconds, in the process with the fewest.

        They are chosen again, in all processes at once, where one of them asks for it.
        """
        threads, gather = self.policy.computing.threads, self.policy.processes.gather
        if threads is None:
            return {}
        counts, due = zip(*gather((threads.count, threads.ask_again(seconds))), strict=True)
        if any(due):
            for rank, change in enumerate(gather(threads.choose())):
                if change is not None and self.writes:
                    print(f"process {rank}: " * (len(counts) > 1) + change, flush=True)
        return {"machine/threads": float(min(counts))}

    def _check_memory(self) -> None:
        """Raise MemoryFull, all being saved, when the last step left the run above its limit."""
        try:
            self._memory.check(self._done - self.first_step)
        except MemoryFull:
            self._save(self._done)
            raise

    def _count(self, metrics: dict[str, float]) -> None:
        groups, resampled = metrics["groups/played"], metrics["groups/resampled"]
        for name, count in {
            "games": metrics["train/games"],
            "extra_games": metrics["train/extra_games"],
            "wins": metrics["train/wins"],
            "groups": groups,
            "zero_spread_groups": round(metrics["groups/zero_spread"] * groups),
            "skipped_groups": round(metrics["groups/skipped"] * (groups - resampled)),
            "resampled_groups": resampled,
        }.items():
            self._totals[name] += count
        failed = metrics.get("update/skipped", 0.0) > 0
        self._failures = self._failures + 1 if failed else 0

    def _check_failures(self, step: int) -> None:
        if self._failures >= _PATIENCE:
            self._save(step)
            raise self.failed(f"loss or gradient was not finite in {_PATIENCE} updates in a row")

    def failed(self, reason: str) -> TrainingFailed:
        """Keep what the run was like when it failed; returns the error to be raised.

        The policy goes to the folder `failure`, beside the checkpoints.
        """
        newest = self.store.latest()
        if newest is None:
            return TrainingFailed(f"{reason}, before the first step: its weights may be broken")
        bundle = self.folder.path / "failure"
        if self.writes:
            logged = self._metrics_log.read() or [{}]
            keep_failure(bundle, self.policy, reason=reason, step=self._done, last=logged[-1])
        step = newest.name.removeprefix("step_").lstrip("0") or "0"
        return TrainingFailed(
            f"{reason}, after step {self._done}: weights, optimiser and metrics are in {bundle}; a "
            f"lower optim.lr may help: python train.py resume={self.folder.path} optim.lr=... goes "
            f"on from step {step}"
        )

    # -- what is due between steps ----------------------------------------------------------------

    def _validation(
        self, step: int, check: Callable[[], None] | None = None
    ) -> tuple[dict[str, float], bool]:
        """Metrics of the policy on the validation secrets, and whether it is the best so far."""
        show = partial(self._games.validation, step) if self.writes else None
        metrics = validate(self.policy, self.chat, self.setup, check, show)
        self.policy.timers.take()
        found = score(metrics)
        best = found >= self._best  # the later of two equal ones
        if best:
            self._best, self._best_step = found, step
        return metrics, best

    def _watch(self, step: int, check: Callable[[], None] | None = None) -> dict[str, float]:
        every = self.setup.trainer.watch_every
        if not every or (step % every and step != self.setup.trainer.steps):
            return {}
        metrics = watch(self.policy, self.chat, self.setup, check)
        self.policy.timers.take()
        return metrics

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        if not self.writes:
            return
        self._metrics_log.append(step, metrics)
        self.reporter.metrics({k: v for k, v in metrics.items() if math.isfinite(v)}, step)

    def _save(self, step: int, *, best: bool = False) -> None:
        if not self.writes:
            return

        def write(folder: Path) -> None:
            self.policy.save(folder)
            write_stages(folder / "model", self._stages)
            state = {
                "step": step,
                "best": self._best,
                "best_step": self._best_step,
                "totals": self._totals,
                "failures": self._failures,
                "curriculum": self._curriculum.state_dict(),
            }
            write_json(folder / STATE, state)

        self._metrics_log.sync()
        self._games_log.sync()
        if step != self._saved:
            self.store.save(step, write)
            self._saved = step
        if best:
            self.store.mark_best(step)
