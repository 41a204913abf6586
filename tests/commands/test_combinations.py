"""Options of different groups go together, or are refused in one line that says why.

Groups and options are read from conf/, so that a new file is covered as it is. A covering array
(combinations.py) stands for all combinations: every pair of options occurs in it.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file
from tokenizers import AddedToken
from transformers import AutoTokenizer

from tests.helpers.combinations import Covering, Row
from tests.helpers.configs import GROUPS, OPTIONS, composed
from tests.helpers.marks import NEEDS_SMOLLM2
from tests.helpers.runs import metrics_of, run
from tests.helpers.tiny import QWEN_TOOLS, SHAPE, many_stops, sharpen
from tests.helpers.tool_calls import call, guess
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_model, build_tokenizer
from wordle_rl.commands import build
from wordle_rl.commands.build import PLAYERS, build_experiment
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import guess_text
from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.prompts.parser import TOOL
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import FORMS, build_form, check_room
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.errors import whole_command
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import WordSettings

pytestmark = pytest.mark.usefixtures("quiet")

# A study is no run, an experiment is a combination by itself, Hydra's own groups choose nothing.
CHOICES = [group for group in GROUPS if group not in ("sweep", "experiment", "hydra")]
# What an option needs besides its name, and further options of a group.
SHAPE_SMALL = (
    "model.shape={hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate_size: 192}"
)
CPU = ["backend.accelerator=cpu", "backend.threads=1"]
WITH = {"backend=lightning": CPU}
MORE = {
    "rollout": {"best_of, sampled": ["rollout=best_of", "rollout.advance=sampled"]},
    "backend": {"two processes": ["backend=lightning", "backend.devices=2", *CPU]},
}
# Choices of README.md that are single values.
VALUES = {
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
    "player": {player: [f"history.player={player}"] for player in (*PLAYERS, "top_openers")},
    "invalid": {
        invalid: [f"rules.invalid={invalid}"]
        for invalid in ("lose_turn", "end_game", "retry", "accept")
    },
    "updates": {
        "as shipped": [],
        "two epochs": ["algorithm.epochs=2"],
        "two minibatches": ["algorithm.minibatches=2"],
    },
    "kl": {
        "none": [],
        "in the loss": ["algorithm.beta=0.1", "algorithm.kl=loss"],
        "in the reward": ["algorithm.beta=0.1", "algorithm.kl=reward"],
    },
    "entropy": {"none": [], "bonus": ["algorithm.entropy=0.01"]},
    "precision": {name: [f"backend.precision={name}"] for name in ("auto", "fp32", "bf16")},
}
SMALL = [
    "rollout.groups=4", "words.test=4", "words.val=4", "optim.lr=0.001",
    "model.max_tokens=12", "model.max_context=4096",
    "trainer.steps=2", "trainer.validate_every=2", "trainer.report=false", "trainer.show_games=0",
]  # fmt: skip

Factors = dict[str, dict[str, list[str]]]  # the overrides of each option of each factor


def overrides_of(group: str, option: str) -> list[str]:
    extra = WITH.get(f"{group}={option}", [])
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
    assert round(sum(p.numel() for p in model.parameters()), -3) == 50_000
    stops = [inner.eos_token_id, *many_stops(begin)]
    model.generation_config.eos_token_id = stops
    sharpen(model).save_pretrained(folder / "model")
    inner.save_pretrained(folder / "model")
    return {"words": folder / "words.txt", "model": folder / "model"}


def command(row: Row, places: dict[str, Path]) -> list[str]:
    """The command line of a combination."""
    chosen = [override for factor, option in row.items() for override in FACTORS[factor][option]]
    for name, path in places.items():
        chosen = [override.replace(f"<{name}>", str(path)) for override in chosen]
    return SMALL + chosen


def plain(config: DictConfig) -> Any:
    return OmegaConf.to_container(config)


class Builder:
    """Says in a hundredth of the time whether train.py would refuse a combination.

    Hydra composes each option once; here their nodes are only put together. What is known of the
    words is computed once, also for the runs that follow.
    """

    def __init__(self, places: dict[str, Path], patch: pytest.MonkeyPatch) -> None:
        self._places = places
        self._node = functools.cache(self._composed)
        self._chats = functools.cache(self._loaded)
        self._start = plain(composed())
        self.refusal = functools.cache(self._refusal)
        known = functools.cache(lambda words: Knowledge(words, feedback_table(words)))
        patch.setattr(WordSettings, "load", functools.cache(WordSettings.load))
        patch.setattr(build, "feedback_table", lambda words: None)
        patch.setattr(build, "Knowledge", lambda words, table: known(words))
        patch.setattr(build, "Regret", functools.cache(build.Regret))

    def accepts(self, row: Row) -> bool:
        return self.refusal(tuple(row.items())) is None

    def _composed(self, group: str, option: str) -> Any:
        return plain(composed(f"{group}={option}"))[group]

    def _loaded(self, path: str) -> Chat:
        inner = build_tokenizer() if path == UNTRAINED else AutoTokenizer.from_pretrained(path)
        return Chat(HFTokenizer(inner))

    def _refusal(self, row: tuple[tuple[str, str], ...]) -> str | None:
        try:
            setup = build_experiment(self._assembled(command(dict(row), self._places)))
            recipe = setup.recipe
            form = build_form(recipe.rollout.form, self._chats(setup.model.path), recipe.style)
            most = recipe.history.most if recipe.history else 0
            check_room(form, recipe.sampling, setup.model.max_context, guesses=most)
        except ValueError as error:
            return str(error)
        return None

    def _assembled(self, overrides: list[str]) -> dict[str, Any]:
        config, values = copy.deepcopy(self._start), {}
        for key, _, value in (override.partition("=") for override in overrides):
            if key == "num_generations":
                config[key] = int(value)
            elif key in GROUPS:
                config[key] = copy.deepcopy(self._node(key, value))
            else:
                values[key] = value
        for key, value in values.items():
            part, _, name = key.partition(".")
            if name not in config[part]:
                raise ConfigError(f"there is no setting {key}")
            config[part][name] = yaml.safe_load(value)
        del (whole := filled(config, config))["num_generations"]  # rollout has it
        return whole


def filled(node: Any, config: dict[str, Any]) -> Any:
    """A node with the values of other nodes that it asks for."""
    if isinstance(node, dict):
        return {key: filled(value, config) for key, value in node.items()}
    if isinstance(node, str) and node.startswith("${"):
        part, _, name = node[2:-1].partition(".")
        return filled(config[part][name] if name else config[part], config)
    return node


@pytest.fixture(scope="module")
def builder(places: dict[str, Path]) -> Iterator[Builder]:
    with pytest.MonkeyPatch.context() as patch:
        yield Builder(places, patch)


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


# -- what is shipped ------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sft", pytest.param("distill", marks=pytest.mark.slow)])
def test_a_policy_that_imitates_learns_whatever_it_draws_by(algorithm, places, tmp_path) -> None:
    """Its own draws are greedy; log-probabilities at that temperature would not be finite."""
    row = {factor: next(iter(options)) for factor, options in FACTORS.items()}
    row |= {"algorithm": algorithm, "num_generations": "1", "sampling": "greedy"}
    assert learns(tmp_path / "run", command(row, places))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_pair_of_options_trains_or_is_refused_in_one_line(
    builder, places, tmp_path, capsys
) -> None:
    covering = Covering(FACTORS, builder.accepts)
    failed, moved = [], set()
    for number, row in enumerate(covering.rows):
        try:
            if learns(tmp_path / str(number), command(row, places)):
                moved |= row.items()
        except (Exception, SystemExit) as error:  # to be told with all others at the end
            failed.append(f"{row}: {error!r} {capsys.readouterr().err}")
    told = {}
    for pair, row in covering.refused.items():
        capsys.readouterr()
        with pytest.raises(SystemExit) as end, whole_command():
            run(tmp_path, *command(row, places))
        [told[pair]] = capsys.readouterr().err.strip().splitlines()
        assert end.value.code == 2
    with capsys.disabled():
        for (one, other), line in told.items():
            print(*one, *other, line)
    for pair, line in told.items():
        keys = [o.partition("=")[0] for f, option in pair for o in FACTORS[f][option]]
        assert any(key.partition(".")[0] in line for key in keys), (pair, line)
    options = {(factor, option) for factor, options in FACTORS.items() for option in options}
    assert not failed, "\n".join(failed)
    defaults = {factor: next(iter(choices)) for factor, choices in FACTORS.items()}
    for number, (factor, option) in enumerate(sorted(options - moved)):
        # Wins by chance, which expert_iteration waits for, are rare but on a few words.
        row = defaults | {"words": "own", "num_generations": "16", factor: option}
        assert learns(tmp_path / f"again_{number}", command(row, places)), option


# Sizes alone: algorithm, model, rewards, rates and all else are as the experiment asks.
FEW_STEPS = [
    "rollout.groups=4", "words.test=4", "words.val=4", *CPU,
    "trainer.steps=2", "trainer.validate_every=2", "trainer.checkpoint_every=2",
    "trainer.report=false", "trainer.show_games=0",
]  # fmt: skip


def experiments() -> list[Any]:
    """All of them. Those of SmolLM2 need its weights."""
    return [
        pytest.param(name, marks=NEEDS_SMOLLM2 if name.startswith("smollm2") else ())
        for name in OPTIONS["experiment"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments())
def test_every_experiment_trains_what_it_asks_for(name, places, tmp_path) -> None:
    given = [f"experiment={name}", *FEW_STEPS]
    asked = composed(f"experiment={name}")
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
