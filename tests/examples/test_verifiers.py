"""Games that verifiers plays with a model behind a server are the games that eval.py plays.

verifiers pins libraries that we do not want, so it has an environment of its own:

    python -m venv .venv-verifiers
    .venv-verifiers/bin/pip install verifiers==0.4.0 uv hydra-core psutil
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wordle_rl.runs.paths import PACKAGE, ROOT

BIN = ROOT / ".venv-verifiers" / "bin"
GAMES = 8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "vf-eval").exists(), reason="see the head of this file"),
]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def address():
    """Of a server of the embedded model tiny, which answers greedily with 12 tokens at most."""
    file, model = Path(__file__).with_name("chat_server.py"), PACKAGE / "embedded" / "tiny"
    command = [sys.executable, str(file), str(model), "12"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


def test_verifiers_plays_the_games_of_eval(address: str, tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "eval.py",
            "model=tiny",
            f"limit={GAMES}",
            "compare=false",
            "show=0",
            "backend.precision=fp32",
            "backend.accelerator=cpu",
            f"output_dir={tmp_path / 'ours'}",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    places = f"{ROOT}:{ROOT / 'examples'}"
    subprocess.run(
        [
            BIN / "vf-eval",
            "verifiers_environment",
            "-n",
            str(GAMES),
            "-c",
            "2",
            "--env.taskset.part",
            "test",
            "--model",
            "tiny",
            "--client.base-url",
            address,
            "--no-push",
            "--no-rich",
            "-o",
            str(tmp_path / "theirs"),
        ],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": places, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )
    [folder] = (tmp_path / "ours").iterdir()
    ours = {game["secret"]: game["guesses"] for game in read(folder / "games.jsonl")}
    [file] = (tmp_path / "theirs").glob("*/traces.jsonl")
    traces = [trace for row in read(file) for trace in row["traces"]]
    theirs = {trace["task"]["data"]["secret"]: trace["info"]["guesses"] for trace in traces}
    assert len(ours) == GAMES and theirs == ours
    summary = json.loads((folder / "summary.json").read_text())
    totals = [sum(r["score"] * r["weight"] for r in trace["rewards"].values()) for trace in traces]
    assert sum(totals) / GAMES == pytest.approx(summary["reward"], abs=1e-6)
    assert [sum(trace["info"]["turn_rewards"]) for trace in traces] == pytest.approx(totals)
    win_rate = sum(trace["metrics"]["won"] for trace in traces) / GAMES
    assert win_rate == pytest.approx(summary["win_rate"])
