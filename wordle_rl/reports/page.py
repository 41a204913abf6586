"""The page of one run, or of several beside each other: one file that opens offline.

With one run the players are the model before and after training, with several the best of each.
The page loads nothing, and the template engine escapes all texts of a run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from wordle_rl.reports.group import tell_group
from wordle_rl.reports.pictures import Picture, curve_pictures, player_pictures, to_svg
from wordle_rl.reports.run import (
    GUESSES,
    OPTIMUM,
    OPTIMUM_TITLE,
    WINS,
    Estimate,
    Result,
    Run,
    difference,
    name_player,
    read_run,
    solvers_of,
)
from wordle_rl.runs.config import flatten
from wordle_rl.runs.files import render_template, write_bytes
from wordle_rl.runs.folder import label_run

PAGE = "report.html"  # in the folder of a run
COMPARISON = "comparison.html"  # beside the first of several runs
_TEMPLATE = Path(__file__).parent / "templates" / "page.html.j2"
_NONE = "–"
_SECRETS = {"test": "test secrets", "all": "all answers"}
_SAME = ["output_dir", "resume"]  # settings that say nothing about a run
_MOST_GAMES = 2_500  # secrets in the filter; the original lists have 2,315
_FEW = 5  # players in the filter, and validations
_MOST_STEPS = 40  # of the table of wins
_SECONDS = 30  # until a browser opens the page of a run that trains anew
_LONGEST = 300  # characters of a cell
# Entry of a report or a validation -> how it is called, its scale and its digits.
_MEASURES = {
    "consistency": ("guesses that fit all clues, %", 100, 1),
    "consistency_placed": ("guesses that keep each ✓ letter in its place, %", 100, 1),
    "consistency_elsewhere": ("guesses that use each - letter elsewhere, %", 100, 1),
    "consistency_absent": ("guesses without any x letter, %", 100, 1),
    "bits_ratio": ("information of the guesses, % of the most possible", 100, 1),
    "bits_gained": ("information of a guess, bits", 1, 2),
    "expected_remaining": ("possible secrets left after a guess", 1, 1),
    "non_words": ("non-words, % of turns", 100, 1),
    "repeats": ("repeated guesses, % of turns", 100, 1),
    "format_compliance": ("answers with a readable guess, %", 100, 1),
    "regret": ("guesses more than greedy entropy needs", 1, 2),
    "opener_bits": ("information of the first guess, bits", 1, 2),
    "opener_rank": ("rank of the first guess among allowed words", 1, 0),
    "distinct_openers": ("different first guesses, % of games", 100, 1),
    "plurals": ("guesses that look like plurals, %", 100, 1),
    "answer_guesses": ("guesses in the list of answers, %", 100, 1),
    "tokens_per_answer": ("tokens of an answer", 1, 1),
    "guess_reward": ("reward of a guess", 1, 3),
}


def write_report(
    folders: Sequence[Path],
    defaults: Mapping[str, str],
    out: Path | None = None,
    more: Sequence[Picture] = (),
) -> Path:
    """Write the page of one or several runs. Returns its path.

    defaults: setting -> its default. out: None for report.html in the run's folder, or for
    comparison.html beside the first of several. more: pictures behind the curves.
    """
    runs = [read_run(folder) for folder in folders]
    if out is None:
        comparison = folders[0].resolve().parent / COMPARISON
        out = folders[0] / PAGE if len(runs) == 1 else comparison
    page = make_page(runs, defaults, more)
    write_bytes(out, page.encode("utf-8", "replace"))  # halves of surrogate pairs have no UTF-8
    return out


def make_page(
    runs: Sequence[Run], defaults: Mapping[str, str], more: Sequence[Picture] = ()
) -> str:
    """The HTML of a page. Runs of one name are called by their command lines, and a number."""
    runs = _name_apart(runs)
    names = [run.name for run in runs]
    one = runs[0] if len(runs) == 1 else None
    players = one.reports if one else [_call(r.best, r.name) for r in runs if r.best]
    what = " or ".join(dict.fromkeys(map(_secrets_of, players))) or "test secrets"
    secrets = next((list(player.first_boards) for player in players if player.boards), [])
    solvers = solvers_of(runs[0], secrets)
    everyone = [*(reversed(players) if one else players), *solvers]
    standings, curves = [], curve_pictures(runs, solvers_of(runs[0]))
    if one and one.trains:
        curves = curves[:1]  # pictures take most of the time that a run spends on its page
    elif everyone:
        standings = player_pictures(everyone, what, strong=len(players), optimum=bool(solvers))
    columns = {"this run": runs[0]} if one else dict(zip(names, runs, strict=True))
    manifests: Any = {name: flatten(run.manifest) for name, run in columns.items()}

    def of_each(texts: Sequence[str]) -> list[str]:
        return [t if one else f"{name}: {t}" for name, t in zip(names, texts, strict=True) if t]

    return render_template(
        _TEMPLATE,
        escape=True,
        svg=to_svg,
        title=_title(names),
        facts=of_each([_describe(run) for run in runs]),
        missing=of_each([run.missing for run in runs]),
        headline=_headline(one, players),
        what=what,
        known=bool(solvers),
        standings=standings,
        curves=[*curves, *more],
        results=_results_table(everyone, optimum=bool(solvers)),
        lineage=of_each([run.lineage for run in runs]),
        validations=_validations_table(columns),
        diagnosis=of_each([" ".join(run.diagnosis) for run in runs]),
        story=_tell_group(one),
        live=_describe_training(one) if one and one.trains else "",
        seconds=_SECONDS,
        measures=_measures_table(players),
        games=[
            *filter(None, [_game_data(what, players), *(_compare_validations(one) if one else [])])
        ],
        settings=_settings_table(columns, defaults),
        differ="from the default" if one else "between the runs",
        manifests=_table(pd.DataFrame(manifests), "entry"),
    )


def _name_apart(runs: Sequence[Run]) -> list[Run]:
    """The runs, with names of which no two are equal."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [f"{label_run(run.manifest)} ({n})" for n, run in enumerate(runs, 1)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _tell_group(one: Run | None) -> dict[str, Any] | None:
    """One group of the last step that validated, with its tables."""
    if one is None or one.group is None:
        return None
    story = tell_group(one.group)
    tables = [(caption, _table(frame, "game")) for caption, frame in story.tables]
    return {**story._asdict(), "tables": tables}


