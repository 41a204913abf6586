"""Makes the pictures of README and docs/, light and dark, from three runs of the demo.

    for seed in 0 1 2; do python train.py seed=$seed output_dir=outputs/demo; done
    python research/what_rl_teaches.py outputs/demo/* --output outputs/learnt
    python research/make_pictures.py outputs/demo/* --turns outputs/learnt/turns.csv.gz

Without --turns it photographs the pages alone, of the first run.

demo: wins on the 315 test secrets, greedy every tenth step and drawn (four games a secret) at each
validation, a line for each run, beside three scripts; and one game before and after training, the
first test secret in hash order that the start lost and every run won. learnt: what the turns show.
report and watch: the pages themselves, in Chromium (extra `browser`). The colours are the pages'.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import what_rl_teaches as taught
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from wordle_rl import load_player
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.reports.run import Board, Run, read_run
from wordle_rl.runs.figures import BLUE, GREEN, RED, new_figure, save_figure
from wordle_rl.runs.paths import PACKAGE, ROOT
from wordle_rl.words.lists import load_words

DOCS = ROOT / "docs"
SCRIPTS = {  # wins on the test secrets; docs/FINDINGS.md, "Other players"
    "teacher": 90.0, "random answer that fits": 98.1, "most informative guess": 100.0,
}  # fmt: skip
WIDE = 620  # pixels of the browser's window; at 400 a page's text is still 10 high
SECRET = "mound"  # watched


class Look(NamedTuple):
    """The colours of report.html in one scheme."""

    suffix: str
    paper: str
    ink: str
    muted: str
    tiles: tuple[str, str, str]  # in place, elsewhere, absent
    lines: tuple[str, str]  # greedy, drawn: at least 4.5 to 1 against the paper


def looks() -> list[Look]:
    css = (PACKAGE / "reports" / "templates" / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in css.split("@media")[:2]
    )
    schemes = (("", light, (BLUE, "#b84e00")), ("_dark", light | dark, ("#56b4e9", RED)))
    tiles = ("placed", "elsewhere", "absent")
    return [
        Look(
            suffix,
            colours["paper"],
            colours["ink"],
            colours["muted"],
            tuple(colours[name] for name in tiles),
            lines,
        )
        for suffix, colours, lines in schemes
    ]


def new_picture(look: Look) -> tuple[Figure, Any, Any]:
    """A figure of two axes, one above the other. It is shown at 400 to 700 pixels."""
    figure = new_figure(6.4, 6.6)
    figure.set_facecolor(look.paper)
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    for axes in (above, below):
        axes.tick_params(colors=look.ink, labelsize=13)
        axes.set_facecolor(look.paper)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(look.ink)
    return figure, above, below


def name_axes(axes: Any, look: Look, x: str, y: str) -> None:
    axes.set_xlabel(x, color=look.ink, fontsize=14)
    axes.set_ylabel(y, color=look.ink, fontsize=14)


def drawn_wins(run: Run) -> pd.Series:
    """Share of drawn games on the test secrets that are won, by step of validation."""
    wins = {}
    for step in run.validations.index:
        settings = [f"checkpoint={step or 'start'}", "sampling.temperature=0.7"]
        player = load_player(run=str(run.folder), settings=settings)
        games = player.play([secret for secret in player.secrets for _ in range(taught.JUDGED)])
        wins[step] = np.mean([game.won for game in games])
    return pd.Series(wins)


def draw_demo(runs: list[Run], wins: list[pd.Series], look: Look) -> Figure:
    """wins: drawn_wins of each run."""
    figure, above, below = new_picture(look)
    for run, drawn in zip(runs, wins, strict=True):
        greedy = 100 * run.series("watch/test/win_rate")
        above.plot(greedy.index, greedy, color=look.lines[0], lw=2.4)
        above.plot(drawn.index, 100 * drawn, color=look.lines[1], lw=2.4, ls="--")
    last = max(run.metrics.index.max() for run in runs)
    bold: dict[str, Any] = {"ha": "right", "fontsize": 14, "weight": "bold"}
    above.text(last, 94.5, "greedy", color=look.lines[0], **bold)
    above.text(last, 86, "drawn at 0.7", color=look.lines[1], **bold)
    for name, value in SCRIPTS.items():
        above.axhline(value, color=look.ink, lw=1, ls=":")
        y, align = (value - 0.4, "top") if name.startswith("random") else (value + 0.4, "bottom")
        above.text(0.5, y, name, color=look.ink, fontsize=13, va=align)
    above.set_ylim(72, 102.5)
    name_axes(above, look, "training step of 512 games", "test words won, %")
    below.set_axis_off()
    below.set_aspect("equal")
    below.set_xlim(0, 15)
    below.set_ylim(-6.1, 1.2)
    assert runs[0].best
    titles = ("before", f"after {runs[0].best.step} steps")
    for x, title, board in zip((0.6, 8.4), titles, chosen_game(runs), strict=True):
        below.text(x, 0.3, f"{board.secret.upper()}, {title}", color=look.ink, fontsize=14)
        for row, (guess, marks, _, _) in enumerate(board.rows):
            for place, (letter, mark) in enumerate(zip(guess, marks or "22222", strict=True)):
                draw_tile(below, x + 1.05 * place, -0.95 * row, letter, int(mark), look)
    return figure


def draw_tile(axes: Any, x: float, y: float, letter: str, kind: int, look: Look) -> None:
    """A letter, with the bar of the pages for those who see no colours."""
    box = {"facecolor": look.tiles[kind], "edgecolor": look.paper, "lw": 1.5}
    axes.add_patch(Rectangle((x, y - 0.92), 1, 0.92, **box))
    letters: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 13, "weight": "bold"}
    axes.text(x + 0.5, y - 0.44, letter.upper(), color="white", **letters)
    half = (0.3, 0.1, 0)[kind]
    axes.plot([x + 0.5 - half, x + 0.5 + half], [y - 0.8] * 2, color="white", lw=2 * bool(half))


def chosen_game(runs: list[Run]) -> tuple[Board, Board]:
    """The first game that the start lost and every run won, and the first run's."""
    before = runs[0].start.first_boards
    after = [run.best.first_boards for run in runs]
    for secret, board in before.items():
        if not board.won and all(boards[secret].won for boards in after):
            return board, after[0][secret]
    raise SystemExit("error: no such game")


