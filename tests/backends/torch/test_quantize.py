"""A base in 4 bits under an adapter: what it computes, learns and refuses."""

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.helpers.commands import error_of
from tests.helpers.configs import composed
from tests.helpers.tiny import batch_of, gradients, policy_of, same, weights_of
from tests.helpers.updates import PLAIN, ROWS, play_bandit
from wordle_rl.backends.torch.load import load_model, quantization_arguments
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.models import EMBEDDED
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.runs.errors import user_errors

needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="needs the extra `quantize`"
)
pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size:FutureWarning")


def settings_of(path: str, **fields: Any) -> ModelSettings:
    return ModelSettings(
        name="tiny",
        path=path,
        learning_rate=1e-2,
        max_tokens=8,
        max_context=256,
        **{"lora": LoraSettings(rank=4, alpha=8.0), "quantize": "4bit"} | fields,
    )


def load(path: str, **fields: Any) -> Any:
    return load_model(settings_of(path, **fields), precision="fp32", device="cpu")[0]


@needs_bitsandbytes
def test_a_base_in_4_bits_computes_with_the_rounded_weights(model_folder):
    """The expected scores come from a plain model that holds the rounded weights in float32."""
    from bitsandbytes.functional import dequantize_4bit

    model = load(model_folder)
    rounded_model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    count = 0
    with torch.no_grad():
        params = dict(rounded_model.named_parameters())
        for name, parameter in model.get_base_model().named_parameters():
            if parameter.dtype == torch.uint8:
                weight = params[name.replace(".base_layer", "")]
                source = weight.clone()
                weight.copy_(dequantize_4bit(parameter.data, parameter.quant_state))
                assert 0 < (weight - source).abs().mean() < 0.4 * source.abs().mean()
                count += 1
    assert count == 14  # the seven products of both layers, and not the head
    batch = batch_of(ROWS, [0.7, -1.3, 0.4])
    scores, expected = policy_of(model).score(batch), policy_of(rounded_model).score(batch)
    assert np.abs(scores - expected).max() < 1e-4
    base_model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    assert np.abs(scores - policy_of(base_model).score(batch)).max() > 1e-3


@needs_bitsandbytes
def test_an_adapter_learns_on_it_as_well_after_rollouts_as_before(model_folder):
    policy, twin = policy_of(load(model_folder)), policy_of(load(model_folder))
    batch = play_bandit(policy, 0)
    assert batch is not None
    assert same(gradients(policy, batch, PLAIN), gradients(twin, batch, PLAIN))
    before = weights_of(policy.machine.model)
    assert policy.update(batch, PLAIN)["update/skipped"] == 0.0
    after = weights_of(policy.machine.model)
    names = {name for name in before if not torch.equal(before[name], after[name])}
    assert names and all("lora_" in name for name in names)
    count, total = policy.machine.num_parameters
    expected = policy_of(load(model_folder, quantize=None)).machine.num_parameters
    assert (count, total) == expected


def test_without_the_library_one_line_names_the_extra(model_folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(SystemExit), user_errors():
        load(model_folder)
    line = error_of(capsys.readouterr().err)
    assert "bitsandbytes is not installed" in line and "'.[quantize]'" in line


def test_other_devices_and_mlx_are_refused():
    settings_of(str(EMBEDDED / "smollm2_sft"), lora=None)  # an adapter that its folder brings
    with pytest.raises(ValueError, match=r"model.quantize must be null on mps, not 4bit"):
        quantization_arguments("4bit", torch.float32, "mps")
    assert quantization_arguments(None, torch.float32, "mps") == {}
    lora = "model.lora={rank: 4, alpha: 8}"
    config = resolve(composed("model=micro", "backend=mlx", lora, "model.quantize=4bit"))
    with pytest.raises(ValueError, match=r"model.quantize must be null with backend=mlx"):
        build_experiment(config)
