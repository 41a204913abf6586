"""Adapters go from PEFT to mlx-lm and back bit for bit, and mean the same in both."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from tests.helpers.mlx_tiny import mlx_policy_of, settings_of
from tests.helpers.tiny import gemma, policy_of, qwen, qwen_like_tokenizer
from tests.helpers.updates import PLAIN, games
from wordle_rl.backends.adapters import convert_adapter
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.backends.torch.load import add_lora, load_model
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import RECORD, stages_of, write_stages

STAGES = [
    {"run": "first", "protocol": "all", "held_out": 0},
    {"run": "second", "protocol": "split", "held_out": 515},
]


def multimodal_gemma() -> Any:
    """Gemma 3 as released: a text model beside one for images."""
    text = gemma().config.to_dict()
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)
    torch.manual_seed(0)
    return Gemma3ForConditionalGeneration(config)


BUILD = {"qwen2": qwen, "gemma3": gemma, "gemma3 multimodal": multimodal_gemma}
TARGETS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]


def build_adapter(kind: str, folder: Path, **settings: Any) -> tuple[Any, Path, Path]:
    """A peft model with an adapter that does something; its base and its adapter on disk.

    settings: of LoRA. With any, peft makes the adapter; without, our code does.
    """
    model = BUILD[kind]()
    base, path = folder / "base", folder / "peft"
    model.save_pretrained(base)
    qwen_like_tokenizer().save_pretrained(base)
    if settings:
        defaults = {"r": 4, "lora_alpha": 6, "target_modules": TARGETS, "task_type": "CAUSAL_LM"}
        model: Any = get_peft_model(model, LoraConfig(**{**defaults, **settings}))
    else:
        model = add_lora(model, LoraSettings(rank=4, alpha=6.0, targets=TARGETS), seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.peft_config["default"].base_model_name_or_path = str(base)
    model.save_pretrained(path)
    return model, base, path


@pytest.mark.parametrize("kind", BUILD)
def test_an_adapter_comes_back_from_mlx_bit_for_bit(kind, tmp_path):
    _, _, peft = build_adapter(kind, tmp_path)
    file = peft / "adapter_model.safetensors"
    dtype = torch.bfloat16 if kind == "qwen2" else torch.float32
    save_file({n: t.to(dtype) for n, t in load_file(file).items()}, file)
    assert convert_adapter(peft, tmp_path / "mlx") == "mlx"
    assert convert_adapter(tmp_path / "mlx", tmp_path / "back") == "peft"
    a, b = (load_file(f / "adapter_model.safetensors") for f in (peft, tmp_path / "back"))
    assert a.keys() == b.keys()
    assert all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("kind", BUILD)
def test_a_converted_adapter_scores_as_it_did(kind, tmp_path):
    model, base, peft = build_adapter(kind, tmp_path)
    convert_adapter(peft, tmp_path / "mlx")
    ids = [3, 9, 4, 11, 12, 5, 6, 20, 21, 22]
    with torch.no_grad():
        expected = model.eval()(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1).numpy()
    network, _ = mlx_lm.load(
        str(base), adapter_path=str(tmp_path / "mlx"), model_config=mlx_config(base)
    )
    logits = network(mx.array([ids]))[0].astype(mx.float32)
    logprobs = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    assert np.abs(logprobs - expected).max() < 1e-4


@pytest.mark.parametrize("layers", [{}, {"layers_to_transform": [1]}], ids=["all", "one"])
@pytest.mark.parametrize("kind", BUILD)
def test_a_converted_adapter_is_loaded_by_either_backend(kind, layers, tmp_path):
    model, _, peft = build_adapter(kind, tmp_path, **layers)
    expected = policy_of(model).score(games())
    convert_adapter(peft, tmp_path / "mlx")
    convert_adapter(tmp_path / "mlx", tmp_path / "back")
    network, tokenizer = load_model(settings_of(tmp_path / "back"), precision="fp32", device="cpu")
    bundle = mlx_models.load_model(settings_of(tmp_path / "mlx"), precision="fp32")
    policies = policy_of(network, tokenizer), Policy(MlxMachine(bundle, optim=Optim()))
    for policy in policies:
        assert np.abs(policy.score(games()) - expected).max() < 1e-4


def test_a_copy_of_an_adapter_without_its_chat_template_is_asked_as_its_base(tmp_path):
    _, _, peft = build_adapter("qwen2", tmp_path)
    convert_adapter(peft, tmp_path / "mlx")
    for folder in (peft, tmp_path / "mlx"):
        qwen_like_tokenizer().save_pretrained(folder)
        (folder / "chat_template.jinja").unlink()
    _, on_torch = load_model(settings_of(peft), precision="fp32", device="cpu")
    on_mlx = mlx_models.load_model(settings_of(tmp_path / "mlx"), precision="fp32").tokenizer
    expected = qwen_like_tokenizer().chat_template
    assert on_torch.inner.chat_template == on_mlx.inner.chat_template == expected


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft's, as it is made
@pytest.mark.parametrize(
    "setting",
    [
        {"modules_to_save": ["lm_head"]},
        {"bias": "all"},
        {"trainable_token_indices": [3, 4]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
    ],
)
def test_an_adapter_of_more_than_the_layers_is_refused_by_name(setting, tmp_path):
    _, _, peft = build_adapter("qwen2", tmp_path, **setting)
    [(name, value)] = setting.items()
    entry = value[1] if name == "target_modules" else name
    with pytest.raises(ConfigError, match=f"{entry}: train one without"):
        load_model(settings_of(peft), precision="fp32", device="cpu")


@pytest.mark.parametrize("layer", ["lm_head", "model.embed_tokens"])
def test_so_is_one_in_mlx_lms_form(layer, tmp_path):
    build_adapter("qwen2", tmp_path)
    convert_adapter(tmp_path / "peft", folder := tmp_path / "mlx")
    file = folder / "adapters.safetensors"
    save_file({**load_file(file), f"{layer}.lora_a": torch.zeros(8, 4)}, file)
    with pytest.raises(ConfigError, match=f"{layer}.lora_a: train one without"):
        mlx_models.load_model(settings_of(folder), precision="fp32")


def mlx_config(base: Path) -> dict[str, Any]:
    from wordle_rl.backends.mlx.load import correct_config

    return correct_config(json.loads((base / "config.json").read_text()))


def test_an_adapter_trained_on_mlx_means_the_same_in_peft(tmp_path):
    from peft import PeftModel

    policy = mlx_policy_of(add_lora(qwen(), LoraSettings(rank=4, alpha=6.0), seed=0))
    for _ in range(3):
        policy.update(games(), PLAIN)
    policy.machine.export(tmp_path / "mlx")
    convert_adapter(tmp_path / "mlx", tmp_path / "peft", base="somewhere")
    model = PeftModel.from_pretrained(qwen(), str(tmp_path / "peft"), is_trainable=True)
    assert np.abs(policy_of(model).score(games()) - policy.score(games())).max() < 1e-4


@pytest.mark.parametrize("case", ["dora", "pissa", "head", "there", "no config"])
def test_what_cannot_be_converted_is_refused_by_name(case, tmp_path):
    _, base, peft = build_adapter("qwen2", tmp_path)
    target, text = tmp_path / "mlx", ""
    if case in ("dora", "pissa"):
        file = peft / "adapter_config.json"
        text = {"dora": "use_dora", "pissa": "init_lora_weights"}[case]
        value = True if case == "dora" else case  # which changes the base, too
        file.write_text(json.dumps({**json.loads(file.read_text()), text: value}))
    elif case == "head":
        file, text = peft / "adapter_model.safetensors", "lm_head.lora_A.weight is no LoRA weight"
        head = {"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 8)}
        save_file({**load_file(file), **head}, file)
    elif case == "there":
        target, text = base, "exists already"
    else:
        peft, text = base, "adapter_config.json: no such file"
    with pytest.raises(ConfigError, match=text):
        convert_adapter(peft, target)
    assert case == "there" or not target.exists()


def test_an_adapter_says_in_either_form_what_it_was_trained_on(tmp_path):
    _, _, peft = build_adapter("qwen2", tmp_path)
    convert_adapter(peft, tmp_path / "nothing known")
    assert not (tmp_path / "nothing known" / RECORD).exists()
    write_stages(peft, STAGES)
    convert_adapter(peft, tmp_path / "mlx")
    convert_adapter(tmp_path / "mlx", tmp_path / "back")
    assert stages_of(tmp_path / "mlx") == stages_of(tmp_path / "back") == STAGES
