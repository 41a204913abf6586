"""What a folder says is what is computed: the same gate for torch and MLX, each refusal by name."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.exports import save_adapter
from tests.helpers.families import CONFIGS, VOCAB, save_family
from tests.helpers.mlx_tiny import settings_of
from wordle_rl.backends.adapters import ADAPTER, FILES, convert_adapter
from wordle_rl.backends.gate import check_config
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.torch.load import load_model
from wordle_rl.runs.instantiate import ConfigError

LOADERS: dict[str, Callable[[Path], Any]] = {
    "torch": lambda f: load_model(settings_of(f), precision="fp32", device="cpu"),
    "mlx": lambda f: mlx_models.load_model(settings_of(f), precision="fp32"),
}
on_each_backend = pytest.mark.parametrize("backend", LOADERS)


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("qwen2") / "given", "qwen2")


def copy_of(folder: Path, target: Path, **entries: Any) -> Path:
    """A copy whose config.json has other entries. None takes one out."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text()) | entries
    fields = {name: value for name, value in config.items() if value is not None}
    (target / "config.json").write_text(json.dumps(fields))
    return target


def refusal(backend: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as stop:
        LOADERS[backend](folder)
    assert "\n" not in str(stop.value)
    return str(stop.value)


# -- weights --------------------------------------------------------------------------------------


@on_each_backend
def test_weights_that_the_config_has_no_place_for_are_refused(backend, qwen2, tmp_path):
    llama = copy_of(qwen2, tmp_path / "llama", model_type="llama")
    assert "6 " in (text := refusal(backend, llama)) and "layers.0.self_attn.k_proj.bias" in text
    folder = copy_of(qwen2, tmp_path / "fewer", num_hidden_layers=1, layer_types=None)
    assert "12 " in (text := refusal(backend, folder)) and "layers.1.input_layernorm" in text


@on_each_backend
def test_weights_that_no_forward_pass_reads_may_be_there(backend, tmp_path):
    base = save_family(tmp_path / "old", "llama")
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)  # as the first Llamas
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    LOADERS[backend](base)


@on_each_backend
def test_two_sets_of_weights_are_refused(backend, qwen2, tmp_path):
    folder = copy_of(qwen2, tmp_path / "both")
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    assert "remove one of the two sets of weights" in refusal(backend, folder)


# -- config.json ----------------------------------------------------------------------------------


