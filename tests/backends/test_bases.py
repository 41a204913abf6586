"""The model under an adapter is the one that it was trained on, wherever that is now."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.helpers.commands import SMALL_RUN, training
from tests.helpers.families import BATCH, save_family
from tests.helpers.mlx_tiny import settings_of
from tests.helpers.tiny import policy_of
from tests.helpers.updates import trained as taught
from wordle_rl.backends.adapters import ADAPTER, convert_adapter
from wordle_rl.backends.bases import digest_model
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.backends.torch.load import load_model
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import RECORD, base_of, stages_of, write_stages


def on_torch(folder: Path | str, **fields: Any) -> Any:
    return policy_of(*load_model(settings_of(folder, **fields), precision="fp32", device="cpu"))


def on_mlx(folder: Path | str, **fields: Any) -> Any:
    bundle = mlx_models.load_model(settings_of(folder, **fields), precision="fp32")
    return Policy(MlxMachine(bundle, optim=Optim(lr=1e-2)))


POLICIES: dict[str, Callable[..., Any]] = {"torch": on_torch, "mlx": on_mlx}
on_each_backend = pytest.mark.parametrize("backend", POLICIES)
LORA = LoraSettings(rank=2, alpha=4.0)


def train_adapter(backend: str, base: Path | str, target: Path) -> Path:
    """An adapter as a run's checkpoint has it."""
    taught(POLICIES[backend](base, lora=LORA)).machine.export(target)
    write_stages(target, [{"run": "here"}])
    return target


def other_weight(base: Path) -> None:
    weights = load_file(file := base / "model.safetensors")
    weights["model.norm.weight"][3] += 0.1
    save_file(weights, file, {"format": "pt"})


def other_epsilon(base: Path) -> None:
    config = json.loads((file := base / "config.json").read_text())
    file.write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))


@on_each_backend
@pytest.mark.parametrize("change", [other_weight, other_epsilon])
def test_another_base_is_refused_unless_it_is_allowed(backend, change, tmp_path):
    base = save_family(tmp_path / "base", "qwen2")
    adapter = train_adapter(backend, base, tmp_path / "adapter")
    assert stages_of(adapter) == [{"run": "here"}]
    before = POLICIES[backend](adapter).score(BATCH)
    change(base)
    with pytest.raises(ConfigError, match=r"another model than .*base.*allow_mismatch=true"):
        POLICIES[backend](adapter)
    after = POLICIES[backend](adapter, any_base=True).score(BATCH)
    assert np.abs(after - before).max() > 1e-4
    (adapter / RECORD).unlink()
    np.testing.assert_array_equal(POLICIES[backend](adapter).score(BATCH), after)


@on_each_backend
def test_a_local_base_is_found_from_any_folder_and_missed_by_name(backend, tmp_path, monkeypatch):
    save_family(tmp_path / "base", "qwen2")
    (folder := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    adapter = train_adapter(backend, "base", tmp_path / "adapter")
    entry = "model" if backend == "mlx" else "base_model_name_or_path"
    assert json.loads((adapter / ADAPTER).read_text())[entry] == "base"
    expected = POLICIES[backend](adapter).score(BATCH)
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(POLICIES[backend](adapter).score(BATCH), expected)
    POLICIES[backend](adapter).machine.export(tmp_path / "again")
    assert base_of(tmp_path / "again") == base_of(adapter)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ConfigError) as stop:  # and nobody asks the hub for a model "base"
        POLICIES[backend](adapter)
    assert f"its base base is missing, which was in {tmp_path / 'base'}" in str(stop.value)
    config = json.loads((adapter / ADAPTER).read_text())
    (adapter / ADAPTER).write_text(json.dumps(config | {entry: str(tmp_path / "moved")}))
    np.testing.assert_array_equal(POLICIES[backend](adapter).score(BATCH), expected)
    (adapter / ADAPTER).write_text(json.dumps(config))
    shutil.copytree(tmp_path / "moved", folder / "base")
    np.testing.assert_array_equal(POLICIES[backend](adapter).score(BATCH), expected)


def test_an_adapter_in_the_other_form_keeps_its_base_or_has_a_new_one(tmp_path):
    base = save_family(tmp_path / "base", "qwen2")
    adapter = train_adapter("torch", base, tmp_path / "adapter")
    convert_adapter(adapter, tmp_path / "mlx")
    assert base_of(tmp_path / "mlx") == base_of(adapter) != {}
    convert_adapter(adapter, tmp_path / "other", base=str(save_family(tmp_path / "b", "qwen2")))
    assert base_of(tmp_path / "other") == {} and stages_of(tmp_path / "other")


def test_the_digest_is_of_the_model_and_not_of_how_its_files_are_written(tmp_path):
    base = save_family(tmp_path / "base", "qwen2")
    digest = digest_model(base)
    parts = tmp_path / "parts"
    model = AutoModelForCausalLM.from_pretrained(base)
    model.save_pretrained(parts, max_shard_size="20KB")
    assert len([*parts.glob("*.safetensors")]) > 2 and digest_model(parts) == digest
    config = json.loads((base / "config.json").read_text())
    old_config = config | {"rope_theta": config.pop("rope_parameters")["rope_theta"]}
    old_config = old_config | {"transformers_version": "4.40"}
    old_config.pop("rope_parameters", None)
    (base / "config.json").write_text(json.dumps(old_config))
    assert digest_model(base) == digest
    (base / "config.json").write_text(json.dumps(old_config | {"rope_theta": 77.0}))
    assert digest_model(base) != digest


def test_a_run_is_resumed_on_its_base_where_that_was_moved(tmp_path, refused):
    base = save_family(tmp_path / "base", "qwen2")
    model_args = f"model={base} 'model.lora={{rank: 2, alpha: 4}}' model.max_context=1024"
    run_args = SMALL_RUN.partition("intermediate_size: 64}'")[2].replace("steps=2", "steps=1")
    (runs := tmp_path / "runs").mkdir()
    training(f"experiment=none {model_args} {run_args} sampling.max_tokens=8 output_dir={runs}")()
    [run] = runs.iterdir()
    base.rename(new_base := tmp_path / "moved")
    other_base = save_family(tmp_path / "other", "qwen2")
    other_weight(other_base)
    args = f"resume={run} trainer.steps=2"
    assert "a resumed run keeps model" in refused(training(f"{args} model.path={other_base}"))
    training(f"{args} model.path={new_base}")()
    checkpoint = run / "checkpoints" / "step_000002" / "model"
    assert base_of(checkpoint)["path"] == str(new_base)
