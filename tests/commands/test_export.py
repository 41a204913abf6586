"""Exports play as the trained model does, or are refused in one line with nothing left behind."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraModel, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers import exports as made
from tests.helpers.tiny import full_logprobs, qwen_like_tokenizer
from wordle_rl.backends import saving
from wordle_rl.backends.torch import backend as torch_backend
from wordle_rl.commands.export import export as command
from wordle_rl.commands.export_source import read_source
from wordle_rl.export import check
from wordle_rl.export.check import Change, check_change, play_probe
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import new_games, say
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import stages_of

pytestmark = pytest.mark.usefixtures("quiet")

IDS = list(range(10, 60))
FAMILIES = [
    "llama",
    *(pytest.param(family, marks=pytest.mark.slow) for family in ("gpt2", "gemma3_text")),
]


def adapted_run(root: Path, family: str, size: float = 0.2) -> tuple[Path, Path]:
    """A base, and a run that trained an adapter on it."""
    base = made.save_base(root / "base", family)
    adapter = made.save_adapter(base, root / "adapter", size)
    (root / "runs").mkdir(exist_ok=True)
    return base, made.save_run(
        root / "runs", adapter, f"model.path={base}", made.LORA, "prompt=letters"
    )


def adapter_of(run: Path) -> Path:
    """The folder of the checkpoint's model."""
    return run / "checkpoints" / "step_000002" / "model"


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base and a run with an adapter on it, which no test changes."""
    return adapted_run(tmp_path_factory.mktemp("llama"), "llama")


def export(run: Path | str, output: Path, form: str, **flags: Any) -> Path:
    """The folder that the command wrote."""
    command(str(run), format=form, output=str(output), **flags)  # pyright: ignore
    return output


def refuse(run: Path | str, output: Path | None = None, form: str = "merged", **flags: Any) -> str:
    """The one line with which the command ends."""
    with pytest.raises((ValueError, OSError)) as stop:
        command(str(run), format=form, output=output and str(output), **flags)  # pyright: ignore
    assert "\n" not in str(stop.value)
    return str(stop.value)


def load_plain(folder: Path) -> Any:
    """A model as transformers alone loads it, computed in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def score_trained(base: Path, run: Path) -> np.ndarray:
    """Log-probabilities of base plus adapter through plain peft, unmerged."""
    model: Any = PeftModel.from_pretrained(load_plain(base), str(adapter_of(run)))
    return full_logprobs(model.eval(), IDS)


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_weights_say_what_base_and_adapter_say(family: str, tmp_path: Path) -> None:
    base, run = adapted_run(tmp_path, family)
    folder = export(run, tmp_path / "merged", form="merged")
    weights = load_file(folder / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    expected, scores = score_trained(base, run), full_logprobs(load_plain(folder), IDS)
    base_scores = full_logprobs(load_plain(base), IDS)
    assert np.abs(scores - expected).mean() < 0.02
    assert np.abs(scores - expected).mean() < 0.1 * np.abs(base_scores - expected).mean()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Guess."}]
    text = qwen_like_tokenizer().apply_chat_template(chat, tokenize=False)
    assert tokenizer.apply_chat_template(chat, tokenize=False) == text
    assert stages_of(folder) == stages_of(adapter_of(run))


def test_an_exported_adapter_is_the_trained_one_and_plain_peft_loads_it(
    adapted: tuple[Path, Path], tmp_path: Path
) -> None:
    base, run = adapted
    folder = export(run, tmp_path / "peft", form="peft")
    name = "adapter_model.safetensors"
    assert (folder / name).read_bytes() == (adapter_of(run) / name).read_bytes()
    model: Any = PeftModel.from_pretrained(load_plain(base), str(folder))
    np.testing.assert_array_equal(full_logprobs(model.eval(), IDS), score_trained(base, run))
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert not (folder / "value_head.safetensors").exists()


def score_with_mlx(folder: Path) -> np.ndarray:
    """Log-probabilities [T] through what mlx-lm loads by itself."""
    import mlx.core as mx
    import mlx_lm

    parts: Any = mlx_lm.load(str(folder))
    network = parts[0]
    network.set_dtype(mx.float32)
    logits = network(mx.array([IDS]))[0].astype(mx.float32)
    scores = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    return np.array([0.0, *(scores[i, token] for i, token in enumerate(IDS[1:]))])


def mlx_run(root: Path, *, lora: bool) -> tuple[Path, Path, Any]:
    """A base, a run on MLX, and its policy."""
    from tests.helpers.mlx_tiny import settings_of
    from tests.helpers.updates import trained
    from wordle_rl.backends.mlx import load
    from wordle_rl.backends.mlx.machine import MlxMachine
    from wordle_rl.policy.optim import Optim
    from wordle_rl.policy.policy import Policy
    from wordle_rl.policy.settings import LoraSettings

    base = made.save_base(root / "base", "llama")
    settings = settings_of(base, lora=LoraSettings(rank=4, alpha=8.0) if lora else None)
    model = load.load_model(settings, precision="fp32")
    policy = Policy(MlxMachine(model, optim=Optim(lr=1e-2, clip_grad_norm=0.0)))
    trained(policy).machine.export(root / "model")
    (root / "runs").mkdir()
    overrides = ["backend=mlx", f"model.path={base}", *[made.LORA] * lora]
    return base, made.save_run(root / "runs", root / "model", *overrides), policy


def score_mlx_policy(policy: Any) -> np.ndarray:
    from tests.helpers.updates import one_row

    return policy.score(one_row(IDS, [0, *[1] * (len(IDS) - 1)]))[0]


@pytest.mark.slow
def test_an_adapter_trained_on_mlx_is_exported_in_each_form(tmp_path: Path) -> None:
    base, run, policy = mlx_run(tmp_path, lora=True)
    expected = score_mlx_policy(policy)
    assert np.abs(full_logprobs(load_plain(base), IDS) - expected).mean() > 0.01
    folder = export(run, tmp_path / "merged", form="merged", precision="float32")
    np.testing.assert_allclose(full_logprobs(load_plain(folder), IDS), expected, atol=1e-3)
    folder = export(run, tmp_path / "peft", form="peft")
    model: Any = PeftModel.from_pretrained(load_plain(base), str(folder))
    np.testing.assert_allclose(full_logprobs(model.eval(), IDS), expected, atol=1e-3)
    folder = export(run, tmp_path / "mlx", form="mlx", precision="float32")
    np.testing.assert_allclose(score_with_mlx(folder), expected, atol=1e-3)


def test_a_run_without_lora_exports_whole_weights_but_no_adapter(tmp_path: Path) -> None:
    model = made.save_base(tmp_path / "base", "qwen2")
    network = load_plain(model)
    network.save_pretrained(model)  # in float32, as runs save them
    (tmp_path / "runs").mkdir()
    run = made.save_run(tmp_path / "runs", model, f"model.path={model}")
    folder = export(run, tmp_path / "merged", form="merged", precision="bfloat16")
    weights = load_file(folder / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    export(run, folder, form="merged", precision="float16", force=True)
    weights = load_file(folder / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.float16}
    gap = full_logprobs(load_plain(folder), IDS) - full_logprobs(network, IDS)
    assert np.abs(gap).mean() < 0.02
    output = export(run, tmp_path / "mlx", form="mlx")
    np.testing.assert_allclose(score_with_mlx(output), full_logprobs(network, IDS), atol=1e-3)
    assert "a run without model.lora, not peft" in refuse(run, form="peft")


# -- what must not go unnoticed -------------------------------------------------------------------


MERGE = LoraModel.merge_and_unload


def merge_twice(model: Any, **_: Any) -> Any:
    """Adds the adapter to the weights two times."""
    for module in model.modules():
        if hasattr(module, "merge") and hasattr(module, "lora_A"):
            module.merge()
            module.merged_adapters.clear()
    return MERGE(model)


FAULTS: dict[str, Any] = {"twice": merge_twice, "not at all": lambda model, **_: model.unload()}


@pytest.mark.parametrize("fault", FAULTS)
def test_weights_that_were_merged_wrongly_are_refused_and_nothing_is_left(
    fault: str, adapted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoraModel, "merge_and_unload", FAULTS[fault])
    _, run = adapted
    line = refuse(run, tmp_path / "merged")
    assert "the exported model differs from the trained one" in line
    assert "nothing was exported" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["merged", "peft"])
def test_a_folder_that_its_library_would_play_otherwise_is_refused(
    form: str, adapted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, run = adapted
    penalty = {"repetition_penalty": 3.0}
    file = base / "generation_config.json"
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | penalty))
    try:
        card = (export(run, tmp_path / "good", form=form) / "README.md").read_text()
        assert ("repetition_penalty=1.0, top_k=0, top_p=1.0" in card) == (form == "peft")
        monkeypatch.setattr(saving, "save_generation", lambda *_: None)
        monkeypatch.setattr(torch_backend, "NEUTRAL", {})
        assert "plays other greedy games" in refuse(run, tmp_path / "bad", form=form)
        assert [path.name for path in tmp_path.iterdir()] == ["good"]
    finally:
        file.write_text(text)


