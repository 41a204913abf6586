"""Draws the README's picture, light and dark, from three runs of the demo.

    for seed in 0 1 2; do python train.py seed=$seed output_dir=outputs/demo; done
    python research/make_pictures.py outputs/demo/*

Above: wins on the 315 test secrets (greedy, every tenth step) and on the 200 validation secrets
(drawn), a line for each run, beside three scripts. Below: one game before and after training, the
first test secret in hash order that the start lost and every run won.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.patches import Rectangle

from wordle_rl.reports.run import Board, Run, read_run
from wordle_rl.runs.figures import BLUE, RED, new_figure, save_figure
from wordle_rl.runs.paths import ROOT

TILES = ("#45c19c", "#f3b94d", "#a9b0bb")  # in place, elsewhere, absent: those of report.html
MARKS = ("✓", "–", "")  # for those who see no colours
THEMES = {"demo.png": ("#ffffff", "#16181d"), "demo_dark.png": ("#121418", "#eceef2")}
SCRIPTS = {"teacher": 90.0, "any answer that fits": 98.1}  # docs/FINDINGS.md, "Other players"


def draw(runs: list[Run], paper: str, ink: str, out: Path) -> None:
    figure = new_figure(6.4, 6.6)
    figure.set_facecolor(paper)
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    for run in runs:
        greedy = 100 * run.series("watch/test/win_rate")
        drawn = 100 * run.validations["win_rate"].astype(float)
        above.plot(greedy.index, greedy, color=BLUE if paper == "#ffffff" else "#56b4e9", lw=2.2)
        above.plot(drawn.index, drawn, color=RED, lw=2.2, ls="--")
    last = max(run.metrics.index.max() for run in runs)
    above.text(last, 94.5, "greedy, test words", color=ink, ha="right", fontsize=14)
    above.text(last, 84.5, "drawn, validation words", color=RED, ha="right", fontsize=14)
    for name, value in SCRIPTS.items():
        above.axhline(value, color=ink, lw=1, ls=":")
        above.text(0.5, value + 0.4, name, color=ink, fontsize=12)
    above.set_ylim(72, 101)
    above.set_xlabel("training step of 512 games", color=ink, fontsize=14)
    above.set_ylabel("games won, %", color=ink, fontsize=14)
    above.tick_params(colors=ink, labelsize=13)
    above.set_facecolor(paper)
    for side, spine in above.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink)
    boards = chosen_game(runs)
    below.set_axis_off()
    below.set_aspect("equal")
    below.set_xlim(0, 15)
    below.set_ylim(-6.1, 1.2)
    for left, title, board in zip((0.6, 8.4), ("before", "after 40 steps"), boards, strict=True):
        below.text(left, 0.3, f"{board.secret.upper()}, {title}", color=ink, fontsize=14)
        for row, (guess, marks, _, _) in enumerate(board.rows):
            for place, (letter, mark) in enumerate(zip(guess, marks or "22222", strict=True)):
                x, y, kind = left + 1.05 * place, -0.95 * row, int(mark)
                box = {"facecolor": TILES[kind], "edgecolor": paper, "lw": 1.5}
                below.add_patch(Rectangle((x, y - 0.92), 1, 0.92, **box))
                below.text(x + 0.5, y - 0.48, letter.upper(), ha="center", va="center", fontsize=12)
                below.text(x + 0.93, y - 0.8, MARKS[kind], ha="right", va="center", fontsize=8)
    save_figure(figure, out)


def chosen_game(runs: list[Run]) -> tuple[Board, Board]:
    """The first game that the start lost and every run won, and the first run's."""
    before = runs[0].start.first_boards
    after = [run.best.first_boards for run in runs]
    for secret, board in before.items():
        if not board.won and all(boards[secret].won for boards in after):
            return board, after[0][secret]
    raise SystemExit("error: no such game")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of the demo, with reports")
    runs = [read_run(folder) for folder in parser.parse_args().runs]
    for name, (paper, ink) in THEMES.items():
        draw(runs, paper, ink, ROOT / "docs" / name)


if __name__ == "__main__":
    main()
