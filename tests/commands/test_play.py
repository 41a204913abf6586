"""wordle-rl play before its page: what it refuses, and that it does so before it loads a model."""

import pytest

from tests.helpers.commands import command, error_of, trained
from wordle_rl.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--secret zzzzz", "ZZZZZ is not in the word list"),
        ("--player entropy --secret zzzzz", "ZZZZZ is not in the word list"),
        ("limit=3", "limit is for the games of eval.py"),
        ("run=latest", "write --run latest"),
        ("smapling.grammar=words", "did you mean sampling?"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_loaded(line, told):
    proc, _ = command("-X", "importtime", "-m", "wordle_rl", "play", "--no-browser", *line.split())
    lines = proc.stderr.splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("import time:"))
    assert (proc.returncode, proc.stdout) == (2, "") and told in error_of(text)
    modules = {line.split("|")[-1].strip() for line in lines}
    assert "typer" in modules and "torch" not in modules


def test_a_run_ends_with_the_command_that_opens_its_page(tmp_path, capsys):
    folder = RunFolder(trained(tmp_path / "runs"))
    assert (folder.path / "model").is_dir()
    assert f"wordle-rl play --run {folder.path}\n" in capsys.readouterr().out
