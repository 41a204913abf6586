"""The reports at start and end play fewer secrets if the model is large or a setting says so."""

import json
from pathlib import Path

from tests.helpers.configs import composed
from tests.helpers.runs import resume, run, settings
from wordle_rl.commands import train as train_command
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.folder import RunFolder


def test_both_reports_play_the_first_secrets_and_are_compared_on_them(tmp_path: Path, capsys):
    (root := tmp_path / "runs").mkdir()
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report_limit=4"]
    summary, folder = run(root, *overrides, "optim.lr=3e-2")
    start = json.loads((folder / "start.json").read_text())
    assert (start["games"], summary["games"], summary["secrets"]) == (4, 4, 4)
    output = capsys.readouterr().out
    assert "the reports play 4 of 6 secrets (trainer.report_limit)" in output
    if summary["exported_step"]:
        assert "% of 4 test secrets, greedy." in output.splitlines()[-2]
    # A later limit does not part the two reports.
    (folder / "summary.json").unlink()
    assert resume(folder, "trainer.report_limit=2")["games"] == 4


def test_a_run_writes_its_page_at_each_validation_and_keeps_a_group(tmp_path, root, monkeypatch):
    calls = []

    def look(folder: RunFolder, *, trains: bool = False) -> None:
        last = folder.log("metrics").last()
        calls.append((last and last["step"], trains, folder.status))

    monkeypatch.setattr(train_command, "write_page", look)
    _, folder = run(root, *settings(tmp_path, "two updates with muon"))
    expected = [(step, True, "running") for step in (0, 3, 6)]
    assert calls == [*expected, (6, False, "finished")]
    groups = RunFolder(folder).log("groups").read()
    assert [group["step"] for group in groups] == [3, 6]
    for record in (guess for group in groups for guess in group["guesses"]):
        assert record["before"] < 0 > record["after"] != record["before"]
    calls.clear()
    _, folder = run(root, *settings(tmp_path, "sft"), "trainer.report=false", "trainer.steps=3")
    assert not calls and not (folder / "groups.jsonl").exists()


def test_the_report_plays_the_held_out_secrets_or_with_protocol_all_every_answer():
    split, whole = (
        build_experiment(resolve(composed("experiment=none", f"words.protocol={protocol}")))
        for protocol in ("split", "all")
    )
    assert split.test == split.splits.test and not {*split.test} & {*split.recipe.secrets}
    assert whole.test == whole.words.answers and len(whole.test) == 2315


def test_epochs_that_do_not_divide_end_with_a_step_that_is_not_whole():
    overrides = ["experiment=none", "trainer.epochs=1.5", "rollout.groups=64", "num_generations=2"]
    setup = build_experiment(resolve(composed(*overrides)))
    assert len(setup.recipe.secrets) == 1800
    assert setup.trainer.steps == 43  # 2,700 groups are 42 steps and 12 groups


def test_validation_plays_the_first_secrets_in_hash_order_and_the_split_stays():
    variants = [], ["trainer.validation_games=50"]
    base, subset = (build_experiment(resolve(composed(*overrides))) for overrides in variants)
    assert subset.validation == base.validation[:50] and len(base.validation) == 200
    assert subset.splits == base.splits
