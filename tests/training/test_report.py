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
    given = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report_limit=4"]
    summary, folder = run(root, *given, "optim.lr=3e-2")
    start = json.loads((folder / "start.json").read_text())
    assert (start["games"], summary["games"], summary["secrets"]) == (4, 4, 4)
    told = capsys.readouterr().out
    assert "the reports play 4 of 6 secrets (trainer.report_limit)" in told
    if summary["exported_step"]:
        assert "% of 4 test secrets, greedy." in told.splitlines()[-2]
    # A later limit does not part the two reports.
    (folder / "summary.json").unlink()
    assert resume(folder, "trainer.report_limit=2")["games"] == 4


def test_a_run_writes_its_page_at_each_validation_and_keeps_a_group(tmp_path, root, monkeypatch):
    seen = []

    def look(folder: RunFolder, *, trains: bool = False) -> None:
        last = folder.log("metrics").last()
        seen.append((last and last["step"], trains, folder.status))

    monkeypatch.setattr(train_command, "write_page", look)
    _, folder = run(root, *settings(tmp_path, "two updates with muon"))
    told = [(step, True, "running") for step in (0, 3, 6)]
    assert seen == [*told, (6, False, "finished")]
    groups = RunFolder(folder).log("groups").read()
    assert [group["step"] for group in groups] == [3, 6]
    for one in (one for group in groups for one in group["guesses"]):
        assert one["before"] < 0 > one["after"] != one["before"]
    seen.clear()
    _, folder = run(root, *settings(tmp_path, "sft"), "trainer.report=false", "trainer.steps=3")
    assert not seen and not (folder / "groups.jsonl").exists()


def test_the_report_plays_the_held_out_secrets_or_with_protocol_all_every_answer():
    split, whole = (
        build_experiment(resolve(composed("experiment=none", f"words.protocol={protocol}")))
        for protocol in ("split", "all")
    )
    assert split.test == split.splits.test and not {*split.test} & {*split.recipe.secrets}
    assert whole.test == whole.words.answers and len(whole.test) == 2315


def test_epochs_that_do_not_divide_end_with_a_step_that_is_not_whole():
    given = ["experiment=none", "trainer.epochs=1.5", "rollout.groups=64", "num_generations=2"]
    setup = build_experiment(resolve(composed(*given)))
    assert len(setup.recipe.secrets) == 1800
    assert setup.trainer.steps == 43  # 2,700 groups are 42 steps and 12 groups


def test_validation_plays_the_first_secrets_in_hash_order_and_the_split_stays():
    given = [], ["trainer.validation_games=50"]
    whole, some = (build_experiment(resolve(composed(*one))) for one in given)
    assert some.validation == whole.validation[:50] and len(whole.validation) == 200
    assert some.splits == whole.splits
