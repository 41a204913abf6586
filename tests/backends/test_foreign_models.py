"""Weights, optimisers' states and chat templates that a stranger made, with right digests."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.commands import evaluation, trained, training
from tests.helpers.families import BATCH, VOCAB, build
from tests.helpers.mlx_tiny import settings_of
from tests.helpers.tiny import full_logprobs, policy_of, qwen_like_tokenizer
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.backends.torch.load import load_model, load_weights
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.runs.checkpoints import MANIFEST, CheckpointError, _seal

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of the steps 0 (the best), 1 and 2."""
    return trained(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


class Evil:
    """A pickle that makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def states(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


MODEL, OPTIMIZER = "model/model.safetensors", "optimizer.safetensors"
GARBAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights: torn": (MODEL, cut),
    "weights: others": (MODEL, lambda p: save_file({"a": torch.zeros(3)}, p)),
    "optimiser: code": (OPTIMIZER, lambda p: torch.save(Evil(p.with_name("made")), p)),
    "optimiser: another shape": (
        OPTIMIZER,
        lambda p: states(p, lambda s: s.update({"0.0.exp_avg": torch.zeros(3)})),
    ),
    "optimiser: an entry less": (OPTIMIZER, lambda p: states(p, lambda s: s.pop("0.0.exp_avg_sq"))),
    "state: text": ("state.json", lambda p: p.write_text("garbage")),
}


def reseal(checkpoint: Path, step: int) -> None:
    """List the files with the digests that they have now."""
    (checkpoint / MANIFEST).unlink()
    _seal(checkpoint, step)


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_with_right_digests_is_named(kind: str, run: Path, refused: Callable) -> None:
    name, spoil = GARBAGE[kind]
    checkpoint = run / "checkpoints" / "step_000002"
    spoil(checkpoint / name)
    reseal(checkpoint, 2)
    line = refused(training(f"resume={run} trainer.steps=3"))
    assert str(checkpoint / name) in line and len(line) < 1000
    assert not (checkpoint / "made").exists()


# -- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["smollm2", "gemma3", "llama"])
def test_a_head_in_the_file_counts_whatever_the_config_says_of_it(family: str, tmp_path: Path):
    folder, target, model = tmp_path / "given", tmp_path / "again", build(family)
    model.save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    name = "language_model.lm_head.weight" if family == "gemma3" else "lm_head.weight"
    torch.manual_seed(0)
    head = torch.nn.Parameter(torch.randn(VOCAB, 32))
    states(folder / "model.safetensors", lambda s: s.update({name: head.detach()}))
    model.get_output_embeddings().weight = head
    config = json.loads((folder / "config.json").read_text())
    if family == "llama":  # mlx-lm's default is not transformers'
        del config["tie_word_embeddings"]
        (folder / "config.json").write_text(json.dumps(config))
    else:
        assert config["tie_word_embeddings"]
    for path in (folder, target):  # as it came, and as one backend wrote it
        network, tokenizer = load_model(settings_of(path), precision="fp32", device="cpu")
        bundle = mlx_models.load_model(settings_of(path), precision="fp32")
        torch_policy = policy_of(network, tokenizer)
        for policy in (torch_policy, Policy(MlxMachine(bundle, optim=Optim()))):
            scores = policy.score(BATCH)
            for row, length in enumerate((24, 15)):
                expected = full_logprobs(model, BATCH.ids[row, :length].tolist())
                gap = np.abs(scores[row, :length] - expected)[BATCH.trained[row, :length]]
                assert gap.max() < 2e-3  # and 18 with the wrong head
        if path is folder:
            torch_policy.machine.export(target)
    new_config = json.loads((target / "config.json").read_text())
    assert not new_config["tie_word_embeddings"]
    tensors = {
        n: w for n, w in load_file(target / "model.safetensors").items() if "lm_head" not in n
    }
    save_file(tensors, target / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 weights are wrong, such as lm_head"):
        load_weights(torch_policy.machine.model, target, is_lora=False)


# -- chat templates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
        ("{{ ''.__class__.x }}", "fails: SecurityError"),
        ("{{ messages[2].content }}{{ messages[1].content }}", "must show each message once"),
    ],
)
def test_a_chat_template_that_cannot_be_used_ends_in_one_line(template: str, said: str) -> None:
    inner = build_tokenizer()
    inner.chat_template = template
    with pytest.raises(ValueError, match=said):
        Chat(HFTokenizer(inner))


def test_code_beside_a_model_is_not_offered_to_be_run(
    run: Path, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "n")
    config = json.loads((run / "model" / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}}
    (run / "model" / "config.json").write_text(json.dumps(config))
    (run / "model" / "theirs.py").write_text("raise SystemExit(99)")
    line = refused(evaluation(f"model=tiny model.path={run / 'model'} output_dir={run.parent}"))
    assert f"model.path={run / 'model'} cannot be loaded" in line and "custom code" in line
    assert not questions
