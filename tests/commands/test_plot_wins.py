"""Pictures of a run's wins and of its games."""

import json
import subprocess
import sys

import numpy as np
import pytest

from wordle_rl import plot_boards
from wordle_rl.pictures import read_reports, read_solvers, run_name
from wordle_rl.plot_wins import main
from wordle_rl.references import OPTIMUM, TEACHERS, read_references
from wordle_rl.reports.boards import before_and_after, read_boards
from wordle_rl.runs.figures import COLOURS, MOST_BANDS
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder, StepLog
from wordle_rl.runs.paths import ROOT
from wordle_rl.win_curves import read_curves, smoothed_rate
from wordle_rl.win_pictures import draw_run, draw_runs
from wordle_rl.words.lists import load_words

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "tiny")


def make_run(folder, validation=True):
    folder.mkdir(parents=True)
    log = StepLog(folder / "metrics.jsonl")
    for step in range(1, 41):
        train = {"train/win_rate": step / 80, "train/games": 8, "train/wins": step / 10}
        val = {"val/win_rate": step / 60} if validation and step % 10 == 0 else {}
        log.append(step, {**train, **val, "loss": 0.1})
    return folder


def test_curves_hold_the_wins_of_each_step_and_the_validations(run):
    curves = read_curves(run)
    assert curves.steps.tolist() == list(range(1, 41))
    assert np.cumsum(curves.wins)[-1] == pytest.approx(sum(range(1, 41)) / 10)
    assert curves.val_steps.tolist() == [10, 20, 30, 40]
    assert curves.val_rates.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2, 2 / 3])


def test_wins_come_from_the_rate_where_they_are_not_counted(tmp_path):
    log = StepLog(tmp_path / "metrics.jsonl")
    log.append(1, {"train/win_rate": 0.25, "train/games": 8})
    log.append(2, {"train/win_rate": None, "train/games": 0, "val/win_rate": None})
    log.append(3, {"train/win_rate": 0.5, "train/games": 8, "val/win_rate": 0.0})
    curves = read_curves(tmp_path)
    assert (curves.wins.tolist(), curves.steps.tolist()) == ([2.0, 4.0], [1.0, 3.0])
    assert curves.val_rates.tolist() == [0.0]


def test_smoothing_pools_the_games_of_the_last_steps():
    random = np.random.default_rng(0)
    games = random.integers(1, 9, 30).astype(float)
    wins = np.floor(games * random.random(30))
    for window in (1, 4, 100):
        slow = [
            sum(wins[max(0, i - window + 1) : i + 1]) / sum(games[max(0, i - window + 1) : i + 1])
            for i in range(30)
        ]
        assert smoothed_rate(wins, games, window) == pytest.approx(slow)
    with pytest.raises(ValueError, match="window"):
        smoothed_rate(wins, games, 0)


def test_one_run_gives_a_picture_in_its_folder(run, capsys):
    assert main([str(run)]) == 0
    assert (run / "wins.png").read_bytes().startswith(PNG)
    assert capsys.readouterr().out.strip() == str(run / "wins.png")


