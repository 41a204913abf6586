"""Writes the model of a GGUF file as a folder for transformers, one tensor after another.

transformers reads such files into models that it then refuses to save, and needs several times
their memory. What it knows of each family's names and weights is used here.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

from wordle_rl.backends.saving import add_older_form, save_tokenizer

# What transformers notes about the file. With it, save_pretrained refuses.
_FILE_KEYS = ("quantization_config", "dtype", "architectures", "model_type")
_ROWS = 8192  # of a matrix that are rounded at once
_BYTES = 2  # of a weight in bfloat16


def convert_gguf(file: Path, folder: Path, stops: Sequence[str] = ()) -> int:
    """Write the causal language model of a GGUF file to a folder, in bfloat16.

    stops: the tokens that end an answer, where the file names only one of several. Returns how many
    weights the model has. Raises ValueError for a file that lacks some of them.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    folder.mkdir()
    gguf_config: Any = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    entries = gguf_config.to_dict()
    settings = {k: v for k, v in entries.items() if k not in _FILE_KEYS and not k.startswith("_")}
    config = type(gguf_config)(**settings, dtype="bfloat16")
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    save_tokenizer(tokenizer, folder)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    add_older_form(folder)
    ends = [*map(tokenizer.convert_tokens_to_ids, stops)] or tokenizer.eos_token_id
    model.generation_config.eos_token_id = ends
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.save_pretrained(folder)
    _write_weights(file, model, folder / "model.safetensors")
    return sum(parameter.numel() for parameter in model.parameters())


def _write_weights(file: Path, model: Any, target: Path) -> None:
    """Write the parameters of a model, which has none yet, from a GGUF file.

    The format is that of safetensors: the length of a JSON header, the header, the numbers.
    """
    from gguf import GGUFReader

    reader: Any = GGUFReader(file)
    family = reader.fields["general.architecture"].contents()
    processor = TENSOR_PROCESSORS.get(family, TensorProcessor)(config=model.config.to_dict())
    names = get_gguf_hf_weights_map(model, processor)
    tensors = {names[tensor.name]: tensor for tensor in reader.tensors if tensor.name in names}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, parameter in model.named_parameters():
        if name not in tensors:
            raise ValueError(f"{file.name} lacks the weights {name}")
        begin, end = end, end + _BYTES * parameter.numel()
        shape = list(parameter.shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with target.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        start = out.tell()
        out.truncate(start + end)

        def write(name: str) -> None:
            tensor, offset = tensors[name], start + header[name]["data_offsets"][0]
            for numbers in _read_rows(tensor, header[name]["shape"], processor):
                offset += os.pwrite(out.fileno(), numbers, offset)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, filter(tensors.get, header)))


def _read_rows(tensor: Any, shape: list[int], processor: Any) -> Iterator[bytes]:
    """The numbers of a tensor in bfloat16, some rows at a time. Raises ValueError."""
    from gguf import dequantize

    # The matrices of the vocabulary are the large ones, and no family changes their rows' order.
    step = _ROWS if tensor.name in ("token_embd.weight", "output.weight") else shape[0]
    for row in range(0, shape[0], step):
        weights = dequantize(tensor.data[row : row + step], tensor.tensor_type)
        weights = processor.process(weights, tensor.name).weights
        if list(weights.shape) != [min(step, shape[0] - row), *shape[1:]]:
            raise ValueError(f"{tensor.name} must have the shape {shape}")
        values = torch.from_numpy(np.array(weights)).to(torch.bfloat16)
        yield values.view(torch.int16).numpy().tobytes()
