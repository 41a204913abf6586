"""What a study finds of its earlier self, or of its pilot, before the first trial.

results.csv and study.json are enough to continue on another machine, where the database and the
runs are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.comparisons import list_pairs
from wordle_rl.sweeps.games import format_arm
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import list_studies, plan_power, refuse_underpowered
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.records import StudyRecord
from wordle_rl.sweeps.results import ReportError, Result
from wordle_rl.sweeps.rounds import DONE, Round
from wordle_rl.sweeps.space import list_grid_points
from wordle_rl.sweeps.table import FILE, read_table, restore_trials


@dataclass(frozen=True, kw_only=True)
class EarlierTrials:
    """The trials in results.csv, if they belong to this study."""

    folder: Path
    results: Sequence[Result]
    print_line: Callable[[str], None]

    @classmethod
    def read(
        cls, folder: Path, plan: StudyPlan, print_line: Callable[[str], None]
    ) -> EarlierTrials:
        """Raises FolderError for a damaged file."""
        results: Sequence[Result] = ()
        try:
            if StudyRecord.read(folder).identity == plan.identity():
                results = read_table(folder, plan.space)
        except FileNotFoundError:
            pass  # a new study
        return cls(folder=folder, results=results, print_line=print_line)

    def restore_search(self, study: optuna.Study, part: Round) -> None:
        search = [result for result in self.results if not result.confirms]
        restore_trials(study, search, part.space)
        if count := len(self._done(search)):
            self.print_line(
                f"{count} finished trials come from {self.folder / FILE}; to run them again here, "
                "give the study another name: hydra.sweeper.name=..."
            )

    def restore_confirmation(self, study: optuna.Study, part: Round, search: optuna.Study) -> None:
        """Restore the trials with fresh seeds, unless the search has gone on since they ran."""
        now = search.get_trials(deepcopy=False, states=DONE)
        if len(now) == len(self._done([r for r in self.results if not r.confirms])):
            restore_trials(study, [r for r in self.results if r.confirms], part.space)

    @staticmethod
    def _done(results: Sequence[Result]) -> list[Result]:
        return [result for result in results if result.state in ("complete", "pruned")]


def check_power(plan: StudyPlan, folder: Path, print_line: Callable[[str], None]) -> None:
    """Say what a new study can find, and refuse it if that is less than it asks about.

    Also says which comparisons it leaves out. folder: of its report. Raises ConfigError.
    """
    analysis = plan.settings.analysis
    if analysis.comparisons and plan.identity().get("grid"):
        arms = list_grid_points({name: item for name, item in plan.space.items() if name != "seed"})
        default: Any = plan.settings.default
        kept = list_pairs(arms, default, analysis.comparisons, strict=False)
        have = "; ".join(format_arm(arm) for arm in arms)
        for name in [name for name in analysis.comparisons if name not in kept]:
            print_line(f"no comparison {name!r}: it names an arm that is not among {have}")
    if analysis.pilot is None:
        return
    pilot = folder.parent / analysis.pilot
    if not pilot.exists() and analysis.pilot not in list_studies():
        raise ConfigError(
            f"hydra.sweeper.analysis.pilot={analysis.pilot}: neither a study in {folder.parent} "
            f"nor one of {', '.join(list_studies())}"
        )
    try:
        power = plan_power(plan.space, plan.settings.default, vars(analysis), read_study(pilot))
    except ReportError as error:
        print_line(f"what this study can find is not known: {error}")
        return
    print_line("\n".join(power.format_lines()))
    if not analysis.underpowered:
        refuse_underpowered(power, plan.settings.name)
