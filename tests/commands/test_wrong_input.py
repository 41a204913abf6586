"""Wrong input ends in one line that says what is allowed, with exit code 2, and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import command, error_of, evaluation, training
from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.composed import TRAIN as TRAINING
from wordle_rl.commands.composed import run_composed
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.instantiate import ConfigError

pytestmark = pytest.mark.usefixtures("quiet")

HEAVY = {"torch", "lightning", "transformers", "peft", "safetensors", "tensorboard", "matplotlib"}


TRAIN = {
    # typos
    "modle=tiny": "did you mean model?",
    "lr=1e-4": "there is no setting lr, did you mean optim.lr?",
    "model=minni": "did you mean mini?",
    "learning_rate=1e-4": "optim.lr",
    "device=cuda": "backend.accelerator",
    "batch_size=4": "rollout.groups",
    "backend.accelerator=gpu": "backend.accelerator=cuda",
    "optim.lr=0,001": "write optim.lr=0.001",
    "model=qwen3": "did you mean qwen3b?; it may be a hub name",
    "model.lora.rank=16": "'model.lora={rank: 16, alpha: 32}'",
    "hydra/launcher=submitit_slurm": "hydra.sweeper.jobs",
    "hydra.launcher.n_jobs=4": "hydra.sweeper.jobs",
    "hydra.run.dir=here": "output_dir=here",
    "hydra.job.name=mine": "output_dir, name or hydra.sweeper.folder",
    "model=gpt2": "a hub name such as",
    "model=gemma4b-mlx backend=lightning": "model=gemma4b-mlx needs backend=mlx",
    "optim.lr.max=1": "optim.lr is a single value",
    "curriculum=phases reward=phase1": "curriculum.first must differ from reward=",
    "curriculum=replay algorithm=sft": "curriculum must be none with an algorithm that imitates",
    "output_dir=~/models": "quotes",
    "experiment=quick,study": "-m",
    "+reward.components.format.form=tool": "reward.components.format.form is filled in by the",
    "+optim.beta3=1": "optim has no setting beta3",
    "algorithm.kl=both": "algorithm.kl must be one of loss, reward",
    "algorithm.reference=tiny": "algorithm.reference=tiny needs algorithm.beta above 0",
    "algorithm=opd algorithm.reference=nosuch": "algorithm.reference must be start, a trained",
    # values of another kind
    "rules.max_turns=six": "rules.max_turns must be a whole number",
    "reward.components.win.weight=abc": "reward.components.win.weight must be 0..1000000",
    "optim.lr=${seed.x}": "optim.lr",
    # parts that are missing
    "~reward": "reward must be given",
    # impossible pairs
    "num_generations=8 rollout.games_at_once=7": "rollout.games_at_once must be 8 or more",
    "rollout.groups=7 backend.devices=2": "rollout.groups must be a multiple of backend.devices=2",
    "sampling.temperature=0": "sampling.temperature must be above 0 in training",
    "sampling.max_tokens=512": "below model.max_context=512",
    "model=qwen3b model.lora.targets='.*'": "model.lora.targets must be all-linear or a list",
    "rollout.advance=first": "it is for rollout=best_of",
    "+rollout.advance=first": "rollout.advance must be best with rollout=game",
    "rollout.word_letter_weight=1 algorithm=dpo": "rollout.word_letter_weight must be 0",
    "rollout=best_of algorithm=sft": "use rollout=game or rollout=turn",
    "history=upto4 rules.max_turns=4": "history.most must be below rules.max_turns=4",
    "sampling.repeats=false": "sampling.repeats=false needs sampling.grammar=words or clues",
    "sampling.grammar=words sampling.grammar_from=9": "grammar_from needs sampling.grammar=clues",
    "rollout.letter_from=9": "rollout.letter_from must be null while rollout.letter_weight is 0",
    "algorithm.semantic=0.1": "algorithm.semantic must be 0 without sampling.grammar=words",
    "sampling.grammar=clues rollout.engine=vllm": "sampling.grammar must be null with rollout.eng",
    "rollout.engine=vllm backend=mlx": "rollout.engine=vllm needs backend=lightning",
    # files and folders that are not there, or are something else
    "words.allowed_share=0.5 data=missing.jsonl": "data=missing.jsonl: no such file",
    "words.answers=/no/such/file.txt": "/no/such/file.txt: no such file",
    "model.path=embedded/huge": "embedded/tiny",
    "output_dir=train.py": "train.py",
    "resume=": "resume must be a run folder, the number of a run, or latest",
    "resume=outputs/none": "outputs/none: no such run folder",
    "init_from=null": "null: no such run folder",
    "resume=conf": "not a run folder (no manifest.json)",
    "init_checkpoint=last": "init_checkpoint needs init_from=",
    "model.path=embedded/tiny init_from=conf": "model.path and init_from exclude each other",
    "allow_mismatch=maybe": "allow_mismatch must be true or false",
}


@pytest.mark.parametrize("line", TRAIN)
def test_training_with_wrong_settings_is_refused(line: str, refused) -> None:  # row 24
    assert TRAIN[line] in refused(training(line))


def test_a_logger_that_is_not_installed_is_told_before_anything_is_loaded(monkeypatch) -> None:
    monkeypatch.setattr("wordle_rl.commands.build.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"wandb is not installed: .* -m pip install .*\[wandb\]"):
        build_experiment(resolve(composed("logger=none", "logger.wandb=true")))


EVAL = {
    "player=oracle": "random_consistent",
    "run=outputs/none": "outputs/none: no such run folder",
    "checkpoint=last": "checkpoint needs run=",
    "player=random model=tiny": "player and model exclude each other",
    "player=random sampling.beams=8": "player and sampling.beams exclude each other",
    "words.split=half": "train, val, test, all",
    "form=chat": "form must be one of conversation, fresh, tool",
    "samples=2": "add sampling.temperature=1",  # a model's greedy games are all alike
    "shots=90": "model.max_context",
    "shots=1 form=tool": "shots needs form=conversation or fresh",
    "model=qwen3b optim.lr=1": "there is no setting optim",
    "num_generations=4": "there is no choice num_generations",
    "~words": "words must be given",
    "model.max_context=16": "model.max_context must be 20 or more",
    "model=micro model.max_context=64": "must be 91 or more for a game of 6 guesses, not 64",
    "form=tool": "rollout.form=tool needs a model whose chat template has tools",
}


@pytest.mark.parametrize("line", EVAL)
def test_evaluating_with_wrong_settings_is_refused(line: str, refused) -> None:
    assert EVAL[line] in refused(evaluation(line))


def grow(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)  # takes no room on the disk


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a file of 2 GB": ("a.txt", lambda p: grow(p, 2**31), "larger than 67,108,864 bytes"),
    "not UTF-8": ("a.txt", lambda p: p.write_bytes(b"crane\n\xe9lan\n"), "row 2: not UTF-8"),
    "a long word": ("a.txt", lambda p: p.write_text("crane\nslates\n"), "answers has 'slates'"),
    "no such column": ("a.csv", lambda p: p.write_text("w,n\ncrane,1\n"), "must be w, n, not word"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_word_list_that_cannot_be_used_is_named(kind: str, tmp_path: Path, refused) -> None:
    name, make, message = FILES[kind]
    make(tmp_path / name)
    column = "words.column=word" if name == "a.csv" else ""
    line = refused(training(f"words.answers={tmp_path / name} {column}"))
    assert message in line and str(tmp_path / name) in line


TARGETS = [  # classes and functions that do something when they are called, or are of another kind
    "os.system",
    "builtins.eval",
    "pathlib.Path.unlink",
    "wordle_rl.words.lists.Path",
    "wordle_rl.commands.train.train",
    "wordle_rl.runs.errors.os.system",
    "wordle_rl.backends.torch.load.load_model",
    "wordle_rl.game.rules.Game",
    "wordle_rl.runs.errors",
    "wordle_rl.rewards.win.Win",
    "",
    None,
    5,
]


@pytest.fixture(scope="module")
def config() -> dict:
    return resolve(composed())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("key", ["optim", "algorithm", "model.lora"])
def test_a_target_that_is_no_component_of_the_right_kind_is_never_called(
    target: object, key: str, config: dict, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    node = {"_target_": target, "file": str(file), "mode": "w"}
    change = {"model": {**config["model"], "lora": node}} if key == "model.lora" else {key: node}
    with pytest.raises(ConfigError, match=rf"{key}\._target_ must be "):
        build_experiment({**config, **change})
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train.py --lr=5", "unrecognized arguments: --lr=5; settings are given as key=value"),
        ("train.py num_generations=1", "error: num_generations must be 2 or more"),
        ("train.py rollout.num_generations=0", "error: rollout.num_generations must be"),
        ("train.py model.max_tokens=512", "error: model.max_tokens must be below"),
        ("train.py data=README.md debug=true", "error: data=README.md"),
        ("eval.py model=tests", "error: model=tests is no model folder"),
        ("train.py --experiment quick", "--experiment: write experiment=quick"),
        ("train.py experiment quick", "experiment: write experiment=quick"),
    ],
)
def test_a_command_with_wrong_input_prints_one_line_and_exits_with_2(line: str, told: str) -> None:
    result, _ = command(*line.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert told in error_of(result.stderr)


HEAD, RATE = "# @package _global_\n", "optim:\n  lr: 0.5\n"
BOMB = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{f'*a{i},' * 9}]\n" for i in range(9))
OWN_FILES = {  # files of one's own: their bytes, and what the command says
    "plain": (HEAD + RATE, "lr: 0.5"),
    "of Windows": ((HEAD + RATE).replace("\n", "\r\n"), "lr: 0.5"),
    "with a tab": (HEAD + RATE.replace("  ", "\t"), "line 3"),
    "with a byte order mark": ("\ufeff" + HEAD + RATE, "must be # @package _global_"),
    "without a package": (RATE, "must be # @package _global_"),
    "of aliases": (HEAD + BOMB, "as YAML (has an alias"),
}


@pytest.mark.parametrize("kind", OWN_FILES)
def test_a_file_of_ones_own_is_used_or_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    text, message = OWN_FILES[kind]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_bytes(text.encode())
    # Flags stand between settings, where one appends them.
    line = ["train.py", "model=micro", "--config-dir", str(tmp_path), "experiment=mine"]
    if message == "lr: 0.5":
        result, _ = command(*line, "--cfg", "job", "seed=7")
        assert result.returncode == 0 and message in result.stdout and "seed: 7" in result.stdout
    else:
        result, _ = command(*line)
        assert result.returncode == 2 and message in error_of(result.stderr)


FOREIGN_FILES = {
    "aliases": (lambda p: p.write_text(BOMB), "mine.yaml: .*has an alias"),
    "levels": (lambda p: p.write_text("[" * 60_000 + "]" * 60_000), "mine.yaml: .* 20 levels"),
    "junk": (lambda p: p.write_text("x" * 3_000_000), "mine.yaml: larger than 131,072 letters"),
    "Latin 1": (lambda p: p.write_bytes(b"\ncaf\xe9: 1"), "mine.yaml row 2: not UTF-8 text"),
    "a long number": (lambda p: p.write_text("a: " + "9" * 5000), "mine.yaml: .*digits"),
    "a device": (lambda p: p.symlink_to("/dev/zero"), "mine.yaml: not a file"),
    "a pipe": (os.mkfifo, "mine.yaml: not a file"),
    "a folder": (Path.mkdir, "mine.yaml: not a file"),
}


@pytest.mark.parametrize("kind", FOREIGN_FILES)
def test_a_file_from_outside_is_refused_before_it_is_composed(kind, tmp_path, monkeypatch):
    make, message = FOREIGN_FILES[kind]
    (tmp_path / "prompt").mkdir()
    make(tmp_path / "prompt" / "mine.yaml")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WORDLE_RL_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        compose_config("config", ["prompt=mine"])


@pytest.mark.parametrize("line", ["num_generations=2,4", "optim.lr=1e-4,1e-3", "sweep=gen_count"])
def test_help_beside_several_values_is_the_page_of_help(line: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "-m", *line.split(), "model=tiny", "--help"])
    run_composed(TRAINING)
    assert " *tiny" in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_of_ones_own_without_a_package_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.yaml").write_text("name: mine\n")
    result, _ = command("train.py", "-m", "sweep=mine", f"--config-dir={tmp_path}")
    assert result.returncode == 2 and "# @package hydra.sweeper" in error_of(result.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["train.py --help", "train.py --cfg job"])
def test_help_and_config_are_shown_without_heavy_imports(line: str) -> None:
    _, baseline = command("-X", "importtime", "-c", "import hydra.main")
    result, seconds = command("-X", "importtime", *line.split(), "model=qwen3b")
    modules = {name.split("|")[-1].strip().partition(".")[0] for name in result.stderr.splitlines()}
    assert result.returncode == 0 and "Qwen/Qwen2.5-3B-Instruct" in result.stdout
    assert "hydra" in modules and not modules & HEAVY
    assert seconds < 10 * baseline
