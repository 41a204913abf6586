"""wordle-rl runs --to: the runs of a folder as one tidy table."""

import json

import pandas as pd
import pytest

from wordle_rl.commands.runs import runs
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_all_runs_has_a_row_a_run_with_its_result_and_its_settings(ending, tmp_path):
    for seed, wins in enumerate((0.5, 0.75)):
        folder = RunFolder.create(tmp_path / "outputs", f"seed{seed}")
        folder.write_manifest()
        (folder.path / "config.yaml").write_text(f"seed: {seed}\noptim: {{lr: 0.001}}\n")
        (folder.path / "summary.json").write_text(json.dumps({"win_rate": wins, "games": 4}))
    RunFolder.create(tmp_path / "outputs", "broken").write_manifest()
    file = tmp_path / f"all.{ending}"
    runs([f"output_dir={tmp_path / 'outputs'}"], to=file)
    table = pd.read_csv(file) if ending == "csv" else pd.read_parquet(file)
    table = table.set_index(table.run.str.split("_").str[1])
    assert table.win_rate[["seed0", "seed1"]].tolist() == [0.5, 0.75]
    assert table["setting.seed"][["seed0", "seed1"]].astype(float).tolist() == [0.0, 1.0]
    assert "broken" in table.index and "setting.optim.lr" in table


def test_a_table_that_needs_pyarrow_names_it_and_another_way(tmp_path, monkeypatch):
    monkeypatch.setattr("wordle_rl.commands.runs.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pyarrow is not installed: .*\[data\].*all\.csv"):
        runs([f"output_dir={tmp_path}"], to=tmp_path / "all.parquet")
