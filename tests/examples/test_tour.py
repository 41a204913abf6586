"""The notebook runs from top to bottom, and ends with what it promises."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from wordle_rl.runs.paths import ROOT

NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def test_it_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.outputs == [] for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.slow
def test_it_runs_in_five_minutes_and_the_model_learns():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": ROOT}})
    client.execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    won = [int(n) for n in re.findall(r"(?:before|after): (\d+) of 50 won", printed)]
    assert len(won) == 2 and won[1] > won[0]
    shares = re.search(r"information of the second guess: (\d+)% -> (\d+)%", printed)
    assert shares is not None and int(shares[2]) > int(shares[1]) + 5
