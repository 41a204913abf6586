"""The notebook runs from top to bottom, and ends with what it promises."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from wordle_rl.runs.paths import ROOT

NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def check(notebook: nbformat.NotebookNode) -> str:
    """Check that the model learns in a notebook that ran. Returns what its cells printed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    text = "".join(output.get("text", "") for output in outputs)
    wins = [int(n) for n in re.findall(r"(?:before|after): (\d+) of 50 won", text)]
    shares = [int(n) for n in re.findall(r"second guess: (\d+)% -> (\d+)%", text)[0]]
    assert wins[1] > wins[0] and shares[1] > shares[0] + 5
    return text


def test_it_is_kept_with_the_outputs_of_a_run_which_name_no_place():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    text = check(notebook)
    assert [*map(int, re.findall(r" step (\d+)/40 +\d+\.\d", text))] == [*range(1, 41)]
    assert not re.search(r"(?<![\w.])/\w+/", text) and NOTEBOOK.stat().st_size < 300_000


@pytest.mark.slow
def test_it_runs_in_five_minutes_and_the_model_learns():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": ROOT}})
    client.execute()
    check(notebook)
