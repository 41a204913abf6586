"""The models that studies begin with: one command makes them, and continues after Ctrl-C."""

import signal

import pytest

from research import make_starts
from wordle_rl.runs.interrupts import SIGNALS

TRAIN = """
import os, pathlib, signal, sys, time

given = dict(word.partition("=")[::2] for word in sys.argv[1:])
run = pathlib.Path(given.get("resume") or given["output_dir"] + "/20260101-0000_one")
run.mkdir(parents=True, exist_ok=True)
(run / "manifest.json").touch()
if "resume" in given:
    (run / "summary.json").touch()
else:
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    os.kill(os.getppid(), signal.SIGINT)  # as a terminal does at Ctrl-C
    time.sleep(60)
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.setattr(make_starts, "ROOT", tmp_path)
    monkeypatch.setattr(make_starts, "FOLDER", tmp_path / "starts")
    monkeypatch.setattr("sys.argv", ["make_starts.py", "teachers"])
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    yield make_starts.main
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_after_ctrl_c_the_same_command_continues_the_run(make, tmp_path):
    for names in {"teacher_made"}, {"teacher", "clean_made"}:
        with pytest.raises(SystemExit) as end:
            make()
        assert end.value.code == 130
        assert {path.name for path in (tmp_path / "starts").iterdir()} == names
    make()
    assert {path.name for path in (tmp_path / "starts").iterdir()} == {"teacher", "clean"}
