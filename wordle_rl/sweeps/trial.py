"""One trial of a study: a training run in a process of its own.

A run is `python train.py` and knows nothing of studies. All that is known about it comes from its
run folder: metrics.jsonl while it runs, and summary.json as the only proof of success.
"""

import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pandas as pd

from wordle_rl.runs.config import read_config
from wordle_rl.runs.files import StepLog, read_json
from wordle_rl.runs.paths import ROOT, environment, quote, train_command
from wordle_rl.runs.processes import without_launch
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import Params

RUNNING, COMPLETE, PRUNED, FAILED = "running", "complete", "pruned", "failed"  # states of a trial
WINS = "val_win_rate"
TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"
PATIENCE = 60.0  # seconds that a run may take to save after it was asked to stop
RETRIES = 3  # times that a trial continues after its run was killed
_STOP_CODES = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a run that saved
Row: TypeAlias = dict[str, Any]  # of a trial: its number, round, state, wins, parameters, figures


@dataclass(kw_only=True, eq=False)
class Trial:
    """A trial that this worker runs, in its folder."""

    number: int
    params: Params
    plan: StudyPlan
    folder: Path
    lock: BinaryIO  # of the folder; until it is closed here and in the run, which inherits it
    is_poor: Callable[[Sequence[float]], bool]  # asked after each validation, with all their wins
    seen: str = field(default="begins", init=False)  # what its run logs, in words
    done: float = field(default=0.0, init=False)  # share of its steps
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)  # bytes in output.log before the child
    _retries: int = field(default=RETRIES, init=False)
    _offset: int = field(default=0, init=False)  # bytes of metrics.jsonl
    _records: list[dict[str, Any]] = field(default_factory=list, init=False)  # what it says

    @property
    def path(self) -> Path | None:  # the run folder
        return max((file.parent for file in self.folder.glob("*/manifest.json")), default=None)

    def step(self) -> Row | None:
        """Start, continue or look at the run. Returns state and figures of a trial that ended."""
        child, count = self._child, len(self._list_wins())
        if child is not None and child.poll() is None:
            self._look()
            wins = self._list_wins()
            if count < len(wins) < self.plan.settings.budget.validations and self.is_poor(wins):
                self.stop()
                return {"state": PRUNED, **self._describe({})}
            return None
        self.stop()
        summary = self.path / "summary.json" if self.path else None
        if summary and summary.exists():
            return self._finish(read_json(summary))
        if child is not None:
            code = child.returncode
            cause = self._explain_failure(code)
            if not self._retries or not (code < 0 or code in _STOP_CODES):
                return {"state": FAILED, "cause": cause}
            self._retries -= 1
            print(f"trial {self.number} was killed and continues: {cause}")
        self._start()
        return None

    def ask_to_stop(self) -> None:
        """Let the run save and end."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def stop(self) -> None:
        """Let the run save and end; then end what it left behind."""
        if (child := self._child) is not None:
            self.ask_to_stop()
            with suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _start(self) -> None:
        arguments = [*self.plan.build_run(self.params), f"output_dir={quote(str(self.folder))}"]
        if self.path:
            arguments = [f"resume={quote(str(self.path))}"]
        affinity = getattr(os, "sched_getaffinity", None)  # not on a Mac
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        threads = max(cores // self.plan.settings.jobs, 1)
        with open(self.folder / "output.log", "ab") as output:
            self._log_start = output.tell()
            self._child = subprocess.Popen(
                [*train_command(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**without_launch(environment()), "OMP_NUM_THREADS": str(threads)},
                pass_fds=[self.lock.fileno()],
                start_new_session=True,  # Ctrl-C is for the worker
            )

    def _look(self) -> None:
        """Read what the run has logged since the last look."""
        path = self.path / "metrics.jsonl" if self.path else None
        if path is None or not path.exists():
            return
        if path.stat().st_size < self._offset:  # a run that continues has cut it back
            self._offset, self._records = 0, []
        records, self._offset = StepLog(path).read_on(self._offset)
        self._records += records
        if records:
            steps = read_config(path.parent).get("trainer", {}).get("steps", "?")
            self.done = records[-1]["step"] / steps if isinstance(steps, int) else 0.0
            wins = [f", validation {100 * value:.1f} %" for value in self._list_wins()[-1:]]
            self.seen = "".join([f"step {records[-1]['step']}/{steps}", *wins])

    def _list_wins(self) -> list[float]:
        """The wins of each validation but the one before training.

        Validations of the same number mean equal shares of the budget.
        """
        return [r[CURVE] for r in self._records if r["step"] and r.get(CURVE) is not None]

    def _finish(self, summary: Mapping[str, Any]) -> Row:
        """State and figures of a run with a summary."""
        best = summary.get("val_win_rate")  # validation wins of the best checkpoint
        if best is None or not math.isfinite(best):
            cause = f"val_win_rate in {self.path} is {best}, not a number"
            return {"state": FAILED, "cause": cause}
        return {"state": COMPLETE, WINS: float(best), **self._describe(summary)}

    def _describe(self, summary: Mapping[str, Any]) -> Row:
        """What the tables show of a trial, so that they need no run folder."""
        self._look()
        names = self.plan.settings.analysis.metrics
        columns = dict.fromkeys(["step", GAMES, CURVE, SECONDS, SPREAD, *names])
        records: Any = pd.DataFrame(self._records).reindex(columns=[*columns]).astype(float)
        steps = records[records.step > 0]
        last_quarter = steps[-math.ceil(len(steps) / 4) :]
        return {
            "run": str(self.path).removeprefix(f"{ROOT}/"),
            "games": steps[GAMES].max(),
            "seconds": steps[SECONDS].sum(),
            "no_spread": steps[SPREAD].mean(),
            **{f"test_{name}": summary[name] for name in TESTED if name in summary},
            "curve": records[[GAMES, CURVE]].dropna(subset=CURVE).fillna(0.0).to_numpy().tolist(),
            "lineage": summary.get("lineage"),
            "metrics": last_quarter[names].mean().dropna().to_dict(),
        }

    def _explain_failure(self, code: int) -> str:
        """Why a run failed: its own error line, or the last line that it wrote."""
        log = self.folder / "output.log"
        text = log.read_bytes()[self._log_start :].decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        cause = (errors or lines or ["it wrote nothing"])[-1]
        status = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{cause} ({status}, no summary.json; full output in {log})"


def list_reports(row: Row) -> list[float]:
    """The wins of a trial's validations but the one before training."""
    return [wins for games, wins in row.get("curve", []) if games > 0]
