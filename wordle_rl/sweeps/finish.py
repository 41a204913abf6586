"""Before a study: what it can find. After it: its page, and the shipped verdicts beside its own."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.analysis import Effect, judge_study, list_pairs, read_study
from wordle_rl.sweeps.page import write_study
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import find_pilot, list_studies, plan_power, refuse_underpowered
from wordle_rl.sweeps.progress import format_table, print_line
from wordle_rl.sweeps.records import format_arm
from wordle_rl.sweeps.space import list_grid_points


def check_power(plan: StudyPlan, say: Callable[[str], None] = print_line) -> None:
    """Say what a study can find, and refuse it if that is less than it asks about.

    Also says which comparisons it leaves out. Raises ConfigError.
    """
    settings, analysis = plan.settings, plan.settings.analysis
    if analysis.comparisons and settings.sampler is None:
        arms = list_grid_points({name: item for name, item in plan.space.items() if name != "seed"})
        kept = list_pairs(arms, settings.default, analysis.comparisons, strict=False)  # type: ignore
        have = "; ".join(map(format_arm, arms))
        for name in [name for name in analysis.comparisons if name not in kept]:
            say(f"no comparison {name!r}: it names an arm that is not among {have}")
    if analysis.pilot is None:
        return
    pilot = find_pilot(settings.place, analysis.pilot)
    if not pilot.is_dir() and analysis.pilot not in list_studies():
        raise ConfigError(
            f"hydra.sweeper.analysis.pilot={analysis.pilot}: neither a study in {pilot.parent} "
            f"nor one of {', '.join(list_studies())}"
        )
    try:
        known = read_study(pilot)
    except ValueError as error:
        say(f"what this study can find is not known: {error}")
        return
    power = plan_power(list_grid_points(plan.space), settings.default, vars(analysis), known)  # type: ignore
    say("\n".join(power.format_lines()))
    if not analysis.underpowered:
        refuse_underpowered(power, settings.name)


def finish_study(plan: StudyPlan, say: Callable[[str], None] = print_line) -> None:
    """Write the page of a study. Print its verdicts, beside the shipped ones if there are any."""
    folder, shipped = plan.settings.place, ROOT / "sweeps" / plan.settings.name
    before: dict[str, Effect] = {}
    if (shipped / "results.csv").is_file() and shipped.resolve() != folder.resolve():
        before = {effect.name: effect for effect in judge_study(shipped)}
    table = Table(box=None, pad_edge=False)
    for title in ("comparison", "here", *(["shipped"] if before else [])):
        table.add_column(title, overflow="fold")
    for effect in judge_study(folder):
        known = [before[effect.name]] if effect.name in before else []
        table.add_row(effect.name, *map(_describe, [effect, *known]))
    if table.row_count:
        say(f"{format_table(table)}\n")
    say(f"report: {write_study(folder)}")


def _describe(effect: Effect) -> str:
    ends = f"{effect.low:+.2f} to {effect.high:+.2f}"
    return f"{effect.verdict}, {effect.difference:+.2f} ({ends})"