def _call(player: Result, name: str) -> Result:
    return replace(player, label=name_player(name, player.measures))


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Run {names[0]}"
    others = " and others" if len(names) > 3 else ""
    return f"{len(names)} runs: {' and '.join(names[:3])}{others}"


def _compare_validations(run: Run) -> list[Any]:
    """The games of the last validations, each beside those of the first."""
    results = [
        Result(label=f"step {step}", measures={}, boards=games)
        for step, games in run.validated.items()
    ]
    name = f"validation ({run.validated_as})" if run.validated_as else "validation"
    return [
        _game_data(f"{name}, {result.label}", [results[0], result])
        for result in results[1:][-_FEW:]
    ]


def _describe(run: Run) -> str:
    """The line below the title."""
    manifest, choices = run.manifest, run.manifest.get("choices", {})
    parts = [
        str(manifest.get("status", "status unknown")),
        "no step yet" if run.metrics.empty else f"{run.metrics.index[-1]} steps",
        "" if math.isnan(run.seconds) else f"{run.seconds / 60:.1f} min",
        str(manifest.get("started", ""))[:19].replace("T", " "),
        *(f"{k}={choices[k]}" for k in ("model", "algorithm", "reward") if k in choices),
    ]
    return " · ".join(filter(None, parts))


def _describe_training(run: Run) -> str:
    steps = run.settings.get("trainer.steps", "?")
    step = 0 if run.metrics.empty else run.metrics.index[-1]
    return (
        f"The run trains. This page is from {datetime.now():%Y-%m-%d %H:%M:%S}, after step {step} "
        f"of {steps}, and is written again at each validation."
    )


# -- what is said ---------------------------------------------------------------------------------


def _secrets_of(player: Result) -> str:
    return _SECRETS[player.measures.get("split", "test")]


def _headline(one: Run | None, players: Sequence[Result]) -> list[str]:
    """The result in sentences, each player against the first."""
    if not players:
        return ["There is no result yet."]
    wins = [f"{_interval(player.estimate(WINS), 100, '.1f')} %" for player in players]
    (first, *others), what = players, _secrets_of(players[-1])
    if one is None:
        lines = [
            f"{player.label} wins {share} of {_secrets_of(player)}."
            for player, share in zip(players, wins, strict=True)
        ]
        for player in others:
            lines += _describe_difference(first, player, f"{player.label} against the first")
        return lines
    if one.best and one.best.step == 0:
        return [
            f"{one.best.label[0].upper()}{one.best.label[1:]}. It wins {wins[-1]} of {what}, and "
            "no later validation was better. So the run's model is its start."
        ]
    if not others:
        return [f"The model wins {wins[0]} of {what} {first.label}."]
    [last] = others
    line = f"The model wins {wins[1]} of {what} {last.label}, {wins[0]} {first.label}."
    return [line, *_describe_difference(first, last, "The change")]


