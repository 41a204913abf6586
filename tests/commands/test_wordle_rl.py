"""The command wordle-rl: it has every command, names near misses, and completes what is typed."""

from __future__ import annotations

import importlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyte
import pytest

from tests.helpers.commands import command
from wordle_rl.commands import COMPOSED, describe_commands, find_commands, find_module
from wordle_rl.completion import complete
from wordle_rl.runs import paths
from wordle_rl.runs.paths import PACKAGE

HEAVY = {"torch", "lightning", "transformers", "numpy", "hydra", "matplotlib", "optuna"}
# Modules that are run, but not by a person: parts of commands, and a name that has changed.
NO_COMMANDS = {"train", "evaluate", "worker", "standby", "entropy", "sweeps.dead_workers"}


def test_every_module_that_can_be_run_is_a_command_of_wordle_rl():
    runnable = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__main__")
        for path in PACKAGE.rglob("*.py")
        if re.search(r'^if __name__ == "__main__":', path.read_text(encoding="utf-8"), re.M)
    } - {"__main__"}
    assert runnable > NO_COMMANDS
    commands = {name.replace("-", "_") for name in find_commands()} - set(COMPOSED)
    assert runnable - NO_COMMANDS == commands, (
        "a command begins with start.begin(), see commands.py"
    )


def test_each_command_has_a_summary_that_fits_a_narrow_terminal(monkeypatch):
    commands = find_commands()
    assert [*commands][:2] == ["train", "eval"] and len(commands) > 10
    for summary in commands.values():
        assert summary and "python -m" not in summary and not summary.endswith((".", ":"))
    for columns in (80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = describe_commands().splitlines()
        assert max(map(len, lines)) <= columns
        assert all(any(line.startswith(f"  {name} ") for line in lines) for name in commands)


def test_a_module_that_is_no_command_has_no_name_either():
    assert find_module("plot-wins") == "wordle_rl.plot_wins"
    assert find_module("runs") == "wordle_rl.runs"
    assert find_module("worker") is None and find_module("sweeps") is None


def imported(importtime: str) -> set[str]:
    """The packages that `python -X importtime` listed."""
    return {line.split("|")[-1].strip().partition(".")[0] for line in importtime.splitlines()}


def test_the_list_is_printed_without_heavy_imports():
    done, _ = command("-X", "importtime", "-m", "wordle_rl", "--help")
    assert done.returncode == 0 and not imported(done.stderr) & HEAVY
    assert "\n  memory-plan " in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("trian", "did you mean train?"), ("plot_win", "did you mean plot-wins?"), ("xyz", "--help")],
)
def test_an_unknown_command_names_the_near_miss(name, said):
    done, _ = command("-m", "wordle_rl", name, "trainer.steps=2")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: there is no command {name}") and said in done.stderr


def test_a_command_is_its_module_and_its_settings_are_checked_as_usual(tmp_path):
    done, _ = command("-m", "wordle_rl", "runs", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}: no runs yet\n")
    done, _ = command("-m", "wordle_rl", "train", "modle=tiny")
    assert done.returncode == 2 and "did you mean model?" in done.stderr


