"""A study in PostgreSQL: a real server of Debian's packages, started and stopped here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from tests.helpers.machines import ADDRESSES, Machines, find_obstacle, two_machines
from tests.helpers.studies import states, steps_done, worker

OBSTACLE = find_obstacle()
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
def url(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> Iterator[str]:
    """A fresh server's database."""
    with serving(tmp_path_factory.mktemp("postgres"), monkeypatch) as url:
        yield url


@contextmanager
def serving(
    root: Path, monkeypatch: pytest.MonkeyPatch, machines: Machines | None = None
) -> Iterator[str]:
    """The database of a fresh server, on this machine or on the first of two."""
    name, place = driver(root / "driver")
    if place is not None:
        monkeypatch.syspath_prepend(str(place))
    programs = server_folder(root / "server")
    # a server refuses to run as root
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    inside = as_nobody if os.getuid() == 0 else []
    address = "127.0.0.1"
    if machines is not None:
        inside, address = [*machines.inside(0), *inside], ADDRESSES[0]
    library = ":".join(map(str, (root / "server").glob("usr/lib/*-linux-gnu")))
    env = {**os.environ, "LC_ALL": "C", **({"LD_LIBRARY_PATH": library} if library else {})}
    data = root / "data"
    data.mkdir()
    if os.getuid() == 0:
        for folder in data.parents:  # with pytest -n there is one more
            if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & stat.S_IXOTH:
                folder.chmod(0o755)
        shutil.chown(data, "nobody")
        data.chmod(0o700)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def call(*command: str) -> None:
        subprocess.run(
            [*inside, str(programs / command[0]), *command[1:]],
            check=True, stdout=subprocess.DEVNULL, env=env, cwd="/", timeout=120,
        )  # fmt: skip

    call("initdb", "-D", str(data), "-U", "recipe", "--auth=trust", "--no-sync")
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all recipe 10.77.0.0/24 trust\n")
    options = f"-p {port} -c listen_addresses={address} -c unix_socket_directories= -c fsync=off"
    call("pg_ctl", "-D", str(data), "-w", "-l", str(data / "log"), "-o", options, "start")
    try:
        yield f"postgresql+{name}://recipe@{address}:{port}/postgres"
    finally:
        call("pg_ctl", "-D", str(data), "-m", "immediate", "stop")


@pytest.mark.several
@pytest.mark.skipif(OBSTACLE is not None, reason=str(OBSTACLE))
def test_workers_on_two_machines_share_a_study(tmp_path_factory, tmp_path, monkeypatch):
    fake, params = {"steps": 4, "seconds": 0.2}, {"x": "range(0, 5)"}
    root = tmp_path_factory.mktemp("postgres")
    with two_machines() as machines, serving(root, monkeypatch, machines) as url:
        both = [
            worker(tmp_path, fake, inside=machines.inside(node), params=params, storage=url)
            for node in (0, 1)
        ]
        said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4]] * 6, "each trial is done once"
    assert all("complete" in text and "starts in" in text for text in said), "both worked"


def test_workers_share_a_study_in_postgresql_and_take_over_from_the_killed(url, tmp_path):
    fake = {"steps": 6, "seconds": 0.3}
    node = {"params": {"x": "range(0, 5)"}, "storage": url, "heartbeat": 1, "grace": 3}
    both = [worker(tmp_path, fake, **node) for _ in range(2)]
    end = time.monotonic() + 60
    while len(steps_done(tmp_path)) < 2:
        assert time.monotonic() < end and both[0].poll() is None
        time.sleep(0.05)
    both[0].kill()
    said, _ = both[1].communicate(timeout=120)
    both[0].communicate()
    assert both[1].returncode == 0, said
    study = optuna.load_study(study_name="study", storage=url)
    assert sorted(states(study)) == ["COMPLETE"] * 6 + ["FAIL"]
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4, 5, 6]] * 6
