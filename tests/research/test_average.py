"""The mean of adapters, against numpy."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from research.average import CONFIG, WEIGHTS, main


def make(folder, weights, **settings):
    folder.mkdir()
    save_file({"a": np.array(weights, np.float32)}, folder / WEIGHTS)
    config = {"base_model_name_or_path": "base", "r": 2, **settings}
    (folder / CONFIG).write_text(json.dumps(config))
    return folder


def call(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["average.py", *map(str, arguments)])
    main()


def test_the_mean_of_three_adapters(tmp_path, monkeypatch):
    weights = [[1.0, 2.0], [4.0, -2.0], [1.0, 3.0]]
    folders = [make(tmp_path / str(n), row) for n, row in enumerate(weights)]
    call(monkeypatch, tmp_path / "mean", *folders)
    assert load_file(tmp_path / "mean" / WEIGHTS)["a"] == pytest.approx(np.mean(weights, 0))
    assert json.loads((tmp_path / "mean" / CONFIG).read_text())["r"] == 2


@pytest.mark.parametrize(
    ("settings", "told"), [({"r": 4}, "its r"), ({"base_model_name_or_path": "b"}, "base_model")]
)
def test_adapters_that_do_not_fit_together_are_refused(settings, told, tmp_path, monkeypatch):
    folders = [make(tmp_path / "a", [1.0]), make(tmp_path / "b", [1.0], **settings)]
    with pytest.raises(SystemExit, match=told):
        call(monkeypatch, tmp_path / "mean", *folders)
    assert not (tmp_path / "mean").exists()
