"""SmolLM2-135M-Instruct with its real weights answers as transformers' generate does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.marks import NEEDS_SMOLLM2, SMOLLM2
from tests.helpers.mlx_tiny import settings_of
from wordle_rl.backends.engine import CachedEngine
from wordle_rl.backends.mlx import load as mlx_load
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.backends.mlx.engine import MlxRows
from wordle_rl.backends.torch import load as torch_load
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.policy.sampling import Sampling

pytestmark = [*NEEDS_SMOLLM2, pytest.mark.slow]
QUESTIONS = [
    "What is the capital of France?",
    "Wordle: guess a word of five letters.\n\nWord: _ R _ _ E\nNot in the word: S T\nAnswer: guess",
]


def answers_of(rows: Any, prompts: list[list[int]], stop: int) -> list[list[int]]:
    engine = CachedEngine(rows, stop_ids=frozenset([stop]), max_context=256)
    sampling, unused = Sampling(temperature=0.0, max_tokens=20), np.zeros((len(prompts), 20))
    return [list(a.ids) for a in engine.complete(prompts, sampling, unused)]


@pytest.mark.parametrize("kind", ["torch", "torch with its adapter", "mlx"])
def test_greedy_answers_are_those_of_generate(kind: str) -> None:
    plain: Any = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(SMOLLM2)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in QUESTIONS
    ]
    stop = tokenizer.eos_token_id
    if kind == "mlx":
        loaded = mlx_load.load_model(settings_of(SMOLLM2), precision="fp32")
        ours = answers_of(MlxRows(MlxLM(loaded.model)), prompts, stop)
    else:
        settings = settings_of(SMOLLM2)
        if kind == "torch with its adapter":
            settings = settings_of("embedded/smollm2_sft")
            plain = PeftModel.from_pretrained(plain, settings.location).eval()
        model, _ = torch_load.load_model(settings, precision="fp32", device="cpu")
        ours = answers_of(TorchRows(CausalLM(model)), prompts, stop)
    for prompt, answer in zip(prompts, ours, strict=True):
        expected = plain.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[0]
        assert answer == expected[len(prompt) :].tolist()
        assert len(answer) > 1
