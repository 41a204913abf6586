"""A run becomes an embedded model: its weights, its record and its card."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from research.make_models import write_card, write_weights
from tests.helpers.commands import SMALL_RUN, trained, training
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.lineage import stages_of

pytestmark = pytest.mark.usefixtures("quiet")

REPORT = {
    "split": "test",
    "games": 6,
    "win_rate": 0.5,
    "win_rate_low": 0.2,
    "win_rate_high": 0.8,
    "mean_guesses": None,
    "mean_guesses_with_losses": 7.0,
    "non_words": 0.1,
}


def weights_of(run: Path, name: str) -> dict[str, torch.Tensor]:
    """The trained weights of the last checkpoint."""
    checkpoint = CheckpointStore(RunFolder.open(run).checkpoints, read_only=True).latest()
    assert checkpoint is not None
    return load_file(checkpoint / "model" / name)


def same_in_bfloat16(run: Path, folder: Path, name: str) -> bool:
    source, export = weights_of(run, name), load_file(folder / name)
    return source.keys() == export.keys() and all(
        torch.equal(export[key], weight.to(torch.bfloat16)) for key, weight in source.items()
    )


def test_the_record_names_the_embedded_model_of_each_stage(tmp_path: Path):  # row 38
    first_run = trained(tmp_path / "first", "name=taught")
    write_weights(RunFolder.open(first_run), tmp_path / "tiny")
    assert same_in_bfloat16(first_run, tmp_path / "tiny", "model.safetensors")
    rest = SMALL_RUN.partition("algorithm=")[2]
    root = tmp_path / "second"
    training(f"model=micro model.path={tmp_path}/tiny algorithm={rest} output_dir={root}")()
    [second_run] = root.iterdir()
    folder = tmp_path / "lexicon_clean"
    write_weights(RunFolder.open(second_run), folder)
    stages = stages_of(folder)
    assert [stage["embedded"] for stage in stages] == ["tiny", "lexicon_clean"]
    assert [{k: v for k, v in s.items() if k != "embedded"} for s in stages][1] == (
        stages_of(second_run / "model")[1]
    )
    write_card(RunFolder.open(second_run), folder, "It plays.", [REPORT])
    card = (folder / "README.md").read_text()
    assert "| lexicon_clean | test | 6 | 50.0 % (20.0 to 80.0) | - | 7.00 | 10.0 % |" in card
    assert "No test secret was ever the secret of a training game" in " ".join(card.split())
    assert "license: mit" in card