@on_each_backend
@pytest.mark.parametrize(
    ("family", "entries", "said"),
    [
        ("llama", {"sliding_window": 6}, "has sliding_window=6"),
        ("llama", {"final_logit_softcapping": 30.0}, "has final_logit_softcapping=30.0"),
        ("qwen2", {"residual_multiplier": 0.5}, "has residual_multiplier=0.5"),
        ("qwen2", {"rope_parameters": None, "rope_theta": None}, "lacks rope_parameters"),
        ("qwen2", {"num_attention_heads": None}, "lacks num_attention_heads"),
        ("llama", {"rms_norm_eps": None}, "lacks rms_norm_eps"),
        ("gemma3_text", {"query_pre_attn_scalar": None}, "lacks query_pre_attn_scalar"),
        ("gemma3_text", {"sliding_window": None}, "lacks sliding_window"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ],
)
def test_an_entry_that_would_be_ignored_or_filled_in_is_named(
    backend, family, entries, said, tmp_path
):
    folder = copy_of(save_family(tmp_path / "given", family), tmp_path / "other", **entries)
    assert said in refusal(backend, folder)


HUB: dict[str, dict[str, Any]] = {  # entries of files on the hub, besides what CONFIGS write
    "smollm2": {
        "is_llama_config": True,
        "rope_interleaved": False,
        "pretraining_tp": 1,
        "transformers.js_config": {"dtype": "q4"},
        "torch_dtype": "bfloat16",
    },
    "gemma3_text": {"cache_implementation": "hybrid", "unsloth_fixed": True},
    "gpt2": {"n_ctx": 256, "task_specific_params": {"text-generation": {"max_length": 50}}},
    "qwen2": {"use_mrope": False, "_name_or_path": "here", "attention_bias": False},
    "mistral": {"residual_multiplier": 1.0},
}


@pytest.mark.parametrize("family", CONFIGS)
def test_what_files_of_the_hub_have_passes(family):
    config = CONFIGS[family]().to_dict() | HUB.get(family, {})
    check_config("here", config)
    if family not in ("gemma3", "gemma3_text", "olmo3"):  # as transformers 4 wrote it
        rope = config.pop("rope_parameters", None) or {}
        check_config("here", config | {"rope_theta": rope.get("rope_theta", 1.0)})


def test_an_entry_that_only_the_code_of_a_family_reads_passes():
    """As head_dim of Qwen3's mixtures of experts, which its config class does not list."""
    check_config("here", {"model_type": "qwen3_moe", "head_dim": 128, "intermediate_size": 6144})
    with pytest.raises(ConfigError, match="sliding_window=128, which a model of type gpt_neox"):
        check_config("here", {"model_type": "gpt_neox", "sliding_window": 128})


def test_a_folder_that_the_other_library_rounded_is_called_that(qwen2, tmp_path):
    scheme = {"group_size": 64, "bits": 4}
    by_mlx = copy_of(qwen2, tmp_path / "mlx", quantization=scheme, quantization_config=scheme)
    assert "was quantised by MLX: it needs backend=mlx" in refusal("torch", by_mlx)
    entries = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    by_torch = copy_of(qwen2, tmp_path / "torch", **entries)
    assert "was quantised by bitsandbytes" in refusal("mlx", by_torch)


# -- adapters -------------------------------------------------------------------------------------

PEFT: dict[str, tuple[dict[str, Any], str]] = {  # entries of adapter_config.json
    **{
        kind: ({"peft_type": kind}, f"peft_type={kind}, and only adapters of LoRA")
        for kind in (
            "IA3",
            "LOHA",
            "VERA",
            "OFT",
            "BOFT",
            "MISS",
            "LN_TUNING",
            "PROMPT_TUNING",
            "PREFIX_TUNING",
        )
    },
    "alpha": ({"lora_alpha": None}, "lacks lora_alpha"),
    "rank": ({"r": None}, "lacks r,"),
    "invocation": ({"alora_invocation_tokens": [5]}, r"alora_invocation_tokens=[5]"),
    "future": ({"use_bora": True}, "use_bora=True cannot be computed here"),
}
MLX: dict[str, tuple[dict[str, Any], str]] = {
    "dora": ({"fine_tune_type": "dora"}, "fine_tune_type=dora, and only adapters of LoRA"),
    "full": ({"fine_tune_type": "full"}, "fine_tune_type=full, and only adapters of LoRA"),
    "scale": ({"lora_parameters": {"rank": 4, "dropout": 0.0}}, "lacks scale"),
    "future": ({"lora_parameters": {"rank": 4, "scale": 1.0, "bora": 2}}, "bora=2 cannot be"),
}


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One adapter in the forms of both libraries."""
    root = tmp_path_factory.mktemp("adapters")
    peft = save_adapter(save_family(root / "base", "qwen2"), root / "peft")
    convert_adapter(peft, root / "mlx")
    return {"torch": peft, "mlx": root / "mlx"}


def copy_adapter(adapter: Path, target: Path, entries: dict[str, Any]) -> Path:
    """A copy with other entries in adapter_config.json. None takes one out."""
    shutil.copytree(adapter, target)
    config = json.loads((target / ADAPTER).read_text()) | entries
    fields = {name: value for name, value in config.items() if value is not None}
    (target / ADAPTER).write_text(json.dumps(fields))
    return target


@pytest.mark.parametrize("case", PEFT)
def test_an_adapter_of_peft_that_is_no_lora_is_called_what_it_is(case, adapters, tmp_path):
    entries, message = PEFT[case]
    folder = copy_adapter(adapters["torch"], tmp_path / "other", entries)
    assert message in refusal("torch", folder)
    with pytest.raises(ConfigError, match=re.escape(message)):
        convert_adapter(folder, tmp_path / "new")


@pytest.mark.parametrize("case", MLX)
def test_an_adapter_of_mlx_that_is_no_lora_is_called_what_it_is(case, adapters, tmp_path):
    entries, message = MLX[case]
    folder = copy_adapter(adapters["mlx"], tmp_path / "other", entries)
    assert message in refusal("mlx", folder)
    with pytest.raises(ConfigError, match=re.escape(message)):
        convert_adapter(folder, tmp_path / "new")


@on_each_backend
@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight"])
def test_weights_beside_the_layers_in_an_adapter_are_refused(backend, name, adapters, tmp_path):
    """As peft writes them once the vocabulary was resized. No checkpoint would have kept them."""
    folder = shutil.copytree(adapters[backend], tmp_path / "more")
    file = folder / FILES["peft" if backend == "torch" else "mlx"]
    name = f"base_model.model.{name}" if backend == "torch" else name
    save_file(load_file(file) | {name: torch.randn(VOCAB, 32)}, file, {"format": "pt"})
    text = refusal(backend, folder)
    assert "must change only matrices of the layers" in text and name in text


def test_the_same_in_torch_s_own_form_is_refused(adapters, tmp_path):
    folder = shutil.copytree(adapters["torch"], tmp_path / "older")
    weights = load_file(file := folder / FILES["peft"])
    file.unlink()
    torch.save(weights, folder / "adapter_model.bin")
    LOADERS["torch"](folder)
    tensors = weights | {"base_model.model.model.embed_tokens.weight": torch.randn(VOCAB, 32)}
    torch.save(tensors, folder / "adapter_model.bin")
    assert "must change only matrices of the layers" in refusal("torch", folder)