def draw_learnt(turns: pd.DataFrame, look: Look) -> Figure:
    """Information by turn, and lost games by words like the secret. Guesses are drawn."""
    figure, above, below = new_picture(look)
    words = load_words()
    styles: dict[str, dict[str, Any]] = {
        taught.SOLVER: {"color": GREEN, "marker": "D", "ls": ":"},
        taught.TRAINED: {"color": BLUE, "marker": "o"},
        taught.START: {"color": RED, "marker": "s", "ls": "--"},
        taught.TEACHER: {"color": look.muted, "marker": "^", "ls": "-."},
    }
    drawn = turns[turns.how == next(how for how in turns.how.unique() if how != "greedy")]
    skill = taught.by_turn(pd.concat([drawn, turns[turns.player == taught.SOLVER]]))
    for name, style in styles.items():
        share = 100 * skill.bits[name].dropna()
        above.plot(share.index, share, label=name, ms=7, lw=2.2, **style)
    name_axes(above, look, "turn", "bits, % of the most")
    above.legend(frameon=False, fontsize=13, labelcolor=look.ink, ncols=2, loc="upper right",
                 bbox_to_anchor=(1, 0.78))  # fmt: skip
    games = drawn.groupby(taught.GAME, sort=False)[["won", "length"]].first().reset_index()
    knowledge = Knowledge(words, feedback_table(words))
    trait = taught.traits_of(list(games.secret.unique()), knowledge)["largest family"]
    rates, labels = taught.loss_rates(games, trait), list(taught.SIZES.values())
    for shift, name in zip((-0.12, 0.0, 0.12), list(styles)[1:], strict=True):
        rows = 100 * rates.xs(name, level="player").loc[labels]
        ends = np.maximum([rows.lost - rows.low, rows.high - rows.lost], 0)
        style = {**styles[name], "ls": ""}
        below.errorbar(np.arange(len(labels)) + shift, rows.lost, ends, capsize=4, ms=7, **style)
    below.set_xticks(range(len(labels)), labels)
    name_axes(below, look, "allowed words like the secret", "games lost, %")
    return figure


def photograph(run: Path) -> None:
    """report: the top of a run's page. watch: its model's second guess."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-u", "-m", "wordle_rl", "play", "--run", str(run), "--no-browser"]
    with (
        sync_playwright() as playwright,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        ExitStack() as ends,
    ):
        ends.callback(server.terminate)
        assert server.stdout is not None
        matches = map(re.compile(r"http://\S+\d/?").search, server.stdout)
        address = next(filter(None, matches))[0]
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for suffix, scheme in (("", "light"), ("_dark", "dark")):
            size = {"width": WIDE, "height": 900}
            page = chromium.new_page(viewport=size, color_scheme=scheme, device_scale_factor=2)
            page.set_default_timeout(600_000)
            page.goto((run / "report.html").as_uri())
            result = {"x": 0, "y": 140, "width": WIDE, "height": 680}
            page.screenshot(path=DOCS / f"report{suffix}.png", clip=result)
            page.goto(address)
            watch(page)
            whole_rows = {"x": 0, "y": 0, "width": WIDE, "height": 841}
            page.screenshot(path=DOCS / f"watch{suffix}.png", clip=whole_rows)
        chromium.close()


def watch(page: Any) -> None:
    page.click("nav a[href='#watch']")
    page.fill("#watch-secret", SECRET)
    page.keyboard.press("Enter")
    page.wait_for_selector("#watched .bars tbody tr")
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(15_000)  # the search ends after five seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of the demo, with reports")
    parser.add_argument("--turns", type=Path, help="written by what_rl_teaches.py")
    args = parser.parse_args()
    if args.turns is not None:
        runs, turns = [read_run(folder) for folder in args.runs], pd.read_csv(args.turns)
        wins = [drawn_wins(run) for run in runs]
        for look in looks():
            save_figure(draw_demo(runs, wins, look), DOCS / f"demo{look.suffix}.png")
            save_figure(draw_learnt(turns, look), DOCS / f"learnt{look.suffix}.png")
    photograph(args.runs[0].resolve())
    pages = "*.png" if args.turns is not None else "[rw]*.png"
    for file in DOCS.glob(pages):  # a quarter of the bytes, and no difference to be seen
        Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            file, optimize=True
        )


if __name__ == "__main__":
    main()
