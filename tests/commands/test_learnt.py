"""The command that measures what training taught: its numbers, tables, pictures and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.runs import run as train_run
from wordle_rl import load_player
from wordle_rl.evaluation.losses import win_shares
from wordle_rl.learnt import main
from wordle_rl.runs.figures import BLUE, GREEN, RED, new_figure, save_figure
from wordle_rl.runs.files import write_json

PNG = b"\x89PNG\r\n\x1a\n"
FEW = ["--samples", "3", "--temperatures", "0.7", "--limit", "4"]
MICRO = [
    "model=micro", "words.test=6", "words.val=6", "rollout.groups=4", "num_generations=2",
    "backend.precision=fp32", "backend.accelerator=cpu", "backend.threads=1", "logger=none",
    "trainer.report=false", "trainer.show_games=0", "trainer.steps=1", "trainer.checkpoint_every=1",
]  # fmt: skip


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def micro(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("micro")
    return train_run(root, *MICRO)[1]


@pytest.fixture(scope="module")
def measured(micro, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("learnt")
    assert main([str(micro), "--output", str(out), *FEW]) == 0
    return out


def test_the_numbers_are_of_the_games_that_eval_would_play(micro, measured):
    numbers = json.loads((measured / "learnt.json").read_text())
    assert (numbers["secrets"], numbers["samples"], numbers["runs"]) == (4, 3, 1)
    settings = ["checkpoint=start", "sampling=default", "sampling.temperature=0.7", "limit=4"]
    player = load_player(run=str(micro), settings=[*settings, "samples=3"])
    games = player.tournament.games(player.contestant)
    shares = win_shares(games)
    of_start = numbers["passes"]["0.7"]["6"]["start"]
    assert of_start["1"]["pass"] == pytest.approx(sum(shares.values()) / 4)
    assert of_start["3"]["pass"] == pytest.approx(sum(map(bool, shares.values())) / 4)
    lost = sum(not game.won for game in games)
    assert numbers["losses"]["endings"]["start"]["lost"] == lost
    by_family = numbers["losses"]["by family"]["start"].values()
    assert sum(rate["lost"] * rate["games"] for rate in by_family) == pytest.approx(lost)
    left = player.contestant.games_at_once
    assert left > len(games)  # so that the games are drawn as here
    openers = numbers["openers"]["drawn"]["start"][0]
    made = [game.turns[0].guess for game in games]
    assert made.count(openers["word"]) / len(made) == pytest.approx(openers["share"])


def test_greedy_entropy_wins_and_its_guesses_are_the_best(measured):
    numbers = json.loads((measured / "learnt.json").read_text())
    assert numbers["results"]["greedy entropy"][0]["win_rate"] == 1.0
    turns = numbers["turns"]
    assert turns["greedy entropy"]["1"]["bits_ratio"] > turns["start"]["1"]["bits_ratio"]
    assert turns["random fitting word"]["2"]["consistency"] == 1.0
    assert numbers["losses"]["finishing"]["random fitting word"]["named"] in (None, 1.0)


def test_two_pictures_are_small(measured):
    for name in ("learnt.png", "learnt_attempts.png"):
        data = (measured / name).read_bytes()
        assert data.startswith(PNG) and len(data) < 120_000


@pytest.mark.slow
def test_the_tables_are_markdown_without_gaps(micro, tmp_path, capsys):
    assert main([str(micro), str(micro), "--output", str(tmp_path), *FEW]) == 0
    printed = capsys.readouterr().out
    tables = [part for part in printed.split("\n\n") if part.startswith("| ")]
    assert len(tables) >= 10
    for table in tables:
        assert len({line.count(" | ") for line in table.splitlines()}) == 1, table
    assert "2 runs" in printed and printed.rstrip().endswith(str(tmp_path))
    # Both runs are one run, so they lose the same secrets.
    losses = json.loads((tmp_path / "learnt.json").read_text())["losses"]
    assert losses["greedy"][0] == losses["greedy"][1] == losses["by all"]


@pytest.mark.slow
def test_a_model_that_makes_no_guess_has_numbers_too(finished, tmp_path, capsys):
    assert main([str(finished), "--output", str(tmp_path), *FEW]) == 0
    numbers = json.loads((tmp_path / "learnt.json").read_text())
    assert numbers["passes"]["0.7"]["6"]["start"]["3"]["pass"] == 0.0
    assert "| start | later |" not in capsys.readouterr().out


def test_runs_with_another_start_are_refused(run, tmp_path, capsys):
    other = shutil.copytree(run, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    write_json(other / "manifest.json", manifest | {"model": "embedded/tiny"})
    with pytest.raises(SystemExit) as ended:
        main([str(run), str(other), *FEW])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error: the runs must have the same model, not ")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--samples", "1"], "--samples must be 2.."),
        (["--temperatures", "0"], "--temperatures must be above 0"),
        (["--temperatures", "nan"], "--temperatures must be above 0"),
        (["--seed", "-1"], "--seed must be a whole number"),
        (["--limit", "0"], "--limit must be 1.."),
        (["--limits", "0"], "unrecognized arguments"),
    ],
)
def test_wrong_numbers_are_refused_in_one_line(wrong, said, run, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(run), *wrong])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), *FEW])
    assert str(tmp_path) in capsys.readouterr().err


def test_a_small_file_keeps_the_colour_of_one_thin_line(tmp_path):
    figure = new_figure(4, 3)
    axes = figure.subplots()
    for place, colour in enumerate((BLUE, RED)):
        for shade in range(1, 20):
            axes.axhspan(place, place + 0.9, color=colour, alpha=shade / 200)
    axes.plot([0, 1], [0, 2], color=GREEN, lw=1.5)
    save_figure(figure, tmp_path / "all.png")
    save_figure(figure, tmp_path / "few.png", small=True)
    assert (tmp_path / "few.png").stat().st_size < (tmp_path / "all.png").stat().st_size / 2
    with Image.open(tmp_path / "few.png") as picture:
        pixels = np.array(picture.convert("RGB")).reshape(-1, 3).astype(int)
    green = [int(GREEN[i : i + 2], 16) for i in (1, 3, 5)]
    assert np.abs(pixels - green).sum(axis=1).min() < 10
