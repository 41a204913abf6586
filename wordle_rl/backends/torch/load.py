"""Loads models, adapters and tokenizers: embedded, untrained, from a folder or from the hub.

Writes adapters, and whole models with an adapter merged into them.
"""

import copy
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from wordle_rl.backends.adapters import (
    ADAPTER,
    FILES,
    check_loaded_adapter,
    check_targets,
    choose_layers,
    find_base,
    has_tokenizer,
    is_adapter,
)
from wordle_rl.backends.bases import check_base, describe_base
from wordle_rl.backends.gate import check_config, check_files, check_quantization, check_weights
from wordle_rl.backends.loading import (
    check_fit,
    explain_load_errors,
    explain_read_errors,
    load_tokenizer,
    notice_offline,
    read_weights,
)
from wordle_rl.backends.saving import save_model, save_tokenizer
from wordle_rl.backends.sizes import is_known
from wordle_rl.backends.tiny_model import build_untrained
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.models import MAIN, UNTRAINED, portable_name
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.policy.tokenizer import HFTokenizer, list_stop_ids
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.files import read_object, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import write_base

# Rotations that change for the whole batch once its longest row passes the trained length.
_BATCH_ROTATIONS = ("dynamic", "longrope")


def load_model(
    settings: ModelSettings, *, precision: Precision, device: str
) -> tuple[torch.nn.Module, HFTokenizer]:
    """The model on its device, ready to train, and its tokenizer.

    Fully trained models are loaded in float32. Frozen ones, and a base under LoRA, have the given
    precision, and an adapter is float32. Raises ConfigError in one line for what cannot be loaded.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # errors that matter are raised here
    model: Any
    shape: dict[str, Any] = settings.shape
    if settings.path == UNTRAINED:
        model, inner = build_untrained(seed=settings.seed, **shape)
    else:
        frozen = settings.only_scores or settings.lora is not None or settings.is_adapter
        dtype = DTYPES[precision] if frozen else torch.float32
        rounding = quantization_arguments(settings.quantize, dtype, device)
        notice_offline(settings.location)
        with explain_load_errors(settings.location, on_disk=Path(settings.location).is_dir()):
            model, inner = _load_pretrained(settings, dtype, rounding)
    if settings.lora is not None:
        if hasattr(model, "peft_config"):
            config = model.peft_config["default"]
            check_loaded_adapter(settings.lora, rank=config.r, alpha=config.lora_alpha)
        else:
            model = add_lora(model, settings.lora, settings.seed, settings.revision)
    stops = list_stop_ids(model.generation_config.eos_token_id)
    rows = len(model.get_input_embeddings().weight)
    return model.to(device), HFTokenizer(inner, extra_stop_ids=stops, vocabulary=rows)


def _load_pretrained(
    settings: ModelSettings, dtype: torch.dtype, rounding: dict[str, Any]
) -> tuple[Any, Any]:
    base, revision, folder = settings.location, settings.revision, Path(settings.location)
    adapter = folder if settings.is_adapter else None
    origin = base, revision  # where the tokenizer is
    if adapter is not None:
        base, revision = find_base(folder, "peft")
        notice_offline(base)
        if not has_tokenizer(folder):
            origin = base, revision
    entries: Any = PreTrainedConfig.get_config_dict(base, revision=revision)[0]
    check_files(base)
    check_quantization(base, entries, mlx=False)
    check_config(base, entries)
    config = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
    check_places(base, config, settings.max_context)
    tokenizer = load_tokenizer(*origin, adapter=adapter)
    model = _load_whole(base, revision, dtype, rounding)
    if adapter is not None or settings.lora is not None:
        model.base_of_adapter = describe_base(base, revision, adapter=adapter)
    if adapter is not None:
        if not settings.any_base:
            check_base(folder, model.base_of_adapter, base)
        return load_adapter(model, folder), tokenizer
    # Freeze the vision part: games have no images.
    text_weights = {*model.get_decoder().parameters(), *model.get_output_embeddings().parameters()}
    for parameter in model.parameters():
        if parameter not in text_weights:
            parameter.requires_grad_(False)
    return model, tokenizer


def _load_whole(location: str, revision: str, dtype: torch.dtype, rounding: dict[str, Any]) -> Any:
    """A model with all weights of its files, and none that they lack. Raises ConfigError."""
    pair: Any = AutoModelForCausalLM.from_pretrained(
        location,
        revision=revision,
        dtype=dtype,
        output_loading_info=True,
        trust_remote_code=False,
        **rounding,
    )
    model, info = pair
    if gaps := sorted(info["missing_keys"]):
        raise ConfigError(
            f"model.path={location} lacks {len(gaps)} of the weights that its config.json asks "
            f"for, such as {gaps[0]}: they are another model's"
        )
    check_weights(location, info["unexpected_keys"])
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if len({end.weight.data_ptr() for end in ends}) == 2:
        for part in (model.config, model.config.get_text_config()):
            part.tie_word_embeddings = False  # whatever the file says; other readers would tie them
    if rounding:
        # On CPUs with AVX-512 and bf16, bitsandbytes packs a layer's weights when it first computes
        # without gradients. A packed layer has no backward pass.
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
    return model


def check_places(location: str, config: Any, max_context: int) -> None:
    """Raise ConfigError unless the architecture has positions for games of max_context tokens."""
    text = config.get_text_config()
    rope, limit = getattr(text, "rope_parameters", None) or {}, None
    if not rope or rope.get("rope_type") in _BATCH_ROTATIONS:
        limit = rope.get("original_max_position_embeddings")
        limit = limit or getattr(text, "max_position_embeddings", None)
    if limit is not None and max_context > limit:  # other models compute any length, if not well
        raise ConfigError(
            f"model.max_context must be at most {limit} with model.path={location}, which has no "
            f"places beyond, not {max_context}"
        )


def quantization_arguments(quantize: str | None, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What from_pretrained needs to round a base to 4 bits while it loads; nothing for None.

    The embedding and the language-model head keep their precision. dtype: in which the products are
    computed. Source: QLoRA (arXiv 2305.14314), 4-bit NormalFloat whose scales are quantised too.
    Raises ModuleNotFoundError without bitsandbytes.
    """
    if quantize is None:
        return {}
    kind = torch.device(device).type
    if kind not in ("cuda", "cpu"):
        raise ConfigError(
            f"model.quantize must be null on {kind}, not {quantize}: bitsandbytes has no 4-bit "
            "products for it; use backend.accelerator=cpu, or a quantised model with backend=mlx"
        )
    # bitsandbytes 0.49 calls a function that torch 2.13 is going to remove.
    warnings.filterwarnings("ignore", message="_check_is_size", category=FutureWarning)
    import_module("bitsandbytes")  # transformers would name no way to install it
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config, "device_map": {"": device}}


