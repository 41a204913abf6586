"""Passwords in the addresses of databases: they are shown nowhere and kept in no file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.helpers.configs import composed
from tests.helpers.studies import work
from wordle_rl import cli, study
from wordle_rl import train as run
from wordle_rl.build import build_experiment, resolve
from wordle_rl.runs.addresses import hidden, shown_address, shown_command, without_hidden
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps import child_run as child
from wordle_rl.sweeps import reading
from wordle_rl.sweeps.settings import build_study_settings
from wordle_rl.sweeps.storage import open_storage


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s3%63ret@host:5/db", "postgresql://me:***@host:5/db"),
        ("postgresql://host/db?user=me&password=s3cret", "postgresql://host/db?password=***&user=me"),
        ("postgresql://host/db?pass%77ord=s3%63ret", "postgresql://host/db?password=***"),
        ("postgresql://me:s3cret@/db?PassWord=s3cret", "postgresql://me:***@/db?PassWord=***"),
        ("postgresql://host/db?sslpassword=s3cret&sslmode=require",
         "postgresql://host/db?sslmode=require&sslpassword=***"),
        ("mysql://host/db?passwd=s3cret&passwd=s3cret", "mysql://host/db?passwd=***"),
        ("mssql+pyodbc://host/db?pwd=s3cret", "mssql+pyodbc://host/db?pwd=***"),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Ds3cret",
         "mssql+pyodbc:///?odbc_connect=***"),
        ("postgresql://host/db?oauth_client_secret=s3cret",
         "postgresql://host/db?oauth_client_secret=***"),
        # what SQLAlchemy cannot read, or reads with some of the password in another part
        ("postgresql://me:s3cret", "postgresql://***"),
        ("postgresql://me:x@s3cret@host/db", "postgresql://***"),
        ("postgresql://me:x@y/s3cret@host/db", "postgresql://***"),
        ("postgresql://host/db;password=s3cret", "postgresql://***"),
        ("postgresql://host/db?user=me;pwd=s3cret", "postgresql://***"),
        ("me:s3cret@host/db", "***"),
        ("postgresql:/me:s3cret@host/db", "***"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_passwords(address, shown):
    assert shown_address(address) == shown
    for argument in (f"hydra.sweeper.storage={address}", f"hydra.sweeper.storage='{address}'"):
        assert shown_command([argument]) == [argument.replace(address, shown)]


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////home/me@work/my study/study.db", "postgresql://me@host/db?sslmode=require",
        "postgresql://host/db?passfile=/home/me/.pgpass", "https://huggingface.co/a:b/c?x=1",
    ],
)  # fmt: skip
def test_an_address_without_a_password_is_shown_as_it_is(address):
    assert shown_address(address) == address
    assert shown_command([f"hydra.sweeper.storage={address}"]) == [
        f"hydra.sweeper.storage={address}"
    ]


def test_what_quotes_an_address_or_only_its_password_is_shown_without_it():
    address = "postgresql://me:s%33cret@host/db?sslpassword=an%20other"
    text = f"no '{address}': user me with s3cret and 'an other'"
    assert hidden(text, [f"--storage={address}"]) == (
        "no 'postgresql://me:***@host/db?sslpassword=***': user me with *** and '***'"
    )
    assert hidden(text, ["optim.lr=1", "model.path=/me@home"]) == text


def test_a_shown_address_is_opened_without_its_passwords_so_that_the_driver_finds_its_own():
    shown = shown_address("postgresql://me:s3cret@host:5/db?sslmode=require&sslpassword=s3cret")
    assert without_hidden(shown) == "postgresql://me@host:5/db?sslmode=require"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+nodriver://me:s3cret@host/db", "postgresql+nodriver://host/db?password=s3cret",
        "postgresql://me:s3cret", "postgresql://me:x@s3cret@host/db", "me:s3cret@host/db",
        "sqlite:///{root}/no.db?password=s3cret", "sqlite:///{root}/a.db?passwd={{s3cret",
        "sqlite:///{root}/a.db?passwd={{s3cret}}",
    ],
)  # fmt: skip
def test_a_storage_that_cannot_be_opened_is_named_without_its_password(address, tmp_path):
    with pytest.raises(ValueError, match=r"^hydra\.sweeper\.storage=.*\*\*\*.*: ") as error:
        open_storage(address.format(root=tmp_path), heartbeat=60, grace=180)
    assert "s3cret" not in str(error.value) and error.value.__suppress_context__


def test_what_a_driver_says_is_shown_without_the_password(monkeypatch):
    address = "postgresql://me:s%33cret@host/db"

    def refused(url: str, **_: object) -> None:
        raise ConnectionError(f"\nno server at {url}: s3cret is wrong\nTry another.")

    monkeypatch.setattr("wordle_rl.sweeps.storage.StudyStorage", refused)
    with pytest.raises(ValueError, match="no server at") as error:
        open_storage(address, heartbeat=60, grace=180)
    shown = "postgresql://me:***@host/db"
    assert str(error.value) == (
        f"hydra.sweeper.storage={shown}: no server at {shown}: *** is wrong"
    )


def test_a_storage_that_is_no_text_is_refused_without_showing_it():
    with pytest.raises(ConfigError, match="storage must be text, the address") as error:
        build_study_settings({"name": "s", "storage": ["postgresql://me:s3cret@host/db"]})
    assert "s3cret" not in str(error.value)


def test_an_error_line_of_any_command_hides_the_passwords_of_its_arguments(monkeypatch, capsys):
    argument = "hydra.sweeper.storage=postgresql://host/db?user=me&password=s3cret"
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", argument])
    with pytest.raises(SystemExit):
        cli.fail(f"{argument}: settings are given as key=value, 's3cret' is not")
    assert capsys.readouterr().err == (
        "error: hydra.sweeper.storage=postgresql://host/db?password=***&user=me: "
        "settings are given as key=value, '***' is not\n"
    )


# sqlite passes on what it does not know in such an address, so it serves as one with a password
SQLITE = "sqlite:///file:{root}/kept.db?password=s3cret&uri=true"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database, in which a study was done."""
    address = SQLITE.format(root=tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", f"hydra.sweeper.storage='{address}'"])
    monkeypatch.setenv("WORDLE_RL_STORAGE", address)
    said = work(tmp_path, params={"x": "choice(0.1)"}, storage=address)
    assert "s3cret" not in "\n".join(said)
    return address


def test_a_study_keeps_its_password_in_no_file_and_its_report_asks_the_environment(
    kept, tmp_path, monkeypatch
):
    path = tmp_path / "study"
    about = json.loads((path / "study.json").read_text())
    assert "password=***" in about["storage"] and "password=***" in about["command"][2]
    asked: list[str] = []
    monkeypatch.setattr(
        reading, "open_storage", lambda url, **how: asked.append(url) or open_storage(url, **how)
    )
    assert study.main([str(path)]) == 0
    assert asked == [kept]
    monkeypatch.setenv("WORDLE_RL_STORAGE", "sqlite:////elsewhere/x.db")  # another one's
    assert study.main([str(path)]) == 0
    assert "password" not in asked[1] and "kept.db" in asked[1]
    for file in (f for f in tmp_path.rglob("*") if f.is_file()):
        assert b"s3cret" not in file.read_bytes(), file
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"study", "trials"}


