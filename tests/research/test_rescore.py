"""Stored games under other rewards."""

import json

import pytest

from research.rescore import rescore
from tests.helpers.runs import run

SETTINGS = (
    "experiment=none model=micro history=upto4 rollout.groups=4 num_generations=3 trainer.steps=2 "
    "trainer.validate_every=2 trainer.games_every=1 trainer.show_games=0 trainer.report=false "
    "words.val=12 words.test=6 backend.precision=fp32 backend.threads=1 logger=none"
)


@pytest.mark.parametrize("kind", ["game", "best_of"])
def test_stored_games_earn_what_they_did_and_what_others_give(kind, root, refused, capsys):
    _, folder = run(root, *SETTINGS.split(), f"rollout={kind}")
    capsys.readouterr()

    def table(*settings: str) -> dict[str, list[str]]:
        rescore(str(folder), [*settings])
        rows = capsys.readouterr().out.splitlines()[4:-1]
        return {name: numbers for name, *numbers in map(str.split, rows)}

    scores = table("reward.lawful=true")
    assert len(scores) > 5 and all(numbers[::2] == numbers[1::2] for numbers in scores.values())
    lines = (folder / "validation_games.jsonl").read_text().splitlines()
    for column, step in ((2, 0), (4, 2)):
        totals = [row["reward"]["total"] for row in map(json.loads, lines) if row["step"] == step]
        assert scores["total"][column] == f"{sum(totals) / len(totals):.3f}"
    new_scores = table("reward.lawful=false", "reward.components.win.weight=500")
    assert new_scores["win"][0] == scores["win"][0] and new_scores["credit"][1::2] == ["-"] * 3
    assert float(new_scores["win"][3]) > 100 * float(scores["win"][3])
    assert "tokens are not stored" in refused(lambda: table("reward=phase2_brief"))
    log = folder / "games.jsonl"
    log.write_text(log.read_text().replace('"accepted"', '"not_a_word"'))
    assert f"{log}: no game of this run" in refused(table)