def test_a_run_that_is_still_writing_can_be_drawn(run, tmp_path):
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 41, "train/w')
    assert main([str(run), "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_run_with_validations_only_can_be_drawn(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 0, "val/win_rate": 0.5}) + "\n")
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("runs", [2, 12])
def test_several_runs_share_a_picture_beside_them(tmp_path, runs):
    folders = [make_run(tmp_path / str(i) / "same-name") for i in range(runs)]
    assert main([str(folder) for folder in folders]) == 0
    assert (tmp_path / "0" / "wins.png").read_bytes().startswith(PNG)


def test_errors_are_one_line_with_exit_code_2(tmp_path, run, capsys):
    (tmp_path / "empty").mkdir()
    spoilt = make_run(tmp_path / "spoilt")
    (spoilt / "metrics.jsonl").write_text('oops\n{"step": 1}\n')
    bare = make_run(tmp_path / "bare", validation=False)
    cases = {
        "no such run folder": [tmp_path / "missing"],
        "no metrics": [tmp_path / "empty"],
        "line 1": [spoilt],
        "no val/win_rate": [bare, bare],
        "cannot be written": [run, "--out", tmp_path / "missing" / "a.png"],
        "summary.json: missing": [run, "--beside", bare],
    }
    for expected, arguments in cases.items():
        with pytest.raises(SystemExit, match="2"):
            main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert expected in error and error.count("\n") == 1


def test_without_matplotlib_the_error_says_what_to_install(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="2"):
        main([str(run)])
    told = "a picture needs matplotlib, which is not installed: pip install"
    assert told in capsys.readouterr().err


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, wordle_rl.plot_wins; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_watched_secrets_are_read_apart_from_validation(tmp_path):
    records = [
        {"step": 0, "val/win_rate": 0.5, "watch/train/win_rate": 0.6, "watch/test/win_rate": 0.4},
        {"step": 5, "train/games": 8, "train/wins": 4},
        {"step": 10, "watch/train/win_rate": 0.9, "watch/test/win_rate": 0.45},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    curves = read_curves(tmp_path)
    assert curves.watched["train"].tolist() == [[0, 10], [0.6, 0.9]]
    assert curves.watched["test"].tolist() == [[0, 10], [0.4, 0.45]]
    draw_run(curves, tmp_path / "wins.png")
    assert (tmp_path / "wins.png").stat().st_size > 10_000


@pytest.fixture
def watched(tmp_path):
    """A run that played test secrets at three steps and training secrets at two of these."""
    records = [
        {"step": 0, "val/win_rate": 0.5, "val/mean_guesses_with_losses": 5.5,
         "watch/train/win_rate": 0.5, "watch/train/mean_guesses_with_losses": 5.4,
         "watch/test/win_rate": 0.5, "watch/test/mean_guesses_with_losses": 5.5},
        {"step": 5, "watch/test/win_rate": 0.45, "watch/test/mean_guesses_with_losses": 5.25},
        {"step": 10, "watch/train/win_rate": 0.9, "watch/train/mean_guesses_with_losses": 4.5,
         "watch/test/win_rate": 0.775, "watch/test/mean_guesses_with_losses": 4.75},
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return tmp_path


def test_the_gap_between_training_and_test_secrets_is_shaded_and_told(watched, drawn):
    main([str(watched)])
    [axes] = drawn[0].axes
    assert {"train secrets, greedy", "test secrets, greedy"} <= texts(axes)
    assert "gap, at the end +12.5 points" in texts(axes)
    [shade] = axes.collections
    corners = {tuple(point) for point in shade.get_paths()[0].vertices.tolist()}
    assert corners == {(0, 50), (10, 90), (10, 77.5)}  # nothing at step 5, where one was not played


def test_mean_guesses_have_a_panel_of_their_own(watched, drawn):
    main([str(watched), "--guesses"])
    _, axes = drawn[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["validation"] == [[0, 5.5]]
    assert lines["train secrets, greedy"] == [[0, 5.4], [10, 4.5]]
    assert lines["test secrets, greedy"] == [[0, 5.5], [5, 5.25], [10, 4.75]]
    assert "gap, at the end -0.25 guesses" in texts(axes)
    main([str(watched), "--guesses", "--totals"])
    assert len(drawn[1].axes) == 3


def test_a_run_that_watches_one_kind_of_secrets_has_no_gap(tmp_path, drawn):
    record = {"step": 3, "val/win_rate": 0.5, "watch/test/win_rate": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    main([str(tmp_path)])
    assert not any("gap" in text for text in texts(drawn[0].axes[0]))


def test_guesses_that_were_not_logged_and_those_of_several_runs_are_refused(run, capsys):
    for arguments, said in (([run], "no mean_guesses_with_losses"), ([run, run], "a single run")):
        with pytest.raises(SystemExit, match="2"):
            main([*map(str, arguments), "--guesses"])
        assert said in capsys.readouterr().err


# -- titles, reports and solvers ------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, instead of files."""
    figures = []
    for module in ("win_pictures", "plot_boards"):
        monkeypatch.setattr(
            f"wordle_rl.{module}.save_figure", lambda figure, out: figures.append(figure)
        )
    return figures


def texts(axes):
    return {text.get_text() for text in axes.get_legend().get_texts()}


def test_a_title_has_the_name_of_the_run_and_never_its_number(tmp_path, drawn):
    folder = make_run(tmp_path / "2026-11-22_08-56-39_demo_s0_8606-4bf868")
    assert run_name(folder) == "demo_s0"
    main([str(folder)])
    main([str(folder), "--title", "GRPO for $5"])
    titles = [figure.axes[0].get_title(loc="left") for figure in drawn]
    assert titles == ["Games won: demo_s0", r"GRPO for \$5"]


def test_the_reports_are_drawn_where_they_were_made(run, drawn):
    rates = {"win_rate_low": 0.5, "win_rate_high": 0.75}
    write_json(run / "start.json", {"win_rate": 0.6, **rates})
    assert read_reports(run).tolist() == [[0, 0.6, 0.5, 0.75]]
    write_json(run / "summary.json", {"win_rate": 0.7, "exported_step": 30, **rates})
    assert read_reports(run).tolist() == [[0, 0.6, 0.5, 0.75], [30, 0.7, 0.5, 0.75]]
    main([str(run)])
    [points, _, _] = drawn[0].axes[0].containers[0]
    assert points.get_xydata() == pytest.approx(np.array([[0, 60], [30, 70]]))


def test_the_lineage_is_told_under_the_reports_on_test_secrets(run, drawn):
    rates = {"win_rate": 0.7, "win_rate_low": 0.5, "win_rate_high": 0.75, "exported_step": 30}
    write_json(run / "summary.json", {"lineage": "lineage: a $b$ -> c. " + "word " * 40, **rates})
    main([str(run)])
    [said] = [text.get_text() for text in drawn[0].texts]
    assert (
        said.startswith(r"lineage: a \$b\$ -> c. word") and max(map(len, said.split("\n"))) <= 120
    )
    write_json(run / "summary.json", {"lineage": 3, **rates})
    with pytest.raises(SystemExit, match="2"):
        main([str(run)])


def test_a_run_without_a_report_has_none(run):
    write_json(run / "summary.json", {"exported_step": 3, "val_win_rate": 0.5})
    assert read_reports(run).shape == (0, 4)


def test_solvers_are_level_lines_best_first(run, tmp_path, drawn):
    others = {"random word": {"win_rate": 0.0}, "entropy with list": {"win_rate": 1}}
    write_json(tmp_path / "summary.json", {"compared_with": others})
    assert list(read_solvers(tmp_path).items()) == [("entropy with list", 1), ("random word", 0)]
    main([str(run), "--beside", str(tmp_path)])
    lines = {line.get_label(): set(line.get_ydata()) for line in drawn[0].axes[0].lines}
    assert lines["entropy with list, 100.0 %"] == {100}
    assert lines["random word, 0.0 %"] == {0}


def test_each_of_five_solvers_has_a_line_of_its_own(run, tmp_path, drawn):
    rates = {name: rate for name, rate in zip("abcde", (0.1, 0.2, 0.3, 0.4, 0.5), strict=True)}
    draw_run(read_curves(run), tmp_path / "wins.png", solvers=rates)
    level = [line for line in drawn[0].axes[0].lines if str(line.get_label())[0] in rates]
    assert len(level) == len({str(line._dash_pattern) for line in level}) == 5


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({}, "compares no players"),
        ({"compared_with": {}}, "compares no players"),
        ({"compared_with": {"a": 3}}, "compared_with"),
        ({"compared_with": {"a": {"win_rate": "most"}}}, "a: win_rate must be a number"),
    ],
)
def test_a_summary_without_solvers_is_refused_in_one_line(summary, said, run, tmp_path, capsys):
    write_json(tmp_path / "summary.json", summary)
    with pytest.raises(SystemExit, match="2"):
        main([str(run), "--beside", str(tmp_path)])
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_totals_add_a_panel_with_the_games_so_far(run, drawn):
    main([str(run), "--totals"])
    above, below = drawn[0].axes
    lines = {line.get_label(): line.get_ydata() for line in below.lines}
    assert lines["played"][-1] == 40 * 8
    assert lines["won"][-1] == pytest.approx(sum(range(1, 41)) / 10)
    assert "validation" in texts(above)


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path, drawn):
    folders = [make_run(tmp_path / str(i) / "same") for i in range(2)]
    main([str(folder) for folder in folders])
    assert texts(drawn[0].axes[0]) == {str(folder) for folder in folders}
    draw_runs([read_curves(folder) for folder in folders], tmp_path / "a.png", title="Two seeds")
    assert drawn[1].axes[0].get_title(loc="left") == "Two seeds"


# -- bands, levels, several runs ------------------------------------------------------------------


def keep_games(run, steps=(10, 20, 30, 40), secrets=50, won=20):
    log = StepLog(run / "validation_games.jsonl")
    for step in steps:
        for i in range(secrets):
            log.append(step, {"secret": f"w{i}", "won": i < won})
    return run


def test_the_band_of_validation_wins_is_wilsons_interval_over_secrets(run, drawn):
    curves = read_curves(keep_games(run))
    assert curves.secrets == 50
    steps, low, high = curves.val_bands
    assert steps.tolist() == [10, 20, 30, 40]
    # Wilson's interval of 20 in 50, from his formula with z = 1.96
    assert (low[0], high[0]) == pytest.approx((0.2761, 0.5382), abs=1e-4)
    main([str(run)])
    [said] = [text.get_text() for text in drawn[0].texts]
    assert said == "Band: 95 % interval of the validation wins, n = 50 secrets."
    [band] = drawn[0].axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(53.82, abs=0.01)


def test_start_teacher_and_optimum_are_level_lines(tmp_path, drawn):
    folder = tmp_path / "run"
    folder.mkdir()
    log = StepLog(folder / "metrics.jsonl")
    log.append(0, {"val/win_rate": 0.25})
    log.append(5, {"val/win_rate": 0.5, "val/mean_guesses_with_losses": 5.0})
    digests = {"words": load_words().digest}
    RunFolder(folder).write_manifest(
        seeds={}, digests=digests, command=["train.py"], model="embedded/mini", choices={}
    )
    assert read_references(folder) == (OPTIMUM, TEACHERS["random_consistent_allowed"])
    main([str(folder), "--guesses"])
    wins, guesses = drawn[0].axes
    levels = {line.get_label(): set(line.get_ydata()) for line in wins.lines}
    assert levels["start, validation, 25.0 %"] == {25}
    assert levels["teacher: any word that fits, 89.7 %"] == {89.7}
    assert levels["optimum, 100.0 %"] == {100}
    assert "optimum, 3.42" in texts(guesses)


@pytest.mark.parametrize("word", ["rules=hard", "rules.max_turns=8", "words.answers=mine.txt"])
def test_a_run_by_other_rules_or_words_is_not_compared(word, tmp_path):
    digests = {"words": load_words().digest}
    command, choices = ["train.py", word], {"rules": "hard" if "hard" in word else "original"}
    RunFolder(tmp_path).write_manifest(
        seeds={}, digests=digests, command=command, model="embedded/mini", choices=choices
    )
    assert read_references(tmp_path) == ()


def test_a_file_of_metrics_is_drawn_like_a_run(run, tmp_path, drawn, capsys):
    copy = tmp_path / "copied.jsonl"
    copy.write_bytes((run / "metrics.jsonl").read_bytes())
    keep_games(tmp_path)  # of another run
    assert not read_curves(copy).val_bands.size
    assert main([str(copy)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "wins.png")
    assert drawn[0].axes[0].get_title(loc="left") == "Games won: copied"
    main([str(run), str(copy)])
    assert texts(drawn[1].axes[0]) == {"tiny", "copied"}
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "missing.jsonl")])
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize("count", [MOST_BANDS, MOST_BANDS + 1, 8])
def test_no_picture_has_more_than_five_bands(count, tmp_path, drawn):
    folders = [keep_games(make_run(tmp_path / f"run{i}")) for i in range(count)]
    main([str(folder) for folder in folders])
    axes = drawn[0].axes
    assert len(axes) == (1 if count <= MOST_BANDS else count)
    assert all(len(one.collections) == (count if len(axes) == 1 else 1) for one in axes)
    if len(axes) > 1:
        assert [one.get_title(loc="left") for one in axes] == [f"run{i}" for i in range(count)]
        assert drawn[0].legends


def contrast(one, other):
    """Of two colours, as the WCAG defines it."""
    from matplotlib.colors import to_rgb

    def light(colour):
        parts = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_text_is_dark_on_white_and_steps_are_whole_numbers(run, drawn):
    main([str(run)])
    [axes] = drawn[0].axes
    labels = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
    labels += [*axes.get_legend().get_texts(), *axes.get_xticklabels()]
    assert all(contrast(label.get_color(), "white") > 7 for label in labels)
    assert axes.get_xlabel() == "training step" and axes.get_ylabel() == "games won (%)"
    axes.set_xlim(0, 2)
    ticks = axes.xaxis.get_major_locator().tick_values(0, 2)
    assert all(tick == round(tick) for tick in ticks)


def deuteranope(colour):
    """A colour as people without green cones see it (Viénot, Brettel and Mollon 1999)."""
    from matplotlib.colors import to_rgb

    linear = np.array(to_rgb(colour)) ** 2.2
    seen = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    return np.clip(seen @ linear, 0, 1) ** (1 / 2.2)


def test_colours_differ_for_colour_blind_people():
    seen = [deuteranope(colour) for colour in COLOURS]
    gaps = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(gaps) > 0.15
    # What they are to tell apart: the red and green of many palettes are closer.
    assert np.linalg.norm(deuteranope("#d62728") - deuteranope("#2ca02c")) < 0.3


# -- boards ---------------------------------------------------------------------------------------


def lines(run, *records):
    log = StepLog(run / "games.jsonl")
    for step, secret, won, guesses, feedback in records:
        kinds = ["accepted" if marks else "not_a_word" for marks in feedback]
        record = {"secret": secret, "won": won, "guesses": guesses, "feedback": feedback}
        log.append(step, {"split": "val", "kinds": kinds, **record})
    return run


WORDS = [f"appl{letter}" for letter in "abcdefghijkl"]
NO_TURNS = {"guesses": [], "feedback": [], "kinds": []}


@pytest.fixture
def played(run):
    """A run whose second secret was lost before training and won after it."""
    log = StepLog(run / "games.jsonl")
    log.append(0, {"split": "train", "secret": "audio"})
    return lines(
        run,
        (0, "crane", True, ["crane"], ["✓✓✓✓✓"]),
        (0, "slate", False, ["stale", "xxxxx", None], ["✓--x✓", None, None]),
        (20, "crane", False, ["slate"], ["xx✓x✓"]),
        (20, "slate", False, ["stale"], ["✓--x✓"]),
        (40, "crane", True, ["crane"], ["✓✓✓✓✓"]),
        (40, "slate", True, ["stale", "slate"], ["✓--x✓", "✓✓✓✓✓"]),
    )


def test_the_first_game_that_training_turned_into_a_win_is_shown(played):
    before, after = before_and_after(read_boards(played))
    assert (before.secret, before.step, before.won) == ("slate", 0, False)
    assert (after.secret, after.step, after.won) == ("slate", 40, True)
    assert [row[:3] for row in before.rows] == [
        ("stale", "✓--x✓", ""),
        ("xxxxx", "", "not a word"),
        ("", "", "not a word"),
    ]


def test_all_validation_games_are_looked_at_unless_their_file_was_full_before_the_end(played):
    every = StepLog(played / "validation_games.jsonl")
    for step, won in (0, False), (40, True):
        every.append(step, {"secret": "plumb", "won": won, **NO_TURNS})
    assert {board.secret for board in read_boards(played)} == {"plumb"}
    lines(played, (60, "crane", False, [], []))
    assert {board.secret for board in read_boards(played)} == {"crane", "slate"}


def test_another_secret_can_be_asked_for(played):
    before, after = before_and_after(read_boards(played), "crane")
    assert (before.secret, before.step, after.step) == ("crane", 0, 40)


def test_without_a_loss_that_became_a_win_a_game_is_shown_that_was_won_after(run):
    lines(run, (0, "crane", False, [], []), (9, "crane", False, [], []))
    assert before_and_after(read_boards(run))[1].step == 9
    lines(run, (0, "slate", True, [], []), (9, "slate", True, [], []))
    assert before_and_after(read_boards(run))[1].secret == "slate"


def test_boards_have_a_coloured_tile_for_each_letter(played, drawn):
    assert plot_boards.main([str(played)]) == 0
    before, after = drawn[0].axes
    assert (before.get_title(), after.get_title()) == (
        "SLATE before training: lost",
        "SLATE after 40 steps: won in 2",
    )
    assert len(before.patches) == 15 and len(after.patches) == 10
    assert len({patch.get_facecolor() for patch in before.patches}) == 4  # white for no feedback
    assert len({patch.get_facecolor() for patch in after.patches[5:]}) == 1
    shown = [text.get_text() for text in before.texts]
    assert shown.count("not a word") == 2 and "S" in shown
    # Signs and the contrast of letters help those who cannot tell the colours.
    assert (shown.count("✓"), shown.count("–")) == (2, 2)
    letters = [text for text in after.texts if len(text.get_text()) == 1]
    tiles = {tuple(p.get_xy()): p.get_facecolor() for p in after.patches}
    for text in letters:
        x, y = (np.floor(v) for v in text.get_position())
        assert contrast(text.get_color(), tiles[x, y]) > 4.5
    assert drawn[0].get_suptitle() == "Validation games before and after training: tiny"


def test_several_secrets_stand_side_by_side(played, drawn):
    plot_boards.main([str(played), "--secret", "slate", "crane"])
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert [title.split()[0] for title in titles] == ["SLATE", "SLATE", "CRANE", "CRANE"]


def test_boards_are_written_beside_the_run(played, capsys):
    assert plot_boards.main([str(played)]) == 0
    assert capsys.readouterr().out.strip() == str(played / "boards.png")
    assert (played / "boards.png").read_bytes().startswith(PNG)


def test_games_that_cannot_be_drawn_are_named_in_one_line(tmp_path, played, capsys):
    once = lines(make_run(tmp_path / "once"), (0, "crane", False, [], []))
    odd = lines(make_run(tmp_path / "odd"), (0, "crane", False, ["crane"], ["✓✓"]))
    short = lines(make_run(tmp_path / "short"), (0, "crane", False, [], ["✓✓✓✓✓"]))
    wrong = lines(make_run(tmp_path / "wrong"), (0, "crane", "no", [], []))
    many = make_run(tmp_path / "many")
    for step in range(2):
        lines(many, *((step, word, True, [], []) for word in WORDS))
    cases = {
        "no such run folder": [tmp_path / "missing"],
        "no validation games yet": [make_run(tmp_path / "none")],
        "no secret has games of two validations": [once],
        "feedback must be 5 of": [odd],
        "must have the same length": [short],
        "won must be": [wrong],
        "--secret must be one of crane, slate, not plumb": [played, "--secret", "plumb"],
        "applj or 2 more, not plumb": [many, "--secret", "plumb"],
        "cannot be written": [played, "--out", tmp_path / "missing" / "a.png"],
    }
    for expected, arguments in cases.items():
        with pytest.raises(SystemExit, match="2"):
            plot_boards.main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert expected in error and error.count("\n") == 1
