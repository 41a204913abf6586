"""A slow start: progress goes to standard error, so standard output holds the answer alone."""

import os
import re

import yaml

from tests.helpers.commands import command
from wordle_rl.runs.config import compose_config

# Runs a command that says at once what it is doing, as it does on a busy machine.
CODE = """
import functools, runpy, sys
from wordle_rl.runs import progress

progress.announce = functools.partial(progress.announce, first=0.0, every=0.01)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PROGRESS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S.*, [\d.]+ (s|min)(, .*left)?")


def test_the_config_of_a_slow_start_is_exactly_yaml():
    result, _ = command("-c", CODE, "train.py", "seed=7", "--cfg", "job")
    assert yaml.safe_load(result.stdout) == compose_config("config", ["seed=7"])
    assert (result.returncode, result.stderr) == (0, "")


def test_help_and_completion_of_a_slow_start_are_their_answers_alone():
    result, _ = command("-c", CODE, "eval.py", "--help")
    assert result.returncode == 0 and result.stderr == "" and not PROGRESS.search(result.stdout)
    shell = {"COMP_WORDS": "wordle-rl train model=qwen0", "COMP_CWORD": "2"}
    env = {**os.environ, "_WORDLE_RL_COMPLETE": "complete_bash", **shell}
    result, _ = command("-c", CODE, "wordle_rl/__main__.py", env=env)
    assert (result.stdout.split(), result.stderr) == (["model=qwen0.5b-coder"], "")


def test_progress_of_a_run_is_on_standard_error_and_its_results_on_the_other(tmp_path):
    result, _ = command(
        "-c", CODE, "eval.py", "player=random", "limit=9", "compare=false", f"output_dir={tmp_path}"
    )
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    assert lines and all(PROGRESS.fullmatch(line) for line in lines)
    assert "written to" in result.stdout and not PROGRESS.search(result.stdout)
