"""Two workers on a study in PostgreSQL: a real server, started here where one is installed."""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from tests.helpers.studies import states, steps_done, worker

SERVERS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
DRIVERS = [name for name in ("psycopg", "psycopg2") if importlib.util.find_spec(name)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SERVERS and DRIVERS), reason="no PostgreSQL server, or no driver"),
]


@pytest.fixture
def url() -> Iterator[str]:
    """The database of a fresh server."""
    with tempfile.TemporaryDirectory() as folder:  # pytest keeps its own folders to its user
        data, inside = Path(folder) / "data", []
        data.mkdir(mode=0o700)
        if os.getuid() == 0:  # a server refuses to run as root
            inside = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            Path(folder).chmod(0o755)
            shutil.chown(data, "nobody")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        def call(name: str, *command: str) -> None:
            program = str(SERVERS[-1].with_name(name))
            subprocess.run(
                [*inside, program, "-D", str(data), *command],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd="/",
                timeout=120,
            )

        call("initdb", "-U", "me", "--auth=trust", "--no-sync")
        where = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        call("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-p {port} {where}", "start")
        yield f"postgresql+{DRIVERS[0]}://me@127.0.0.1:{port}/postgres"
        call("pg_ctl", "-m", "immediate", "stop")


def test_workers_share_a_study_in_postgresql_and_take_over_from_the_killed(url, tmp_path):
    fake = {"steps": 6, "seconds": 0.3}
    node = {"params": {"x": "range(0, 5)"}, "storage": url, "heartbeat": 1, "grace": 3}
    both = [worker(tmp_path, fake, **node) for _ in range(2)]
    end = time.monotonic() + 120
    while len(steps_done(tmp_path)) < 2:
        assert time.monotonic() < end and both[0].poll() is None
        time.sleep(0.05)
    both[0].kill()
    said, _ = both[1].communicate(timeout=240)
    both[0].communicate()
    assert both[1].returncode == 0, said
    study = optuna.load_study(study_name="study", storage=url)
    assert sorted(states(study)) == ["COMPLETE"] * 6 + ["FAIL"]
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4, 5, 6]] * 6
