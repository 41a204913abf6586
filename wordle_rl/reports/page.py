"""The page of one run, or of several beside each other: one file that opens offline.

With one run the players are the model before and after training, with several the best of each.
The page loads nothing, and the template engine escapes all texts of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from wordle_rl.evaluation.boards import choose_pairs
from wordle_rl.reports.pictures import (
    Picture,
    board_picture,
    compared_pictures,
    player_pictures,
    run_pictures,
    to_svg,
    write_png,
)
from wordle_rl.reports.run import (
    Board,
    Difference,
    Estimate,
    Result,
    Run,
    difference,
    first_boards,
    read_run,
)
from wordle_rl.reports.solvers import OPTIMUM, OPTIMUM_TITLE, solvers_of
from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.folder import given_name

PAGE = "report.html"  # in the folder of a run
COMPARISON = "comparison.html"  # beside the first of several runs
_TEMPLATES = Path(__file__).with_name("templates")
_NONE = "–"
_SECRETS = {"test": "test secrets", "all": "all answers", "validation": "validation secrets"}
_MOST_GAMES = 2_500  # secrets in the filter; the original lists have 2,315
_MOST_TEXTS = 300  # of them with the texts of unreadable answers
_PAIRS = 6  # secrets side by side
_FEW = 5  # players in the filter
_MOST_STEPS = 40  # of the table of wins
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
    "reward": ("reward of a game", 1, 2),
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column names its rows. note: how to read it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def write_report(
    folders: Sequence[Path], defaults: Mapping[str, str], out: Path | None = None, png: bool = False
) -> list[Path]:
    """Write the page of one or several runs. Returns its path, then those of its pictures.

    defaults: setting -> its default. out: None for report.html in the run's folder, or for
    comparison.html beside the first of several. png: also write the page's pictures beside it.
    """
    runs = [read_run(folder) for folder in folders]
    if out is None:
        several = folders[0].resolve().parent / COMPARISON
        out = folders[0] / PAGE if len(runs) == 1 else several
    page, pictures = make_page(runs, defaults)
    write_bytes(out, page.encode("utf-8", "replace"))  # halves of surrogate pairs have no UTF-8
    return [out, *(write_png(picture, out.parent) for picture in pictures * png)]


def make_page(runs: Sequence[Run], defaults: Mapping[str, str]) -> tuple[str, list[Picture]]:
    """The HTML of a page, and its pictures, with the boards as one of them."""
    runs = _with_distinct_names(runs)
    one = runs[0] if len(runs) == 1 else None
    players = one.results if one else [replace(r.best, label=r.name) for r in runs if r.best]
    kinds = {run.secrets for run in runs if run.results}
    what = _SECRETS.get(kinds.pop() if len(kinds) == 1 else "", "secrets")
    solvers = _solvers(runs)
    everyone = [*(reversed(players) if one else players), *solvers]
    standings = []
    if everyone:
        strong, optimum = len(players), bool(solvers)
        standings = player_pictures(everyone, what, strong=strong, optimum=optimum)
    curves = run_pictures(one) if one else compared_pictures(runs)
    pairs = _choose_boards(players)
    labels = [player.label for player in players]
    boards = [board_picture(pairs, (labels[0], labels[1]))] if pairs else []
    names = [run.name for run in runs]
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    engine.filters["svg"] = to_svg
    html = engine.get_template("page.html.j2").render(
        title=f"Run {one.name}" if one else f"{len(runs)} runs: {' and '.join(names[:3])}"
        + " and others" * (len(runs) > 3),
        css=Markup(_read("page.css")), script=Markup(_read("games.js")),
        facts=[_label(run, one, _describe(run)) for run in runs],
        missing=[_label(run, one, line) for run in runs for line in run.missing],
        headline=_headline(one, what) if one else _compare(players, what), what=what,
        known=bool(solvers), standings=standings, curves=curves,
        validations=_validations_table(runs),
        results=_result_tables(players, everyone, what, optimum=bool(solvers)),
        lineage=[_label(run, one, run.lineage) for run in runs if run.lineage],
        measures=_measures_table(players, what) if players else None,
        labels=labels, pairs=pairs, games=_game_data(players), settings=_settings(runs, defaults),
        stages=_stages_table(one.stages) if one and one.stages else None, facts_table=_facts(runs),
    )  # fmt: skip
    return html, [*standings, *curves, *boards]


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _label(run: Run, one: Run | None, text: str) -> str:
    return text if one else f"{run.name}: {text}"


def _with_distinct_names(runs: Sequence[Run]) -> list[Run]:
    """Runs of one name also get the settings in which they differ, or else a number."""
    named = []
    for number, run in enumerate(runs, 1):
        same = [other.settings or {} for other in runs if other.name == run.name]
        own = run.settings or {}
        told = " ".join(
            f"{key.rpartition('.')[2]}={value}"
            for key, value in own.items()
            if any(other.get(key) != value for other in same)
        )
        if len(same) > 1:
            short = told and len(told) <= 40 and sum(other == own for other in same) == 1
            run = replace(run, name=f"{run.name} {told if short else f'({number})'}")
        named.append(run)
    return named


def _describe(run: Run) -> str:
    """The line below the title."""
    manifest, choices = run.manifest, run.manifest.get("choices", {})
    parts = [
        str(manifest.get("status", "status unknown")),
        "no step yet" if run.metrics.empty else f"{run.metrics.index[-1]} steps",
        "" if run.seconds is None else duration(run.seconds),
        str(manifest.get("started", ""))[:19].replace("T", " "),
        *(f"{k}={choices[k]}" for k in ("model", "algorithm", "reward") if k in choices),
    ]
    return " · ".join(filter(None, parts))


def _solvers(runs: Sequence[Run]) -> list[Result]:
    """The scripted players on the secrets that were played, teachers first, then by wins."""
    for run in runs:
        played = next((result for result in reversed(run.results) if result.boards), None)
        if played and (found := solvers_of(run, [board.secret for board in played.boards])):
            teachers = {name for other in runs for name in other.teachers}
            names = sorted(found, key=lambda name: (name not in teachers, found[name].wins.value))
            return [found[name] for name in names]
    return []


# -- what is said ---------------------------------------------------------------------------------


def _headline(run: Run, what: str) -> list[str]:
    """The result of a run in sentences."""
    first, last = run.start, run.best
    lines = []
    if first is None and last is None:
        lines.append("This run has no result yet.")
    elif first is None or last is None:
        (only,) = run.results
        label = f"{only.label[:1].upper()}{only.label[1:]}"
        lines.append(f"{label}, the model wins {_percent(only.wins)} % of {what}.")
    elif last.step == 0:
        lines.append(
            f"The best checkpoint is step 0, the start: it wins {_percent(last.wins)} % of {what}, "
            "and no later validation was better. So this run shows no improvement."
        )
    else:
        lines.append(
            f"The model wins {_percent(last.wins)} % of {what} {last.label}, and "
            f"{_percent(first.wins)} % {first.label}."
        )
        if found := difference(first, last):
            lines.append(_describe_difference(found, "a change"))
    if run.secrets == "validation":
        lines += [
            f"On {one.games} test secrets, played greedily, the model wins {_percent(one.wins)} % "
            f"{one.label}."
            for one in run.reports
        ]
    return lines


def _compare(players: Sequence[Result], what: str) -> list[str]:
    """The results of several runs in sentences, each against the first."""
    if not players:
        return ["None of these runs has a result yet."]
    lines = [f"{players[0].label} wins {_percent(players[0].wins)} % of {what}."]
    for player in players[1:]:
        found = difference(players[0], player)
        more = f" {_describe_difference(found, 'a difference')}" if found else ""
        lines.append(f"{player.label} wins {_percent(player.wins)} %.{more}")
    if what == "secrets":
        lines.append("Some of these runs played test secrets and others validation secrets.")
    return lines


def _describe_difference(found: Difference, what: str) -> str:
    """A gain in wins in a sentence, with what its interval allows to say."""
    text = (
        f"On the same {found.secrets} secrets this is {what} of {_points(found.wins)} points "
        f"(95 % interval): {found.only_second} secrets went better and {found.only_first} worse."
    )
    _, low, high = found.wins
    if low is not None and high is not None and low <= 0 <= high:
        text += " The interval contains 0, so whether wins differ is undecided."
    return text


# -- tables ---------------------------------------------------------------------------------------


def _result_tables(
    players: Sequence[Result], everyone: Sequence[Result], what: str, *, optimum: bool
) -> list[Table]:
    if not everyone:
        return []
    rows = [
        [
            result.label, str(result.games) if result.games else _NONE, _percent(result.wins),
            _interval(result.guesses, 1, ".2f"), _measure(result, "consistency"),
            _measure(result, "bits_ratio"),
        ]
        for result in everyone
    ]  # fmt: skip
    if optimum:
        rows.append([OPTIMUM_TITLE, "2315", "100.0", f"{OPTIMUM.value:.2f}", _NONE, _NONE])
    lost_as = 1 + max(result.max_turns for result in everyone)
    tables = [
        Table(
            caption=f"Players on {what}, with 95 % intervals",
            columns=["player", "games", "wins, %", f"mean guesses, a loss as {lost_as}",
                     "fits all clues, %", "information, %"],
            rows=rows,
            note="Information is what the guesses were expected to tell, of the most possible.",
        )
    ]  # fmt: skip
    if len(players) > 1 and any(player.step for player in players[1:]):
        tables.append(_differences_table(players))
    return tables


def _differences_table(players: Sequence[Result]) -> Table:
    """Each player against the first, secret by secret."""
    rows = []
    for player in players[1:]:
        found = difference(players[0], player)
        if found is None:
            rows.append([player.label, "0", *[_NONE] * 5])
            continue
        p_value = "<\u00a00.001" if found.p_value < 0.001 else f"{found.p_value:.3f}"
        rows.append([player.label, str(found.secrets), _points(found.wins),
                     _interval(found.guesses, 1, "+.2f"), str(found.only_second),
                     str(found.only_first), p_value])  # fmt: skip
    first = players[0].label
    return Table(
        caption=f"Against {first}, secret by secret",
        columns=["player", "shared secrets", f"wins, points more than {first}",
                 f"guesses, more than {first}", "secrets won more often",
                 "secrets won less often", "p"],
        rows=rows,
        note="Both play the same secrets, and intervals (95 %) are over the differences on each. p "
        "is of an exact sign test: how often chance alone would be as uneven.",
    )  # fmt: skip


def _validations_table(runs: Sequence[Run]) -> Table:
    """The curves of wins as numbers, for those who cannot see them: a column for each run."""
    steps = sorted({int(step) for run in runs for step in run.validations.index})
    most = -(-len(steps) // _MOST_STEPS) if steps else 1
    rows = []
    for step in [step for i, step in enumerate(reversed(steps)) if i % most == 0][::-1]:
        found = [run.validations[run.validations.index == step] for run in runs]
        ends: list[Any] = [
            [None if math.isnan(end) else end for end in one.filter(like="wins").to_numpy(float)[0]]
            if len(one) else None for one in found
        ]  # fmt: skip
        rows.append([str(step), *(_percent(Estimate(*one)) if one else _NONE for one in ends)])
    names = ["wins, %"] if len(runs) == 1 else [run.name for run in runs]
    return Table(caption="Validation games won", columns=["training step", *names], rows=rows)


def _measures_table(players: Sequence[Result], what: str) -> Table:
    """What guesses were like, a column for each player; with two of them, also the change."""
    rows = []
    for name, (title, scale, digits) in _MEASURES.items():
        values = [player.measures.get(name) for player in players]
        if all(value is None for value in values):
            continue
        row = [title, *(_measure(player, name) for player in players)]
        if len(players) == 2:
            first, last = values
            if first is None or last is None:
                row.append(_NONE)
            else:
                gain = round(scale * (last - first), digits) + 0.0  # no -0.0
                row.append(f"{gain:+.{digits}f}")
        rows.append(row)
    change = ["change"] * (len(players) == 2)
    counts = [" ".join(map(str, player.histogram.values())) or _NONE for player in players]
    rows.append(["games won in 1, 2, ... guesses, and lost", *counts, *[""] * len(change)])
    return Table(
        caption=f"What the guesses were like, on {what}",
        columns=["measure", *(player.label for player in players), *change], rows=rows,
    )  # fmt: skip


def _measure(player: Result, name: str) -> str:
    value, (_, scale, digits) = player.measures.get(name), _MEASURES[name]
    return _NONE if value is None else f"{scale * value:.{digits}f}"


def _settings(runs: Sequence[Run], defaults: Mapping[str, str]) -> Table | None:
    """What one run changed, or how several differ. None where it cannot be read."""
    known = [run.settings for run in runs if run.settings is not None]
    if len(known) < len(runs):
        return None
    rows = []
    for key in dict.fromkeys(key for found in (*known, defaults) for key in found):
        default, *values = (found.get(key, "") for found in (defaults, *known))
        if len({*values} | ({default} if len(runs) == 1 else set())) > 1:
            rows.append([key, *(_cut(value or _NONE) for value in (default, *values))])
    names = ["this run"] if len(runs) == 1 else [run.name for run in runs]
    differ = "from the default" if len(runs) == 1 else "between the runs"
    return Table(
        caption=f"Settings that differ {differ}", columns=["setting", "default", *names],
        rows=rows, note=f"{_NONE} is a setting that does not exist there.",
    )  # fmt: skip


def _stages_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    names = ("algorithm", "player", "protocol", "secrets", "held_out", "prompt", "form")
    return Table(
        caption="The runs that made the model, oldest first",
        columns=["run", "algorithm", "teacher", "protocol", "secrets", "held out", "prompt",
                 "form"],
        rows=[[_cut(given_name(str(stage.get("run")))),
               *(_cut(stage.get(name) or _NONE) for name in names)] for stage in stages],
        note="Secrets: how many words training games could have as their secret. Held out: how "
        "many validation and test words could not be among them.",
    )  # fmt: skip


def _facts(runs: Sequence[Run]) -> Table:
    """When and how each run was made, and what it took: a column for each."""
    columns = [_facts_of(run) for run in runs]
    rows = [[name, *(_cut(column[name] or _NONE) for column in columns)] for name in columns[0]]
    rows = [row for row in rows if {*row[1:]} != {_NONE}]
    names = ["value"] if len(runs) == 1 else [run.name for run in runs]
    return Table(caption="How it was made", columns=["what", *names], rows=rows)


def _facts_of(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    git, versions, seeds, computing, begun = (
        found if isinstance(found := manifest.get(name), Mapping) else {}
        for name in ("git", "versions", "seeds", "computing", "init_from")
    )
    revision = str(git.get("revision", ""))
    games, memory = run.series("total/games"), run.series("memory/resident_gb")
    return {
        "folder": run.folder.resolve().name,
        "status": manifest.get("status", "unknown"),
        "why it failed": manifest.get("status_reason"),
        "started": manifest.get("started"),
        "took": None if run.seconds is None else duration(run.seconds),
        "training steps took": duration(run.series("time/step").sum()),
        "training games": f"{games.iloc[-1]:,.0f}" if len(games) else None,
        "memory, GB": f"{memory.max():.2f}" if len(memory) else None,
        "command": " ".join(manifest.get("command", [])),
        "resumed": len(manifest.get("resumes", [])),
        "seed": str(seeds.get("seed", "")),
        "model": manifest.get("model"),
        "starts from": begun.get("run"),
        "precision": computing.get("precision"),
        "revision": revision[:12] + " with changes" * bool(revision and git.get("dirty")),
        "machine": manifest.get("platform"),
        "Python": manifest.get("python"),
        "torch": versions.get("torch"),
    }


def _percent(value: Estimate) -> str:
    return _interval(value, 100, ".1f")


def _points(value: Estimate) -> str:
    return _interval(value, 100, "+.1f")


def _interval(value: Estimate, scale: float, form: str) -> str:
    text = f"{scale * value.value:{form}}"
    if value.low is None or value.high is None:
        return text
    # Blanks that do not break keep an interval in one line.
    return f"{text} ({scale * value.low:{form}}\u00a0to\u00a0{scale * value.high:{form}})"


def _cut(text: object) -> str:
    text = str(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def duration(seconds: float) -> str:
    """A time in the unit that people would use."""
    if not math.isfinite(seconds) or seconds < 0:
        return _NONE
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


# -- games ----------------------------------------------------------------------------------------


def _choose_boards(players: Sequence[Result]) -> list[tuple[Board, Board]]:
    """Games of the first two players: half with another result, by hash order alone."""
    if len(players) < 2:
        return []
    one, other = (first_boards(player) for player in players[:2])
    pairs = [(board, other[secret]) for secret, board in one.items() if secret in other]
    changed, same = choose_pairs(pairs, _PAIRS)
    return [*changed, *same]


def _game_data(players: Sequence[Result]) -> dict[str, Any] | None:
    """All games for the page's script: of each secret its name, then [won, rows] of each player."""
    shown = [player for player in players if player.boards][:_FEW]
    games = [first_boards(player) for player in shown]
    secrets = list(dict.fromkeys(secret for found in games for secret in found))
    rows = []
    for number, secret in enumerate(secrets[:_MOST_GAMES]):
        row: list[Any] = [secret[:5]]
        for found in games:
            board = found.get(secret)
            texts = number < _MOST_TEXTS
            row.append(board and [board.won, [_row(*turn, texts=texts) for turn in board.rows]])
        rows.append(row)
    if not rows:
        return None
    left_out = len(secrets) - len(rows)
    return {"players": [player.label for player in shown], "games": rows, "left_out": left_out}


def _row(word: str, marks: str, note: str, text: str, *, texts: bool) -> list[str]:
    cells = [word[:5], marks, note, text if texts else ""]
    while len(cells) > 1 and not cells[-1]:
        cells.pop()
    return cells