def test_the_page_of_a_study_that_kept_its_password_does_not_show_it(tmp_path, monkeypatch):
    work(tmp_path, params={"x": "choice(0.1)"})
    path = tmp_path / "study" / "study.json"
    about = json.loads(path.read_text())
    about["command"] = ["train.py", "hydra.sweeper.storage='postgresql://h/d?password=s3cret'"]
    path.write_text(json.dumps(about))
    page = study.write_report(path.parent).read_text()
    assert "postgresql://h/d?password=***" in page and "s3cret" not in page


def test_a_report_that_cannot_reach_its_database_says_how_to_give_the_password(tmp_path, capsys):
    about = {"name": "s", "question": "", "command": [], "identity": {},
             "storage": "postgresql+nodriver://me:***@host/db"}  # fmt: skip
    (tmp_path / "study.json").write_text(json.dumps(about))
    with pytest.raises(SystemExit) as stop:
        study.main([str(tmp_path)])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--storage" in line and "WORDLE_RL_STORAGE" in line and "study.json" in line
    with pytest.raises(SystemExit):
        study.main([str(tmp_path), "--storage", "postgresql+nodriver://me:s3cret@host/db"])
    assert "s3cret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["postgresql://me:s3cret@host/db"],
        ["folder", "postgresql://me:s3 cret@host/db"],
        ["folder", "--storge=postgresql://host/db?password=s3cret"],
    ],
)
def test_wrong_arguments_of_the_report_are_one_line_without_passwords(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        study.main(arguments)
    [line] = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and line.startswith("error: ")
    assert "cret" not in line


def test_the_manifest_of_a_run_keeps_no_password(tmp_path, monkeypatch):
    # whoever forgets -m trains once with the settings of the study
    monkeypatch.setattr(sys, "argv", ["train.py", "hydra.sweeper.storage=mysql://me:s3cret@host/d"])
    folder = RunFolder.create(tmp_path, "run")
    setup = build_experiment(resolve(composed("model=micro")))
    run._write_start(folder, setup, None)
    run._reopen(folder, {}, restart=False)
    manifest = folder.manifest()
    for part in (manifest, *manifest["resumes"]):
        assert part["command"] == ["train.py", "hydra.sweeper.storage=mysql://me:***@host/d"]


def test_a_run_is_not_told_the_address_of_the_database(tmp_path, monkeypatch):
    monkeypatch.setenv("WORDLE_RL_STORAGE", "postgresql://me:s3cret@host/db")
    log = tmp_path / "output.log"
    made = child._Child([sys.executable, "-c", "import os; print(*os.environ.values())"], log, 1)
    while made.running(1.0):
        pass
    made.stop()
    assert made.code == 0 and log.stat().st_size and "s3cret" not in log.read_text()
