"""The notebook runs from top to bottom, and ends with what it promises."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from wordle_rl.runs.paths import ROOT

NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def check(notebook: nbformat.NotebookNode) -> str:
    """Check that the model learns in a notebook that ran. Returns what its cells printed."""
    outputs = (out for cell in notebook.cells for out in cell.get("outputs", ()))
    printed = "".join(out.get("text", "") for out in outputs)
    won = [int(n) for n in re.findall(r"(?:before|after): (\d+) of 50 won", printed)]
    shares = [int(n) for n in re.findall(r"second guess: (\d+)% -> (\d+)%", printed)[0]]
    assert won[1] > won[0] and shares[1] > shares[0] + 5
    return printed


def test_it_is_kept_with_the_outputs_of_a_run_which_name_no_place():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    printed = check(notebook)
    assert [*map(int, re.findall(r" step (\d+)/40 +\d+\.\d", printed))] == [*range(1, 41)]
    assert not re.search(r"(?<![\w.])/\w+/", printed) and NOTEBOOK.stat().st_size < 300_000


@pytest.mark.slow
def test_it_runs_in_five_minutes_and_the_model_learns():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": ROOT}})
    client.execute()
    check(notebook)