def test_the_prompts_of_the_check_are_all_of_whole_greedy_games_of_the_library(
    adapted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here transformers plays by itself, turn by turn, on its own boards."""
    _, run = adapted
    source = read_source(RunFolder.open(run), "best")
    probe = play_probe(source)
    folder = export(run, tmp_path / "merged", form="merged", precision="float32")
    chat = Chat(HFTokenizer(AutoTokenizer.from_pretrained(folder)))
    model, form = load_plain(folder), build_form(source.form, chat, source.style)
    answers, one_game = {}, {}
    for game in new_games(source.secrets[:4], source.words, source.rules):
        ids = form.opening(game.state)
        for turn in range(source.rules.max_turns):
            ids += form.reply(game.turns[-1], game.state, last_id=ids[-1]) if turn else []
            drawn = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
            answer = drawn[0, len(ids) :].tolist()
            answers[(*ids,)] = answer
            ids += answer
            say(form, game, answer, complete=answer[-1] in probe.stops)
        assert game.lost, "an untrained model wins nothing, so each game has all its turns"
        if game.secret == source.secrets[0]:
            one_game = dict(answers)
    assert answers == dict(zip(map(tuple, probe.prompts), probe.answers, strict=True))
    monkeypatch.setattr(check, "_LARGE", 1)
    probe = play_probe(source)
    assert one_game == dict(zip(map(tuple, probe.prompts), probe.answers, strict=True))


def test_a_library_that_plays_otherwise_late_in_a_game_alone_is_refused(
    adapted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wrong window of attention would, or places that are rotated wrongly."""
    answer_plainly = torch_backend.answer_plainly

    def forget(folder: Path, prompts: list[list[int]], most: int, **rest: Any) -> list[list[int]]:
        window = max(map(len, prompts)) - 1
        return answer_plainly(folder, [ids[-window:] for ids in prompts], most, **rest)

    monkeypatch.setattr(torch_backend, "answer_plainly", forget)
    assert "plays other greedy games" in refuse(adapted[1], tmp_path / "bad")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mean", "adapter", "end"),
    [
        (0.1, 4.3, ""),  # 2.3 % of what the adapter changes
        (float("nan"), 9.0, "refused"),
        (0.03, 0.04, "refused"),
        (0.006, 0.01, "warned"),  # as much as bfloat16 rounds
        (0.4, None, ""),
        (0.6, None, "refused"),
    ],
)
def test_only_weights_beyond_rounding_are_refused(mean, adapter, end, capsys) -> None:
    change = Change(tokens=9, mean=mean, largest=mean, adapter=adapter)
    stop = pytest.raises(ConfigError, match="float32 rounds less")
    with stop if end == "refused" else nullcontext():
        check_change(change, "bfloat16")
    assert ("rounding took 60% of" in capsys.readouterr().out) == (end == "warned")


