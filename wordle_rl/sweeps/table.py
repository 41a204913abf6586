"""results.csv: a line for each trial, with all that a study needs to continue elsewhere.

The file and study.json stay when the database and the runs are gone. Both the report and the next
command of the study then read the trials from here.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from wordle_rl.runs.paths import ROOT, module_command
from wordle_rl.runs.untrusted import FolderError, read_text
from wordle_rl.sweeps.parse_params import parse_params
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.records import LINEAGE, TEST_GUESSES, TEST_WINS
from wordle_rl.sweeps.results import Result
from wordle_rl.sweeps.space import Choice, Scalar, Space

FILE = "results.csv"
_BEFORE, _VALUE = ("trial", "round", "state"), "val_win_rate"  # columns around the parameters
_TEXTS = ("run", "cause", "began", "ended", LINEAGE)  # figures that are no numbers
_FIGURES = ("run", "best_step", "games", "seconds", "games_per_second", "no_spread",
            TEST_WINS, TEST_GUESSES, "cause", "began", "ended", "curve", LINEAGE)  # fmt: skip
_STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def format_csv(results: Sequence[Result]) -> str:
    """The text of results.csv. Run folders are relative to the project."""
    params = list(dict.fromkeys(name for r in results for name in r.params))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_BEFORE, *params, _VALUE, *_FIGURES])
    for r in results:
        values = [r.params.get(name) for name in params]
        part = "confirmation" if r.confirms else "search"
        figures = {name: _plain(name, r.figures.get(name)) for name in _FIGURES}
        if figures["run"] is not None:
            figures["run"] = str(figures["run"]).removeprefix(f"{ROOT}/")
        writer.writerow([r.number, part, r.state, *values, r.value, *figures.values()])
    return out.getvalue()


def _plain(name: str, figure: Any) -> Any:
    """A figure as it is written, the same however often it is read and written again."""
    if name == "curve" and figure is not None:
        return json.dumps([[float(games), float(wins)] for games, wins in figure])
    return figure if figure is None or name in _TEXTS else float(figure)


def read_table(folder: Path, space: Space) -> list[Result]:
    """The trials in a study's results.csv. Raises FileNotFoundError or FolderError.

    space: of the study's search, which the columns must have.
    """
    path = folder / FILE
    if not path.is_file():
        raise FileNotFoundError(path)
    rows = list(csv.DictReader(read_text(path).splitlines()))
    if not rows:
        return []
    columns = list(rows[0])
    if not {*_BEFORE, _VALUE} <= rows[0].keys():
        raise FolderError(f"{path}: not a table of trials; {module_command('study')} writes it")
    names = columns[len(_BEFORE) : columns.index(_VALUE)]
    if missing := [name for name in space if name not in names]:
        raise FolderError(f"{path}: has no column {missing[0]}, which the study varies")
    return [_read_row(path, row, names, space) for row in rows]


def _read_row(
    path: Path, row: Mapping[str, str | None], names: Sequence[str], space: Space
) -> Result:
    given = {n: v for n, v in row.items() if n not in (*_BEFORE, _VALUE, *names) and v}
    confirms = row["round"] == "confirmation"
    # A confirmation has parameters of its own, and its row leaves the columns of the search empty.
    own = [name for name in names if (row[name] if confirms else name in space)]
    if None in row.values():
        raise FolderError(f"{path}: the line of trial {str(row['trial'])[:20]!r} is cut off")
    state, states = str(row["state"]), (*_STATES, "running", "waiting")
    if state not in states:
        raise FolderError(f"{path}: a trial's state is {', '.join(states)}, not {state[:20]!r}")
    try:
        curve = json.loads(given.pop("curve", "null") or "null")
        figures: dict[str, Any] = {n: v if n in _TEXTS else float(v) for n, v in given.items()}
        if curve is not None:
            figures["curve"] = [[float(games), float(wins)] for games, wins in curve]
        return Result(
            number=int(row["trial"] or ""), confirms=confirms, state=state,
            params={name: _read_value(name, row[name] or "") for name in own},
            value=float(row[_VALUE] or "") if row[_VALUE] else None, figures=figures,
        )  # fmt: skip
    except (ValueError, TypeError):
        raise FolderError(f"{path}: trial {str(row['trial'])[:20]!r} has no numbers") from None


def _read_value(name: str, text: str) -> Scalar:
    """A parameter's value from its text; names of arms may look like numbers."""
    if name == ARM:
        return text
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"": None, "True": True, "False": False}.get(text, text)


def read_space(identity: Mapping[str, Any]) -> Space:
    """The search space in study.json."""
    arms = tuple(identity.get("arms") or {})
    texts = {name: text for name, text in identity["params"].items() if name != ARM or not arms}
    space, _ = parse_params(texts)
    if arms:
        space[ARM] = Choice(values=arms, texts=arms)
    return space


def restore_trials(study: optuna.Study, results: Sequence[Result], space: Space) -> None:
    """Put finished trials into an empty Optuna study, each under its number."""
    for result in sorted(results, key=lambda r: r.number):
        if result.state not in _STATES:
            continue
        for _ in range(result.number - len(study.get_trials(deepcopy=False))):
            study.add_trial(create_trial(state=TrialState.FAIL))  # a number that nothing came of
        params = {name: _match(space[name], value) for name, value in result.params.items()}
        done = result.state != "failed"
        study.add_trial(
            create_trial(
                state=_STATES[result.state],
                value=result.value,
                params=params if done else {},
                distributions={n: _distribution(space[n]) for n in params} if done else {},
                user_attrs=dict(result.figures),
                system_attrs={} if done else {"fixed_params": params},
                intermediate_values=_reports(result) if done else {},
            )
        )


def _match(item: Any, value: Scalar) -> Scalar:
    """The value of a choice that is written in the same way."""
    if not isinstance(item, Choice):
        return value
    same = [one for one in item.values if str(one) == str(value)]
    return same[0] if same else value


def _reports(result: Result) -> dict[int, float]:
    """The trial's validations after the start, as the pruner saw them."""
    after = [wins for games, wins in result.figures.get("curve") or [] if games > 0]
    return dict(enumerate(after, 1))


def _distribution(item: Any) -> BaseDistribution:
    if isinstance(item, Choice):
        return CategoricalDistribution(item.values)
    if item.whole:
        return IntDistribution(
            int(item.low), int(item.high), log=item.log, step=int(item.step or 1)
        )
    return FloatDistribution(item.low, item.high, log=item.log, step=item.step)
