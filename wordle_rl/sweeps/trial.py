"""One trial of a study: a training run in a process of its own.

A run is `python train.py` and knows nothing of studies. All that is known about it comes from its
run folder: metrics.jsonl while it runs, and summary.json as the only proof of success.
"""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from wordle_rl.runs.config import read_config
from wordle_rl.runs.files import StepLog, read_json
from wordle_rl.runs.paths import ROOT, environment, quote, train_command
from wordle_rl.runs.processes import without_launch
from wordle_rl.sweeps.plan import StudySettings
from wordle_rl.sweeps.results import COMPLETE, FAILED, PRUNED, WINS, Row
from wordle_rl.sweeps.space import Params

TESTED = ("win_rate", "mean_guesses_with_losses")  # of summary.json: its report on the test secrets
CURVE, GAMES, SECONDS, SPREAD = "val/win_rate", "total/games", "time/step", "groups/zero_spread"
PATIENCE = 60.0  # seconds that a run may take to save after it was asked to stop
RETRIES = 3  # times that a trial continues after its run was killed
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a run that saved


@dataclass(kw_only=True, eq=False)
class Trial:
    """A trial that this worker runs, in its folder."""

    number: int
    params: Params
    overrides: list[str]
    folder: Path
    lock: BinaryIO  # of the folder; until it is closed here and in the run, which inherits it
    settings: StudySettings
    is_poor: Callable[[Sequence[float]], bool]  # asked after each validation, with all their wins
    begin: float = field(default_factory=time.monotonic, init=False)
    seen: str = field(default="begins", init=False)  # what its run logs, in words
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _said: int = field(default=0, init=False)  # bytes in output.log before the child
    _left: int = field(default=RETRIES, init=False)
    _log: tuple[int, int] = field(default=(-1, 0), init=False)  # metrics.jsonl: inode, bytes read
    _records: list[dict[str, Any]] = field(default_factory=list, init=False)  # what it says

    @property
    def path(self) -> Path | None:  # the newest run folder
        return max((file.parent for file in self.folder.glob("*/manifest.json")), default=None)

    def step(self) -> Row | None:
        """Start, continue or look at the run. Returns state and figures of a trial that ended."""
        child, wins = self._child, self._list_wins()
        if child is not None and child.poll() is None:
            self._look()
            known, wins = len(wins), self._list_wins()
            if known < len(wins) < self.settings.budget.validations and self.is_poor(wins):
                self.stop()
                return {"state": PRUNED, WINS: None, **self._describe({})}
            return None
        self.stop()
        if (summary := self._read_summary()) is not None:
            best = summary.get("val_win_rate")  # validation wins of the best checkpoint
            if best is None or not math.isfinite(best):
                return _fail(f"val_win_rate in {self.path} is {best}, not a number")
            return {"state": COMPLETE, WINS: float(best), **self._describe(summary)}
        if child is not None:
            code = child.returncode
            cause = self._explain_failure(code)
            if not self._left or not (code < 0 or code in _STOPPED):
                return _fail(cause)
            self._left -= 1
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
        given = [*self.overrides, f"output_dir={quote(str(self.folder))}"]
        if self.path:
            given = [f"resume={quote(str(self.path))}"]
        usable = getattr(os, "sched_getaffinity", None)  # not on a Mac
        cores = len(usable(0)) if usable else os.cpu_count() or 1
        threads = max(cores // self.settings.jobs, 1)
        with open(self.folder / "output.log", "ab") as output:
            self._said = output.tell()
            self._child = subprocess.Popen(
                [*train_command(), *given],
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
        file, read = self._log
        if file != path.stat().st_ino:  # a resumed run has cut it off, in a file of its own
            file, read, self._records = path.stat().st_ino, 0, []
        records, read = StepLog(path).read_on(read)
        self._log, self._records = (file, read), [*self._records, *records]
        if records:
            steps = read_config(path.parent).get("trainer", {}).get("steps", "?")
            wins = [f", validation {100 * value:.1f} %" for value in self._list_wins()[-1:]]
            self.seen = "".join([f"step {max(r['step'] for r in self._records)}/{steps}", *wins])

    def _list_wins(self) -> list[float]:
        """The wins of each validation but the one before training.

        Validations of the same number mean equal shares of the budget.
        """
        return [r[CURVE] for r in self._records if r["step"] and r.get(CURVE) is not None]

    def _read_summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json" if self.path else None
        return read_json(path) if path and path.exists() else None

    def _describe(self, summary: Mapping[str, Any]) -> Row:
        """What the tables show of a trial, so that they need no run folder."""
        self._look()
        records = self._records
        steps = [record for record in records if record["step"] > 0]
        spread = [record[SPREAD] for record in steps if record.get(SPREAD) is not None]
        return {
            "run": str(self.path).removeprefix(f"{ROOT}/"),
            "best_step": summary.get("best_step"),
            "games": max((record.get(GAMES) or 0.0 for record in steps), default=0.0),
            "seconds": sum(record.get(SECONDS) or 0.0 for record in steps),
            "no_spread": sum(spread) / len(spread) if spread else None,
            **{f"test_{name}": summary[name] for name in TESTED if name in summary},
            "curve": [[r.get(GAMES) or 0.0, r[CURVE]] for r in records if r.get(CURVE) is not None],
            "lineage": summary.get("lineage"),
            "metrics": average_last_quarter(steps, self.settings.analysis.metrics),
        }

    def _explain_failure(self, code: int) -> str:
        """Why a run failed: its own error line, or the last line that it wrote."""
        log = self.folder / "output.log"
        text = log.read_bytes()[self._said :].decode("utf-8", "replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
        last = (errors or said or ["it wrote nothing"])[-1]
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{last} ({ended}, no summary.json; full output in {log})"


def _fail(cause: str) -> Row:
    return {"state": FAILED, WINS: None, "cause": cause}


def average_last_quarter(
    steps: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, float]:
    """The mean of each metric over the last quarter of the steps; none for one without a value."""
    last = steps[-math.ceil(len(steps) / 4) :]
    known = {name: [row[name] for row in last if row.get(name) is not None] for name in names}
    return {name: sum(values) / len(values) for name, values in known.items() if values}