def _describe_difference(first: Result, second: Result, what: str) -> list[str]:
    """The gain of the second player in a sentence, with what its interval allows to say."""
    gain = difference(first, second)
    if gain is None:
        return []
    p_value = "<\u00a00.001" if gain.p_value < 0.001 else f"=\u00a0{gain.p_value:.3f}"
    text = (
        f"{what} on the same {gain.secrets} secrets, with 95 % intervals: "
        f"{_interval(gain.wins, 100, '+.1f')} points of wins and "
        f"{_interval(gain.guesses, 1, '+.2f')} guesses. {gain.only_second} secrets went better "
        f"and {gain.only_first} worse (sign test: p\u00a0{p_value})."
    )
    _, low, high = gain.wins
    if low is not None and high is not None and low <= 0 <= high:
        text += " The interval of wins contains 0, so whether wins differ is undecided."
    return [text]


# -- tables ---------------------------------------------------------------------------------------


def _table(frame: pd.DataFrame, corner: str) -> Markup:
    """Texts as a table, "" without rows. corner: what the names of the rows are."""
    if frame.empty:
        return Markup()
    with pd.option_context("display.max_colwidth", _LONGEST):
        html = frame.rename_axis(index=None, columns=corner).to_html(
            border=0, na_rep=_NONE
        )  # it escapes
    return Markup(html)


def _results_table(everyone: Sequence[Result], *, optimum: bool) -> Markup:
    lost_as = 1 + max((result.max_turns for result in everyone), default=0)
    rows = {
        result.label: {
            "games": str(result.measures.get("games", _NONE)),
            "wins, %": _interval(result.estimate(WINS), 100, ".1f"),
            f"mean guesses, a loss as {lost_as}": _interval(result.estimate(GUESSES), 1, ".2f"),
        }
        for result in everyone
    }
    if optimum:
        cells = ("2315", "100.0", f"{OPTIMUM.value:.2f}")
        rows[OPTIMUM_TITLE] = dict(zip(next(iter(rows.values())), cells, strict=True))
    return _table(pd.DataFrame.from_dict(rows, orient="index"), "player")


def _validations_table(runs: Mapping[str, Run]) -> Markup:
    """The curves of wins as numbers, for those who cannot see them: a column for each run."""
    ends = [WINS, f"{WINS}_low", f"{WINS}_high"]
    columns: Any = {
        name_player(name, {"drawn": run.validated_as}): pd.Series(
            {
                step: _interval(Estimate(*run.validations.loc[step, ends]), 100, ".1f")
                for step in run.validations.index
            }
        )
        for name, run in runs.items()
    }
    frame: Any = pd.DataFrame(columns).sort_index()
    return _table(frame[:: -(-len(frame) // _MOST_STEPS) or 1], "training step")


def _measures_table(players: Sequence[Result]) -> Markup:
    """What guesses were like, a column for each player."""
    columns: dict[str, Any] = {
        player.label: {
            title: f"{scale * player.measures[name]:.{digits}f}"
            for name, (title, scale, digits) in _MEASURES.items()
            if player.measures.get(name) is not None
        }
        for player in players
    }
    return _table(pd.DataFrame(columns), "measure")


def _settings_table(runs: Mapping[str, Run], defaults: Mapping[str, str]) -> Markup:
    """Settings of one run that differ from the defaults, or of several that differ."""
    columns: Any = {"default": defaults, **{name: run.settings for name, run in runs.items()}}
    frame: Any = pd.DataFrame(columns).drop(_SAME, errors="ignore")
    subset = frame if len(runs) == 1 else frame[list(runs)]
    return _table(frame[subset.nunique(axis=1, dropna=False) > 1], "setting")


def _interval(value: Estimate, scale: float, form: str) -> str:
    text = f"{scale * value.value:{form}}"
    if value.low is None or value.high is None or math.isnan(value.low):
        return text
    # Blanks that do not break keep an interval in one line.
    return f"{text} ({scale * value.low:{form}}\u00a0to\u00a0{scale * value.high:{form}})"


# -- games ----------------------------------------------------------------------------------------


def _game_data(name: str, players: Sequence[Result]) -> dict[str, Any] | None:
    """Games for the page's script: of each secret its name, then [won, rows] of each player."""
    picks = [player for player in players if player.boards][:_FEW]
    games = [player.first_boards for player in picks]
    secrets = list(dict.fromkeys(secret for boards in games for secret in boards))[:_MOST_GAMES]
    rows = [
        [secret, *((board := boards.get(secret)) and [board.won, board.rows] for boards in games)]
        for secret in secrets
    ]
    return {"name": name, "players": [one.label for one in picks], "games": rows} if rows else None
