"""Options of different groups go together, or are refused in one line that says why.

Groups and options are read from conf/, so that a new file is covered as it is. Random rows of
options stand for all combinations.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from safetensors.torch import load_file
from tokenizers import AddedToken

from tests.helpers.configs import GROUPS, OPTIONS, composed
from tests.helpers.marks import needs_real
from tests.helpers.runs import metrics_of, run
from tests.helpers.tiny import QWEN_TOOLS, SHAPE, many_stops, sharpen
from tests.helpers.tool_calls import call, guess
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.commands.build import PLAYERS, build_experiment, resolve
from wordle_rl.game.players import guess_text
from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import TOOL
from wordle_rl.rollouts.forms import FORMS
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import load_words

pytestmark = pytest.mark.usefixtures("quiet")

# A study is no run, an experiment is a combination by itself, Hydra's own groups choose nothing.
CHOICES = [group for group in GROUPS if group not in ("sweep", "experiment", "hydra")]
SHAPE_SMALL = (
    "model.shape={hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate_size: 192}"
)
CPU = ["backend.accelerator=cpu", "backend.threads=1"]
MORE = {  # further options of a group
    "backend": {"two processes": ["backend=lightning", "backend.devices=2", *CPU]},
}
VALUES = {  # choices of README.md that are single values
    "num_generations": {str(n): [f"num_generations={n}"] for n in (8, 1, 2, 16)},
    "words": {"original": [], "own": ["words.answers=<words>"]},
    "rules": {"original": [], "hard": ["rules.hard_mode=true"]},
    "sampling": {"drawn": [], "greedy": ["sampling.temperature=0"]},
    "thoughts": {"none": [], "asked for": ["prompt.think=true"]},
    "form": {form: [f"rollout.form={form}"] for form in FORMS},
    "credit": {"turn": [], "game": ["rollout.credit=game", "rollout.discount=1"]},
    "protocol": {
        **{p: [f"words.protocol={p}"] for p in ("split", "all", "allowed")},
        "split, half allowed": ["words.allowed_share=0.5"],
    },
    "player": {player: [f"history.player={player}"] for player in PLAYERS},
    "invalid": {i: [f"rules.invalid={i}"] for i in ("lose_turn", "end_game", "retry", "accept")},
    "updates": {"one": [], "two": ["algorithm.epochs=2", "algorithm.minibatches=2"]},
    "kl": {
        "none": [],
        **{kl: [f"algorithm.kl={kl}", "algorithm.beta=0.1"] for kl in ("loss", "reward")},
    },
    "precision": {name: [f"backend.precision={name}"] for name in ("auto", "fp32", "bf16")},
}
SMALL = [
    "rollout.groups=4", "words.test=4", "words.val=4", "optim.lr=0.001",
    "model.max_tokens=12", "model.max_context=4096",
    "trainer.steps=2", "trainer.validate_every=2", "trainer.report=false", "trainer.show_games=0",
]  # fmt: skip
ROWS = 60  # in which each option occurs several times

Factors = dict[str, dict[str, list[str]]]  # the overrides of each option of each factor


def overrides_of(group: str, option: str) -> list[str]:
    extra = CPU if option == "lightning" else []
    if group == "model":
        text = (ROOT / "conf" / group / f"{option}.yaml").read_text()
        extra = [SHAPE_SMALL] if f"path: {UNTRAINED}" in text else ["model.path=<model>"]
    return [f"{group}={option}", *extra]


def factors() -> Factors:
    """The default of each factor is its first option."""
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        chosen = compose(
            "config", ["experiment=none"], return_hydra_config=True
        ).hydra.runtime.choices
    found = {}
    for group in CHOICES:
        names = sorted(OPTIONS[group], key=lambda name: name != chosen[group])
        found[group] = {name: overrides_of(group, name) for name in names} | MORE.get(group, {})
    return found | VALUES


FACTORS = factors()
DEFAULTS = {factor: next(iter(options)) for factor, options in FACTORS.items()}


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
    described = HFTokenizer(inner).render([{"role": "user", "content": ""}], tools=[TOOL])
    inner.add_tokens([AddedToken(line, normalized=False) for line in described.split("\n") if line])
    begin = len(inner)
    inner.add_tokens([guess_text(word) for word in words])
    inner.add_tokens([call(guess(word)) for word in words])
    model = build_model(vocab_size=len(inner), **SHAPE | {"intermediate_size": 192})
    model.generation_config.eos_token_id = [inner.eos_token_id, *many_stops(begin)]
    sharpen(model).save_pretrained(folder / "model")
    inner.save_pretrained(folder / "model")
    return {"words": folder / "words.txt", "model": folder / "model"}


def command(row: dict[str, str], places: dict[str, Path]) -> list[str]:
    """The command line of a combination. row: an option for each factor."""
    chosen = [override for factor, option in row.items() for override in FACTORS[factor][option]]
    for name, path in places.items():
        chosen = [override.replace(f"<{name}>", str(path)) for override in chosen]
    return SMALL + chosen


def learns(root: Path, overrides: list[str]) -> bool:
    """Two steps with these settings, all in order. Returns whether any had a gradient."""
    root.mkdir()
    summary, folder = run(root, *overrides)
    start, *steps = metrics_of(folder)
    assert start["step"] == 0 and [m["step"] for m in steps] == [1, 2]
    assert 0.0 <= summary["val_win_rate"] <= 1.0
    for step in steps:
        assert step["train/games"] > 0 and math.isfinite(step["reward/mean"])
        # A step whose groups teach nothing has no update.
        assert math.isfinite(step.get("loss", 0.0)) and not step.get("update/skipped")
    return any(step.get("grad_norm", 0.0) > 0.0 for step in steps)


@pytest.mark.parametrize("algorithm", ["sft", pytest.param("distill", marks=pytest.mark.slow)])
def test_a_policy_that_imitates_learns_whatever_it_draws_by(algorithm, places, tmp_path) -> None:
    """Its own draws are greedy; log-probabilities at that temperature would not be finite."""
    row = DEFAULTS | {"algorithm": algorithm, "num_generations": "1", "sampling": "greedy"}
    assert learns(tmp_path / "run", command(row, places))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(ROWS))
def test_options_train_together_or_are_refused_in_one_line(
    number, places, tmp_path, capsys
) -> None:
    """A row takes each option by chance that goes with those before it."""
    chance, row = random.Random(number), dict(DEFAULTS)
    for factor in chance.sample([*FACTORS], len(FACTORS)):
        wanted = row | {factor: chance.choice([*FACTORS[factor]])}
        try:
            build_experiment(resolve(composed(*command(wanted, places))))
            row = wanted
        except HydraException:
            continue  # the option of another factor has no such setting
        except ValueError as error:
            keys = {o.partition("=")[0].rpartition(".")[2] for o in command(wanted, places)}
            assert "\n" not in str(error) and any(key in str(error) for key in keys), error
    try:
        learns(tmp_path / "run", command(row, places))
    except SystemExit as end:  # what only the tokenizer or the model can tell
        [line] = capsys.readouterr().err.strip().splitlines()
        assert end.code == 2 and line.startswith("error: "), row


# Sizes alone: algorithm, model, rewards, rates and all else are as the experiment asks.
FEW_STEPS = [
    "rollout.groups=4", "words.test=4", "words.val=4", *CPU,
    "trainer.steps=2", "trainer.validate_every=2", "trainer.checkpoint_every=2",
    "trainer.report=false", "trainer.show_games=0",
]  # fmt: skip


RECIPES = {"imitate": ["model=smollm2"], "reinforce": ["model=smollm2_sft"]}


def experiments() -> list[Any]:
    """All of them. Those of SmolLM2 need its weights."""
    return [
        pytest.param(name, marks=needs_real("smollm2") if name in RECIPES else ())
        for name in OPTIONS["experiment"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments())
def test_every_experiment_trains_what_it_asks_for(name, places, tmp_path) -> None:
    given = [f"experiment={name}", *RECIPES.get(name, []), *FEW_STEPS]
    asked = composed(f"experiment={name}", *RECIPES.get(name, []))
    if "/" in asked.model.path and not asked.model.path.startswith(("embedded/", "fetched/")):
        # Its weights need a network, and 4 bit an extra; tests/backends/torch/test_quantize.py.
        given += [f"model.path={places['model']}", "model.quantize=null"]
    (tmp_path / "runs").mkdir()
    _, folder = run(tmp_path / "runs", *given)
    store = CheckpointStore(folder / "checkpoints", read_only=True)
    start, end = (
        load_file(next((store.folder / step / "model").glob("*.safetensors")))
        for step in ("step_000000", "step_000002")
    )
    assert start.keys() == end.keys()
    assert any(not torch.equal(start[weight], end[weight]) for weight in start)
