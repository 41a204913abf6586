"""The command that makes files: what it prints, the same bytes again, and who can load them."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from wordle_rl.__main__ import app
from wordle_rl.commands.data import data
from wordle_rl.runs.tables import KINDS, read_table


def make(capsys, mode: Any, output: Path, *settings: str, **options: Any) -> str:
    """What the command prints."""
    capsys.readouterr()
    data(mode, list(settings), output=output, **options)
    return capsys.readouterr().out


def test_counts_and_digest_are_printed_and_the_same_seed_gives_the_same_bytes(tmp_path, capsys):
    path, copy, variant = (tmp_path / f"{name}.jsonl" for name in ("one", "again", "other"))
    text = make(capsys, "rl", path, count=40)
    make(capsys, "rl", copy, count=40)
    make(capsys, "rl", variant, count=40, seed=1)
    assert path.read_bytes() == copy.read_bytes() != variant.read_bytes()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"{path}: 40 rows, 40 secrets (split train, protocol=split)" in text
    assert text.endswith(f"sha256: {digest}\n")
    counts = re.findall(r"(\d): (\d+)", text.partition("states by clues")[2].partition("\n")[0])
    rows = [row for _, row in read_table(path, None, tmp_path / "cache")[1]]
    assert {int(k): int(n) for k, n in counts} == {
        k: [row["clues"] for row in rows].count(k) for k in {row["clues"] for row in rows}
    }


def test_trl_finds_its_columns_when_the_library_loads_a_file(tmp_path, capsys):
    datasets = pytest.importorskip("datasets")
    tables = {}
    for mode, options in (("rl", {}), ("sft", {}), ("sft", {"per": "answer"})):
        path = tmp_path / f"{mode}{len(options)}.parquet"
        make(capsys, mode, path, count=12, **options)
        tables[path.stem] = datasets.load_dataset(
            "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
        )
    row = tables["rl0"][0]
    assert [message["role"] for message in row["prompt"][:2]] == ["system", "user"]
    assert row["prompt"][-1]["role"] == "user"
    assert len(row["past_guesses"]) == row["clues"]
    assert tables["sft0"][0]["messages"][-1]["role"] == "assistant"
    [answer] = tables["sft1"][0]["completion"]
    assert answer["role"] == "assistant" and tables["sft1"][0]["prompt"][-1]["role"] == "user"


def test_wrong_settings_write_nothing(tmp_path):
    for mode, setting, message in (
        ("rl", "seed=3", "seed is no setting here; use --seed"),
        ("rl", "rollout.form=tool", "rollout.form must be conversation or fresh"),
        ("sft", "history=upto4", "history must be none for data of sft"),
        ("sft", "algorithm=distill", "algorithm must be sft for data of sft"),
    ):
        with pytest.raises(ValueError, match=message):
            data(mode, [setting], output=tmp_path / "rows.jsonl")
    assert not list(tmp_path.iterdir())


def test_exactly_the_kinds_of_files_that_the_help_names_are_written_and_the_error_names_them(
    tmp_path, capsys
):
    params = get_command(app).commands["data"].params  # pyright: ignore[reportAttributeAccessIssue]
    [option] = [param for param in params if param.name == "output"]
    endings = set(re.findall(r"\.\w+", option.help.partition(";")[0]))
    for ending in (".jsonl", ".parquet", ".csv", ".json", ".txt", ""):
        path = tmp_path / f"rows{ending}"
        if ending in endings:
            make(capsys, "rl", path, count=3)
            assert len(read_table(path, None, tmp_path / "cache")[1]) == 3
        else:
            with pytest.raises(ValueError, match="output must end in") as stop:
                data("rl", output=path)
            assert endings == {
                kind for kind in KINDS if f"{kind} " in f"{stop.value}".replace(",", " ")
            }
            assert not path.exists()
