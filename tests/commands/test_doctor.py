"""wordle-rl doctor on run folders and on the logs of other trainers."""

import json
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from wordle_rl.__main__ import run
from wordle_rl.runs.folder import RunFolder

STEPS = 12
COLLAPSE = {"reward": 1.0, "frac_reward_zero_std": 0.95, "entropy": 0.5}  # TRL's names


def say(capsys, *arguments):
    code = run(["doctor", *map(str, arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.fixture
def folder(tmp_path):
    run_folder = RunFolder.create(tmp_path, "sick")
    run_folder.write_manifest()
    (run_folder.path / "config.yaml").write_text("optim:\n  lr: 0.5\n")
    return run_folder


def test_a_run_is_read_while_it_trains_and_the_setting_to_change_is_told(folder, capsys):
    for step in range(1, STEPS + 1):
        row = {"reward/mean": 1.0, "policy/surprise": 2.0 / step, "train/win_rate": 0.2}
        folder.log("metrics").append(step, row)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "rew')  # as a process leaves it that is writing
    code, out, _ = say(capsys, folder.path)
    assert not code and "the rate is too high" in out and "now 0.5" in out
    assert len(out.splitlines()) <= 10


def write_state(path):
    log = [{"step": step, **COLLAPSE} for step in range(1, STEPS + 1)]
    path.write_text(json.dumps({"log_history": [*log, {"train_runtime": 1.0}]}))
    return path


def write_lines(path):
    # verl's: the metrics are under data
    names = {"reward": "critic/rewards/mean", "entropy": "actor/entropy"}
    data = {names.get(name, name): value for name, value in COLLAPSE.items()}
    path.write_text("".join(json.dumps({"step": n, "data": data}) + "\n" for n in range(STEPS)))
    return path


def write_events(path):
    with SummaryWriter(str(path)) as writer:
        for step in range(STEPS):
            for name, value in COLLAPSE.items():
                writer.add_scalar(f"train/{name}", value, step)
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [("trainer_state.json", write_state), ("verl.jsonl", write_lines), ("tb", write_events)],
)
def test_the_logs_of_other_trainers_are_read(name, write, tmp_path, capsys):
    code, out, _ = say(capsys, write(tmp_path / name))
    assert not code and "groups without spread" in out and "95%" in out


def test_a_log_of_trl_says_what_its_run_was(capsys):
    # Ten steps of examples/trl_rollout.py at 1e-5, a hundredth of the rate that mini learns at.
    code, out, _ = say(capsys, Path(__file__).with_name("trl_trainer_state.json"))
    assert not code and "10 steps" in out and "the rate is too low" in out and "1e-05" in out


@pytest.mark.parametrize("text", ["", "no json", "[1, 2]\n", '{"loss": 1}\n'])
def test_a_file_that_is_no_log_ends_in_one_line(text, tmp_path, capsys):
    file = tmp_path / "log.jsonl"
    file.write_text(text)
    with pytest.raises(SystemExit) as end:
        say(capsys, file)
    message = capsys.readouterr().err
    assert end.value.code == 2 and message.count("\n") == 1 and str(file) in message