def load_weights(model: Any, folder: Path, *, is_lora: bool) -> None:
    """Load what save_pretrained() wrote to a folder; under LoRA only the adapter `default`.

    Raises CheckpointError, before anything is changed, unless names and shapes are the model's own.
    """
    if is_lora:
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        file = folder / FILES["peft"]
        weights = read_weights(file)
        check_fit(file, weights, get_peft_model_state_dict(model, save_embedding_layers=False))
        set_peft_model_state_dict(model, weights)
        return
    file = folder / "model.safetensors"
    with explain_read_errors(file):  # some families have other names on disk
        pair: Any = type(model).from_pretrained(
            folder,
            config=copy.deepcopy(model.config),
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    checkpoint, info = pair
    names = {*info["missing_keys"], *info["unexpected_keys"]}
    if names := sorted(names | {name for name, *_ in info["mismatched_keys"]}):
        raise CheckpointError(
            f"{file} belongs to another model: {len(names)} weights are wrong, such as {names[0]}"
        )
    model.load_state_dict(checkpoint.state_dict())


# -- adapters -------------------------------------------------------------------------------------


def load_adapter(model: Any, folder: Path) -> Any:
    """The model with the adapter of a folder, ready to train. Raises for one of another model."""
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights

    with explain_read_errors(_weights_file(folder)):
        weights = load_peft_weights(str(folder), device="cpu")
    with _without_warnings():
        peft_model: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    check_targets(folder, peft_model.base_model.targeted_module_names)
    check_targets(folder, weights)  # peft also loads embeddings, which no checkpoint would have
    state = get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    check_fit(_weights_file(folder), weights, state)
    return peft_model


def _weights_file(folder: Path) -> Path:
    """An adapter's weights, which older versions of peft wrote in torch's own form."""
    file, old_file = folder / FILES["peft"], folder / "adapter_model.bin"
    return old_file if old_file.is_file() and not file.exists() else file


def add_lora(model: Any, settings: LoraSettings, seed: int, revision: str = MAIN) -> Any:
    """The model with a fresh adapter, whose weights are drawn from the seed.

    revision: of the base on the hub; the adapter's config records it.
    """
    from peft import LoraConfig, get_peft_model

    modules = dict(model.named_modules())
    trunk = next(name for name, module in modules.items() if module is model.get_decoder())
    names = [  # GPT-2 has Conv1D, whose weights are transposed
        name
        for name, module in modules.items()
        if isinstance(module, torch.nn.Linear | Conv1D) and name.startswith(f"{trunk}.")
    ]
    targets, is_conv1d = settings.targets, any(isinstance(modules[n], Conv1D) for n in names)
    if not is_known(model.config):
        # Where experts are one weight, peft takes the names of a feed-forward part for theirs.
        # Kernels of state-space layers read some weights past the adapter.
        fused = any(p.ndim == 3 and "experts" in n for n, p in model.named_parameters())
        excludes = ("gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3") if fused else ()
        if any("conv1d" in name for name in modules):
            excludes += ("out_proj", "dt_proj", "x_proj")
        names = [name for name in names if name.rpartition(".")[2] not in excludes]
        if targets == "all-linear":
            targets = sorted({name.rpartition(".")[2] for name in names})
    choose_layers(targets, names)  # peft ignores targets that fit nothing
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]  # peft takes floats too
        lora_dropout=settings.dropout,
        target_modules=targets,
        # A model with images has linear layers of the same names outside its language model.
        exclude_modules=rf"(?!{re.escape(trunk)}\.).*" if "." in trunk else None,
        fan_in_fan_out=is_conv1d,
        task_type="CAUSAL_LM",
        revision=None if revision == MAIN else revision,
    )
    with torch.random.fork_rng(devices=[]), _without_warnings():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide warnings of peft 0.21: of a name that changes, and of what is refused here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*a tied layer is part of the adapter", UserWarning)
        warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter `default` as peft loads it.

    Its config names an embedded or a fetched base in a way that other machines understand.
    """
    # The vocabulary is never changed, so peft need not look for the base to compare it.
    model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
    (folder / "adapter_model.safetensors").chmod((folder / ADAPTER).stat().st_mode)
    config = read_object(folder / ADAPTER)
    write_base(folder, getattr(model.get_base_model(), "base_of_adapter", {}))
    if name := config["base_model_name_or_path"]:
        write_json(folder / ADAPTER, config | {"base_model_name_or_path": portable_name(name)})


def merge_model(source: Path, target: Path, precision: str) -> str:
    """Write the model of a folder without an adapter. Returns the precision of its weights.

    precision: auto keeps the precision of the base under an adapter, and of any other model. The
    sum of base and adapter is computed in float32 and rounded once. Raises ValueError if a weight
    is not finite.
    """
    settings = ModelSettings(
        name=source.name, path=str(source), learning_rate=0.0, max_tokens=1, max_context=16
    )
    model: Any
    model, tokenizer = load_model(settings, precision="fp32", device="cpu")
    if precision == "auto":
        base, revision = find_base(source) if is_adapter(source) else (str(source), MAIN)
        config: Any = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
        dtype = config.dtype or config.get_text_config().dtype or torch.float32
        precision = str(dtype).removeprefix("torch.")
    if hasattr(model, "peft_config"):
        model = model.merge_and_unload(safe_merge=True)
    save_model(model.to(getattr(torch, precision)), target, tokenizer.stop_ids)
    save_tokenizer(tokenizer.inner, target)
    return precision
