"""The eval command: players reach their published figures, and a run is judged by its own rules."""

import json
import shutil
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.helpers.configs import composed
from wordle_rl.commands.eval import evaluate
from wordle_rl.runs.paths import PACKAGE
from wordle_rl.words.lists import load_words


def play(tmp_path: Path, *overrides: str, compare: bool = False) -> dict:
    args = [*overrides, f"output_dir={tmp_path}", f"compare={compare}"]
    return evaluate(composed(*args, name="eval"), args)


FIGURES = {  # player: win rate and its tolerance, mean guesses of wins and its tolerance
    # 98.2 % and 4.03 in 185,000 games; three standard errors of 2,315
    "random_consistent": (0.982, 0.0083, 4.03, 0.056),
    "random_consistent_allowed": (0.897, 0.015, 4.57, 0.06),
    "entropy": (1.0, 0.0, 3.43, 0.01),
    # Published figures near 4.12 break ties by the alphabet alone.
    "entropy_allowed": (1.0, 0.0, 3.97, 0.01),
}


@pytest.mark.parametrize(
    "player",
    [
        pytest.param(player, marks=[] if player == "entropy" else [pytest.mark.slow])
        for player in FIGURES
    ],
)
def test_players_reach_their_published_figures_on_all_answers(player: str, tmp_path: Path) -> None:
    rate, rate_error, mean, mean_error = FIGURES[player]
    summary = play(tmp_path, f"player={player}", "words.split=all")
    assert summary["secrets"] == 2315
    assert summary["win_rate"] == pytest.approx(rate, abs=rate_error)
    assert summary["mean_guesses"] == pytest.approx(mean, abs=mean_error)


@pytest.mark.parametrize(
    ("player", "told"),
    [
        ("model=tiny", "lineage"),
        ("model=untrained", "lineage: an untrained model. No test secret was ever the secret of"),
        ("player=random", None),
    ],
)
def test_a_model_has_a_lineage_under_its_table_and_a_scripted_player_has_none(
    player: str, told: str | None, tmp_path: Path, capsys
) -> None:
    summary = play(tmp_path, player, "limit=2", "backend.threads=1")
    table = capsys.readouterr().out
    if told is None:
        assert "lineage" not in summary and "lineage: " not in table
    else:
        assert summary["lineage"].startswith(told)
        assert summary["lineage"] in " ".join(table.split())


@pytest.mark.parametrize(("split", "may"), [("val", False), ("all", True), ("allowed", True)])
def test_a_lineage_says_when_training_may_have_had_the_secrets_played(split, may, tmp_path):
    words = f"words.split={split}"
    lineage = play(tmp_path, "model=micro", words, "limit=1", "backend.threads=1")["lineage"]
    assert ("may have had these secrets" in lineage) is may


def test_a_run_that_trained_under_a_grammar_is_said_to_play_without_it(
    run: Path, tmp_path: Path, capsys
) -> None:
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("  grammar: null", "  grammar: words"))
    args = (f"run={run}", "limit=1", "backend.threads=1")
    play(tmp_path, *args)
    assert "trained with sampling.grammar=words; here any text" in capsys.readouterr().out
    play(tmp_path, *args, "sampling.grammar=words")
    assert "trained with" not in capsys.readouterr().out
    summary = play(tmp_path, *args, compare=True)
    assert "any text was allowed, the row below it has this grammar" in capsys.readouterr().out
    name = summary["player"]
    assert next(iter(summary["compared_with"])) == f"{name}, grammar"


@pytest.mark.parametrize("player", ["player=random_consistent", "model=micro"])
def test_every_game_begins_with_the_opener_that_was_asked_for(player, tmp_path, capsys) -> None:
    args = (player, "limit=30", "opener=SLATE", "backend.threads=1", "words.split=all")
    summary = play(tmp_path, *args)
    assert summary["opener"] == "slate" and summary["opener_rank"] == 6
    assert capsys.readouterr().out.count("the first guess of every game is SLATE\n") == 1
    games = read_games(tmp_path)
    assert {game["guesses"][0] for game in games} == {"slate"}
    assert len({game["guesses"][1] for game in games}) > 5, "the player sees the clues"
    with pytest.raises(SystemExit):
        play(tmp_path, *args[:-1], "opener=zzzzz")
    assert "opener must be an allowed word, not zzzzz" in capsys.readouterr().err


