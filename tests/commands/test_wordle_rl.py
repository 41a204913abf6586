"""The command wordle-rl finds its commands, names near misses and ends an error in one line."""

import pytest

from tests.helpers.commands import command, error_of

HEAVY = {"torch", "lightning", "transformers", "numpy", "hydra", "matplotlib", "optuna", "pandas"}


def test_the_list_is_printed_without_heavy_imports():
    proc, _ = command("-X", "importtime", "-m", "wordle_rl", "--help")
    packages = {line.split("|")[-1].strip().partition(".")[0] for line in proc.stderr.splitlines()}
    assert proc.returncode == 0 and not packages & HEAVY
    assert "\n  train " in proc.stdout and "--install-completion" in proc.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trian", "Did you mean 'train'?"),
        ("train modle=tiny", "model?"),
        ("judge", "algorithm, batch_rate"),
        ("report", "wordle-rl runs"),
    ],
)
def test_wrong_input_ends_in_one_line_that_names_what_was_meant(line, said):
    proc, _ = command("-m", "wordle_rl", *line.split())
    assert (proc.returncode, proc.stdout) == (2, "")
    assert said in error_of(proc.stderr)
