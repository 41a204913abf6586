"""The eval command: players reach their published figures, and a run is judged by its own rules."""

import json
from pathlib import Path

import pytest
from test_configs import composed

from wordle_rl.evaluate import evaluate


def play(tmp_path: Path, *overrides: str, capsys=None) -> dict:
    given = [*overrides, f"output_dir={tmp_path}", "compare=false"]
    return evaluate(composed(*given, name="eval"), given)


PUBLISHED = {  # player: win rate and its tolerance, mean guesses of wins and its tolerance
    "random_consistent": (0.979, 0.007, 4.04, 0.05),
    "random_consistent_allowed": (0.897, 0.015, 4.57, 0.06),
    "entropy": (1.0, 0.0, 3.43, 0.01),
}


@pytest.mark.parametrize(
    "player",
    [
        pytest.param(player, marks=[pytest.mark.slow] if "allowed" in player else [])
        for player in PUBLISHED
    ],
)
def test_players_reach_their_published_figures_on_all_answers(player: str, tmp_path: Path) -> None:
    rate, within, mean, close = PUBLISHED[player]
    summary = play(tmp_path, f"player={player}", "words.split=all")
    assert summary["secrets"] == 2315
    assert summary["win_rate"] == pytest.approx(rate, abs=within)
    assert summary["mean_guesses"] == pytest.approx(mean, abs=close)


def test_the_last_line_is_what_summary_json_holds(tmp_path: Path, capsys) -> None:
    play(tmp_path, "player=random", "limit=20")
    lines = capsys.readouterr().out.strip().splitlines()
    [folder] = tmp_path.iterdir()
    assert json.loads(lines[-1]) == json.loads((folder / "summary.json").read_text())
    games = [json.loads(line) for line in (folder / "games.jsonl").read_text().splitlines()]
    assert len(games) == 20 and {"secret", "won"} <= set(games[0])


def test_a_model_plays_several_samples_of_each_word(tmp_path: Path) -> None:
    summary = play(
        tmp_path, "model=tiny", "sampling=default", "samples=3", "limit=5", "backend.threads=1"
    )
    assert (summary["games"], summary["secrets"]) == (15, 5)


def test_games_that_outlast_the_limit_are_lost_and_counted(tmp_path: Path) -> None:
    summary = play(tmp_path, "player=random", "limit=8", "time_limit=1e-9")
    assert summary["timed_out"] == 8 and summary["wins"] == 0


def test_a_decision_tree_is_played_from_its_file(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("crane\nmoist\nslate\n")
    tree = tmp_path / "tree.txt"
    tree.write_text("slate\nslate crane\nslate moist\n")
    summary = play(
        tmp_path / "out", "player=tree", f"tree={tree}", "words=custom", f"words.answers={words}",
        "words.split=all", "words.test=1", "words.val=1",
    )  # fmt: skip
    assert summary["wins"] == 3 and summary["mean_guesses"] == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("player=oracle", "random_consistent"),
        ("player=tree", "tree="),
        ("run=outputs/none", "outputs/none"),
        ("words.split=half", "words.split"),
        ("time_limit=0", "time_limit"),
        ("samples=0", "samples"),
    ],
)
def test_wrong_input_ends_in_one_line(wrong: str, named: str, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        play(tmp_path, wrong)
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and named in error and len(error.splitlines()) == 1