def test_games_that_run_out_of_context_are_counted_and_told(tmp_path: Path, capsys) -> None:
    """A game of six plain answers has room here, and one with answers asked for again has not."""
    args = ("model=micro", "model.max_context=91", "limit=12", "backend.threads=1")
    assert play(tmp_path, *args)["out_of_context"] == 0
    assert "ran out" not in capsys.readouterr().out
    losses = play(tmp_path, *args, "rules.invalid=retry", "show=0")["out_of_context"]
    line = f"WARNING: micro ran out of model.max_context in {losses} of 12 games, which are lost"
    assert losses > 6 and line in capsys.readouterr().out


def test_the_time_that_games_take_changes_none_of_them(tmp_path: Path, monkeypatch) -> None:
    args = ("player=random_consistent", "limit=100")  # row 37
    summary, hours = play(tmp_path, *args), count(step=3600)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(hours)))
    slow_summary = play(tmp_path, *args)
    assert slow_summary["histogram"] == summary["histogram"] and slow_summary["seconds"] >= 3600


SMALL_MODEL = ("model=micro", "backend.threads=1", "backend.precision=fp32")


def read_games(folder: Path) -> list[dict]:
    [path] = folder.glob("*/games.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_games_begin_after_given_guesses_and_their_wins_are_counted_by_depth(
    tmp_path: Path, capsys
) -> None:
    summary = play(tmp_path, "player=random_consistent", "history=upto4", "limit=60", "json=true")
    out = capsys.readouterr().out
    [folder] = tmp_path.iterdir()
    assert json.loads(out.splitlines()[-1]) == json.loads((folder / "summary.json").read_text())
    depths = [len(game["clues_at_start"]) for game in read_games(tmp_path)]
    assert {0, 1, 2, 3} <= set(depths) <= {0, 1, 2, 3, 4}
    counts = {int(depth): row["games"] for depth, row in summary["by_depth"].items()}
    assert counts == Counter(depths)
    assert sum(row["wins"] for row in summary["by_depth"].values()) == summary["wins"]
    assert "0 given" in out


def test_a_model_plays_greedily_beside_its_samples(tmp_path: Path, capsys) -> None:
    model = shutil.copytree(PACKAGE / "embedded" / "micro", tmp_path / "kept")
    args = (*SMALL_MODEL, f"model.path={model}", "limit=6", "words.split=allowed")
    reference = play(tmp_path / "greedy", *args)
    summary = play(tmp_path / "sampled", *args, "sampling.temperature=1", "samples=3")
    assert (summary["games"], summary["secrets"]) == (18, 6)
    assert list(summary["pass_at"]) == ["1", "2", "3"]
    assert summary["pass_at"]["1"]["pass"] == pytest.approx(summary["win_rate"])
    row = summary["compared_with"]["greedy kept"]
    assert row["mean_guesses_with_losses"] == reference["mean_guesses_with_losses"]
    assert "pass@3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("grammar", "alone"),
    [
        (("words",), "random"),
        (("words", "repeats=false"), None),
        (("clues",), "random_consistent_allowed"),
        (("clues", "grammar_from=2"), None),
    ],
)
def test_a_model_under_a_grammar_stands_above_the_same_grammar_without_a_model(
    grammar: tuple[str, ...], alone: str | None, tmp_path: Path, capsys
) -> None:
    words = tmp_path / "words.txt"
    words.write_text("\n".join(load_words().answers[::58]))
    args = [f"words.answers={words}", "words.protocol=all"]
    settings = ("grammar=" + grammar[0], *grammar[1:])
    summary = play(
        tmp_path,
        *SMALL_MODEL,
        *args,
        "allow_mismatch=true",
        *(f"sampling.{setting}" for setting in settings),
        compare=True,
    )
    table = capsys.readouterr().out
    rows = summary["compared_with"]
    decoder = next(iter(rows))
    assert summary["decoder"] == decoder and f"{decoder}: guesses at random what" in table
    assert summary["non_words"] == 0.0
    if alone is not None:
        baseline = play(tmp_path, f"player={alone}", *args)
        assert baseline["player"] == decoder
        assert baseline["mean_guesses_with_losses"] == rows[decoder]["mean_guesses_with_losses"]
    assert len(rows) == (4 if alone else 5)
