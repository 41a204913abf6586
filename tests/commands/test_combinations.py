"""Every experiment trains what it asks for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken

from tests.helpers.configs import OPTIONS, composed
from tests.helpers.marks import needs_real
from tests.helpers.runs import run
from tests.helpers.tiny import QWEN_TOOLS, SHAPE, many_stops, sharpen
from tests.helpers.tool_calls import call, guess
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.game.players import guess_text
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import TOOL
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.words.lists import load_words

pytestmark = pytest.mark.usefixtures("quiet")

CPU = ["backend.accelerator=cpu", "backend.threads=1"]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """A word list, and a model of 50,000 weights that writes guesses by chance.

    Each guess is a token of its own. Most other tokens end the answer.
    """
    folder = tmp_path_factory.mktemp("parts")
    words = load_words().answers[::75]
    (folder / "words.txt").write_text("\n".join(words))
    inner = build_tokenizer()  # its prompts are short, and it has each letter
    inner.chat_template = QWEN_TOOLS
    prompt = HFTokenizer(inner).render([{"role": "user", "content": ""}], tools=[TOOL])
    inner.add_tokens([AddedToken(line, normalized=False) for line in prompt.split("\n") if line])
    begin = len(inner)
    inner.add_tokens([guess_text(word) for word in words])
    inner.add_tokens([call(guess(word)) for word in words])
    model = build_model(vocab_size=len(inner), **SHAPE | {"intermediate_size": 192})
    model.generation_config.eos_token_id = [inner.eos_token_id, *many_stops(begin)]
    sharpen(model).save_pretrained(folder / "model")
    inner.save_pretrained(folder / "model")
    return {"words": folder / "words.txt", "model": folder / "model"}


# Sizes alone: algorithm, model, rewards, rates and all else are as the experiment asks.
FEW_STEPS = [
    "rollout.groups=4",
    "words.test=4",
    "words.val=4",
    "trainer.steps=2",
    "trainer.validate_every=2",
    "trainer.checkpoint_every=2",
    "trainer.report=false",
    "trainer.show_games=0",
]


ADAPTER = ["model=smollm2_sft", "num_generations=2"]
RECIPES = {"imitate": ["model=smollm2"], "reinforce": ADAPTER, "reinforce_words": ADAPTER}


def experiments() -> list[Any]:
    """All of them. Those of SmolLM2 need its weights."""
    return [
        pytest.param(name, marks=needs_real("smollm2") if name in RECIPES else ())
        for name in OPTIONS["experiment"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments())
def test_every_experiment_trains_what_it_asks_for(name, places, tmp_path) -> None:
    overrides = [f"experiment={name}", *RECIPES.get(name, []), *FEW_STEPS]
    cfg = composed(f"experiment={name}", *RECIPES.get(name, []))
    if "/" in cfg.model.path and not cfg.model.path.startswith(("embedded/", "fetched/")):
        # Its weights need a network, and 4 bit an extra; tests/backends/torch/test_quantize.py.
        overrides += [f"model.path={places['model']}", "model.quantize=null"]
    overrides += CPU if "accelerator" in cfg.backend else []  # MLX has no such settings
    (tmp_path / "runs").mkdir()
    _, folder = run(tmp_path / "runs", *overrides)
    store = CheckpointStore(folder / "checkpoints", read_only=True)
    start, end = (
        load_file(next((store.folder / step / "model").glob("*.safetensors")))
        for step in ("step_000000", "step_000002")
    )
    assert start.keys() == end.keys()
    assert any(not torch.equal(start[weight], end[weight]) for weight in start)