LINES = {
    "wordle-rl tra": ["train "],
    "wordle-rl train model=mi": ["model=micro ", "model=mini "],
    "wordle-rl train -m reward=win_only,phase1": ["reward=win_only,phase1 ",
                                                  "reward=win_only,phase1_seed "],
    "wordle-rl train optim.l": ["optim.lr="],
    "wordle-rl eval mo": ["model="],
    "wordle-rl train play": [],  # that is a setting of eval
    "wordle-rl eval play": ["player="],
    "wordle-rl train se": ["seed="],
    "wordle-rl completion ": ["bash ", "zsh "],
    "wordle-rl plot-wins out": [],  # the shell completes files
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_choices_options_and_settings_are_completed(line):
    assert complete(line) == LINES[line]


def test_run_folders_are_completed_and_unfinished_folders_are_not(tmp_path):
    for name in ("one", "two"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
    (tmp_path / "outputs" / "one" / "manifest.json").touch()
    found = ["resume=latest ", "resume=outputs/one "]
    assert complete("wordle-rl train resume=", root=tmp_path) == found


BASH = """
eval "$({command} completion bash)"
COMP_LINE='{line}' COMP_POINT=${{#COMP_LINE}} COMP_WORDS=({program} {rest})
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_wordle_rl
printf '[%s]' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """wordle-rl as pip installs it."""
    path = tmp_path / "wordle-rl"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "from wordle_rl.__main__ import main\nsys.exit(main())\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("line", "rest", "found"),
    [
        ("wordle-rl mem", "mem", "[memory-plan ]"),
        # Bash takes = for a word of its own and completes what follows it.
        ("wordle-rl train model=mi", "train model = mi", "[micro ][mini ]"),
        ("wordle-rl train optim.lr", "train optim.lr", "[optim.lr=]"),
    ],
)
def test_bash_completes_what_follows_the_last_equals_sign(line, rest, found, program):
    script = BASH.format(command=program, program=program, line=line, rest=rest)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (found, "")


TABS = {  # what is typed before the Tab -> the command line behind it
    "wordle-rl mem": "wordle-rl memory-plan",
    "wordle-rl train mod": "wordle-rl train model=",
    "wordle-rl train model=tiny,smollm2_": "wordle-rl train model=tiny,smollm2_sft",
    "wordle-rl train resume=l": "wordle-rl train resume=latest",
    "wordle-rl plot-wins READ": "wordle-rl plot-wins README.md",
}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_commands_choices_runs_and_files_on_a_tab(program, tmp_path):
    (tmp_path / "README.md").touch()
    (tmp_path / ".zshrc").write_text(
        "PS1='> '; autoload -Uz compinit; compinit -u -D\n"
        'eval "$(wordle-rl completion zsh)"; print ready\n'
    )
    path = f"{program.parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "ZDOTDIR": str(tmp_path), "TERM": "xterm"}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-di"], env)
    screen = pyte.Screen(80, 24)
    try:
        assert typed(terminal, screen, "", "ready\n>") == "ready\n>"
        for line, found in TABS.items():
            typed(terminal, screen, "\x0c", ">")  # clears the screen
            assert typed(terminal, screen, f"{line}\t", f"> {found}") == f"> {found}"
            typed(terminal, screen, "\x15", ">")  # clears the line
    finally:
        os.close(terminal)  # which ends the shell
        os.waitpid(child, 0)


def typed(terminal: int, screen: pyte.Screen, keys: str, expected: str) -> str:
    """The text on the screen once it is as expected, or after 20 seconds."""
    stream, end, shown = pyte.ByteStream(screen), time.monotonic() + 20, ""
    os.write(terminal, keys.encode())
    while shown != expected and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            stream.feed(os.read(terminal, 65536))
        shown = "\n".join(line.strip() for line in screen.display).strip()
    return shown


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("name", ["convert", "plot_wins", "runs", "study"])
def test_usage_names_the_command_as_messages_do(name, installed, monkeypatch, capsys):
    monkeypatch.setattr(paths, "INSTALLED", installed)
    module = importlib.import_module(find_module(name) + ".__main__" * (name == "runs"))
    with pytest.raises(SystemExit):
        module.main(["--help"])
    called = f"wordle-rl {name}".replace("_", "-") if installed else f"python -m wordle_rl.{name}"
    assert capsys.readouterr().out.startswith(f"usage: {called} [")


def test_a_key_press_is_answered_without_heavy_imports():
    done, _ = command(
        "-X", "importtime", "-m", "wordle_rl", "completion", "--line", "wordle-rl train optim."
    )
    assert done.returncode == 0 and "optim.lr=" in done.stdout
    assert not imported(done.stderr) & HEAVY
