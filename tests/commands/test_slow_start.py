"""A slow start: progress goes to standard error, so standard output holds the answer alone."""

import os
import re

import yaml

from tests.helpers.commands import command
from wordle_rl.runs.config import compose_config

# Runs a command that says at once what it is doing, as it does on a busy machine.
SLOW = """
import functools, runpy, sys
from wordle_rl.runs import progress

progress.announce = functools.partial(progress.announce, first=0.0, every=0.01)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
DATED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S.*, [\d.]+ (s|min)(, .*left)?")


def test_the_config_of_a_slow_start_is_exactly_yaml():
    done, _ = command("-c", SLOW, "train.py", "seed=7", "--cfg", "job")
    assert yaml.safe_load(done.stdout) == compose_config("config", ["seed=7"])
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_completion_of_a_slow_start_are_their_answers_alone():
    done, _ = command("-c", SLOW, "eval.py", "--help")
    assert done.returncode == 0 and done.stderr == "" and not DATED.search(done.stdout)
    shell = {"COMP_WORDS": "wordle-rl train model=qwen0", "COMP_CWORD": "2"}
    env = {**os.environ, "_WORDLE_RL_COMPLETE": "complete_bash", **shell}
    done, _ = command("-c", SLOW, "wordle_rl/__main__.py", env=env)
    assert (done.stdout.split(), done.stderr) == (["model=qwen0.5b-coder"], "")


def test_progress_of_a_run_is_on_standard_error_and_its_results_on_the_other(tmp_path):
    done, _ = command(
        "-c", SLOW, "eval.py", "player=random", "limit=9", "compare=false", f"output_dir={tmp_path}"
    )
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines and all(DATED.fullmatch(line) for line in lines)
    assert "written to" in done.stdout and not DATED.search(done.stdout)
