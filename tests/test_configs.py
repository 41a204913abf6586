"""Every shipped option composes and builds, every key is used, and wrong input ends in one line."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from wordle_rl.build import ConfigError, component, experiment, model_settings, resolve
from wordle_rl.cli import quoted

ROOT = Path(__file__).resolve().parent.parent
GROUPS = sorted(p.name for p in (ROOT / "conf").iterdir() if p.is_dir())
OPTIONS = {
    group: sorted(p.stem for p in (ROOT / "conf" / group).glob("*.yaml")) for group in GROUPS
}


def composed(*overrides: str, name: str = "config"):
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose(name, overrides=[quoted(override) for override in overrides])


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("words") / "answers.txt"
    words = ["".join(letters) for letters in itertools.product("abcd", "aei", "lmn", "o", "rst")]
    file.write_text("\n".join(words) + "\n")
    return file


@pytest.mark.parametrize(
    "choice", [f"{group}={option}" for group in GROUPS for option in OPTIONS[group]]
)
def test_every_option_builds_an_experiment(choice: str, answers: Path) -> None:
    extra = [f"words.answers={answers}"] if choice == "words=custom" else []
    if choice in ("num_generations=1", "sampling=greedy"):
        extra = ["algorithm=sft"]  # nothing to compare: refused for GRPO, see below
    setup = experiment(resolve(composed(choice, *extra)))
    assert setup.lab.groups * setup.lab.num_generations > 0


def test_every_key_of_a_component_reaches_it() -> None:
    # component() refuses keys that the class lacks, so building all nodes proves that none is idle.
    config = resolve(composed())
    for group in ("backend", "algorithm", "rollout", "prompt", "words", "rules", "sampling",
                  "trainer", "logger", "optim"):  # fmt: skip
        built = component(group, config[group])
        for key, value in config[group].items():
            if key != "_target_":
                assert getattr(built, key) == value
    assert model_settings(config["model"]).name == "tiny"


def test_num_generations_chosen_by_group_or_by_number() -> None:
    assert composed("num_generations=4").rollout.num_generations == 4
    assert composed("rollout.num_generations=6").rollout.num_generations == 6


def test_a_model_may_choose_its_prompt_and_the_command_line_overrules_it() -> None:
    assert composed("model=qwen3b").prompt.think is True
    assert composed("model=qwen3b", "prompt=letters").prompt._target_.endswith("Letters")


def test_an_experiment_wins_over_the_main_config() -> None:
    assert composed("experiment=warm_start").optim.warmup_steps == 50


def test_protocol_split_never_trains_on_a_test_or_validation_secret() -> None:
    setup = experiment(resolve(composed("words.protocol=split")))
    assert len(setup.test) == 315 and len(setup.validation) == 200
    assert not set(setup.lab.secrets) & (set(setup.test) | set(setup.validation))


def test_validation_secrets_are_distinct() -> None:  # row 21
    setup = experiment(resolve(composed()))
    assert len(set(setup.validation)) == len(setup.validation) == 200


WRONG = {
    "modle=tiny": "modle",
    "model=qwen9b": "qwen3b",  # what there is
    "optim.lrr=1": "lrr",
    "+foo=1": "foo",
    "+optim.foo=1": "clip_grad_norm",  # what there is
    "optim.lr=-1": "optim.lr",
    "optim.lr=abc": "optim.lr",
    "optim.schedule=linear": "cosine",
    "rollout.num_generations=1": "rollout.num_generations",
    "rollout.groups=0": "rollout.groups",
    "sampling.temperature=0": "sampling.temperature",
    "sampling=greedy": "sampling.temperature",
    "num_generations=1": "rollout.num_generations",
    "num_generations=3": "rollout.num_generations",  # the way to any other number
    "sampling.top_p=0.9": "sampling.top_p",
    "algorithm.clip_low=0": "algorithm.clip_low",
    "algorithm.scale=mean": "algorithm.scale",
    "algorithm._target_=os.system": "algorithm._target_",
    "algorithm._target_=wordle_rl.words.Path": "algorithm._target_",
    "reward.components.win.weight=-1": "win",
    "rules.invalid=shout": "lose_turn",
    "rules.max_turns=six": "rules.max_turns",
    "words.test=5000": "test",
    "words.answers=/no/such/file.txt": "/no/such/file.txt",
    "words.protocol=both": "words.protocol",
    "trainer.steps=0": "trainer.steps",
    "backend.precision=fp8": "bf16",
    "model.path=embedded/huge": "embedded/tiny",
    "seed=-1": "seed",
    "resume=outputs/none": "outputs/none",
}


@pytest.mark.parametrize("override", WRONG)
def test_wrong_input_ends_in_one_line_that_names_key_or_value(override: str, capsys) -> None:
    from wordle_rl import cli
    from wordle_rl.run import train

    def main() -> None:
        train(composed(override), [override])

    with pytest.raises(SystemExit) as stop:
        cli.run(main)
    lines = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2
    assert len(lines) == 1 and lines[0].startswith("error: ") and WRONG[override] in lines[0]


def test_the_composed_config_is_printed_without_importing_torch() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "train.py", "model=qwen3b", "reward=phase2",
         "--cfg", "job"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Qwen/Qwen2.5-3B-Instruct" in done.stdout
    assert " torch" not in done.stderr and "lightning" not in done.stderr
    assert time.monotonic() - start < 30


def test_a_node_that_is_no_component_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a component"):
        component("algorithm", {"_target_": "wordle_rl.build.Experimenter"})


def test_resolving_a_missing_value_names_it() -> None:
    with pytest.raises(ConfigError, match="answers"):
        resolve(OmegaConf.create({"words": {"answers": "???"}}))