# -- what is refused ------------------------------------------------------------------------------


def test_wrong_input_is_one_line_and_an_existing_folder_is_never_touched(
    adapted: tuple[Path, Path], tmp_path: Path
) -> None:
    run = adapted[1]
    assert "no such run folder" in refuse("nowhere")
    assert refuse(run, tmp_path, force=True).endswith("exists: name another one")
    assert "in a folder that exists" in refuse(run, tmp_path / "a" / "b")
    assert "precision must be auto" in refuse(run, form="peft", precision="float32")
    assert "not mlx-adapter" in refuse(run, form="mlx-adapter")


# -- the card -------------------------------------------------------------------------------------


def test_the_card_names_base_prompt_commands_and_what_it_cannot_know(
    adapted: tuple[Path, Path], tmp_path: Path
) -> None:
    base, run = adapted
    card = (export(run, tmp_path / "merged", form="merged") / "README.md").read_text()
    flat = " ".join(card.split())
    assert f"The base is `{base}`" in flat and "its licence is not known here" in flat
    assert "base (unknown) -> small (training answers)" in flat
    assert "`prompt=letters` and `rollout.form=conversation`" in card
    assert "Training: `python train.py prompt=letters`" in card
    assert f"`wordle-rl export {run} --format merged`" in card
    assert "The run has no report on this checkpoint." in card
    assert "library_name: transformers" in card and "license" not in card.split("---")[1]
    assert "You are playing Wordle" in card


# -- the hub --------------------------------------------------------------------------------------


class Hub:
    """Stands for the hub's client. What it was given, by kind of call."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.calls: dict[str, Any] = {}
        self.fault = fault

    def create_repo(self, name: str, **options: Any) -> str:
        self.calls["repo"] = {"name": name, **options}
        return f"https://huggingface.co/{name}"

    def upload_folder(self, *, repo_id: str, folder_path: Path) -> None:
        if self.fault is not None:
            raise self.fault
        self.calls["files"] = {repo_id: {path.name for path in Path(folder_path).iterdir()}}


def test_an_export_is_uploaded_with_its_card_as_a_private_model(
    adapted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "hf auth login" in refuse(adapted[1], tmp_path / "peft", "peft", push="me/wordle")
    assert "me/wordle" in refuse(adapted[1], tmp_path / "peft", "peft", push="no name")
    assert not (tmp_path / "peft").exists()
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    hub, dead_hub = Hub(), Hub(OSError("no network"))
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    folder = export(adapted[1], tmp_path / "peft", "peft", push="me/wordle")
    assert hub.calls["repo"]["name"] == "me/wordle" and hub.calls["repo"]["private"]
    assert hub.calls["files"] == {"me/wordle": {path.name for path in folder.iterdir()}}
    assert {"README.md", "adapter_config.json"} <= hub.calls["files"]["me/wordle"]
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: dead_hub)
    line = refuse(adapted[1], folder, "peft", force=True, push="me/wordle")
    assert "no network" in line and line.endswith(f"hf upload me/wordle {folder}")
