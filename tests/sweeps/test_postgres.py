"""Two workers on a study in PostgreSQL: a real server of Debian's packages, started here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from tests.helpers.studies import states, steps_done, worker

pytestmark = pytest.mark.slow
PACKAGES = ("postgresql-15", "libpq5", "libllvm14", "libldap-2.5-0", "libxml2", "libicu72")
DRIVER = "python3-psycopg2"


def unpacked(packages: tuple[str, ...], root: Path) -> None:
    """Debian packages unpacked into a folder; nothing on the machine changes."""
    if shutil.which("apt-get") is None:
        pytest.skip("PostgreSQL is neither installed nor to be had without apt-get")
    root.mkdir(exist_ok=True)
    got = subprocess.run(
        ["apt-get", "download", *packages], cwd=root, capture_output=True, text=True, timeout=120
    )
    if got.returncode:
        pytest.skip(f"Debian's packages cannot be reached: {got.stderr.strip().splitlines()[-1:]}")
    for package in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=60)


def server_folder(root: Path) -> Path:
    """Where initdb and pg_ctl are: installed, or unpacked now."""
    for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (place / "initdb").exists():
            return place
    unpacked(PACKAGES, root)
    return next(root.glob("usr/lib/postgresql/*/bin"))


def driver(root: Path) -> tuple[str, Path | None]:
    """SQLAlchemy's name of a driver, and the folder to import it from."""
    for name in ("psycopg", "psycopg2"):
        if importlib.util.find_spec(name):
            return name, None
    unpacked((DRIVER,), root)
    place = root / "usr/lib/python3/dist-packages"
    tried = subprocess.run(
        [sys.executable, "-c", "import psycopg2"], env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip(f"Debian's psycopg2 is not for this Python: {tried.stderr.splitlines()[-1]}")
    return "psycopg2", place


@pytest.fixture
def url(monkeypatch) -> Iterator[str]:
    """The database of a fresh server."""
    with tempfile.TemporaryDirectory() as folder:  # pytest keeps its own folders to its user
        root, inside = Path(folder), []
        data = root / "data"
        data.mkdir(mode=0o700)
        if os.getuid() == 0:  # a server refuses to run as root
            inside = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            root.chmod(0o755)
            shutil.chown(data, "nobody")
        name, place = driver(root / "driver")
        if place is not None:
            monkeypatch.syspath_prepend(str(place))
        programs = server_folder(root / "server")
        library = ":".join(map(str, (root / "server").glob("usr/lib/*-linux-gnu")))
        env = {**os.environ, "LC_ALL": "C", **({"LD_LIBRARY_PATH": library} if library else {})}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        def call(name: str, *command: str) -> None:
            subprocess.run(
                [*inside, str(programs / name), "-D", str(data), *command],
                check=True, stdout=subprocess.DEVNULL, env=env, cwd="/", timeout=120,
            )  # fmt: skip

        call("initdb", "-U", "me", "--auth=trust", "--no-sync")
        where = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        call("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-p {port} {where}", "start")
        yield f"postgresql+{name}://me@127.0.0.1:{port}/postgres"
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
