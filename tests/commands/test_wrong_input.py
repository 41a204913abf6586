"""Wrong input ends in one line that says what is allowed, with exit code 2, and nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import command, evaluation, training
from tests.helpers.configs import OPTIONS, composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.instantiate import ConfigError

pytestmark = pytest.mark.usefixtures("quiet")

HEAVY = {"torch", "lightning", "transformers", "peft", "safetensors", "tensorboard", "matplotlib"}


def one_of(group: str) -> str:
    return f"{group} must be one of {', '.join(OPTIONS[group])}, not"


TRAIN = {
    # typos
    "modle=tiny": "did you mean model?",
    "lr=1e-4": "there is no setting lr, did you mean optim.lr?",
    "temperature=0.5": "did you mean sampling.temperature?",
    "experimnt=demo": "did you mean experiment?",
    "model=minni": "did you mean mini?",
    "model=gemma4b-mlx backend=lightning": "model=gemma4b-mlx needs backend=mlx",
    "backend=mlx backend.precision=fp16": "backend.precision must be one of auto, fp32, bf16",
    "backend=mlx backend.devices=2": "backend.devices",
    "optim.lrr=1": "did you mean optim.lr?",
    "optim.lr.max=1": "optim.lr is a single value",
    "+foo=1": "there is no setting foo",
    "+optim.foo=1": "clip_grad_norm",
    "curriculum=phases reward=phase1": "curriculum.first must differ from reward=",
    "curriculum=linear reward.lawful=false": "lawful must be the same in both sets",
    "curriculum=replay rollout.groups=2": "curriculum.share must be 0.5 or more",
    "algorithm=sft algorithm.reasoning=long": "one of none, notes, brief, not 'long'",
    "algorithm=distill algorithm.reasoning=notes": "set prompt.think=true",
    "curriculum=replay algorithm=sft": "curriculum must be none with an algorithm that imitates",
    "curriculum=phases curriculum.first.components.win.weight=x": "curriculum.first.components.win",
    "trainer.memory_limit_gb=0": "trainer.memory_limit_gb must be above 0",
    "trainer.tree=README.md": "README.md row 3",
    "seed": "key=value",
    "optim.lr==1": "key=value",
    "model.path=~/models": "quotes",
    "algorithm=sft algorithm.player=oracle": "random_consistent",
    "experiment=quick,study": "-m",
    "rollout=best_of rollout.advance=worst": "rollout.advance must be one of best, sampled",
    "reward.components.win.turns=2": "there is no setting reward.components.win.turns",
    "model.seed=1": "list it there, or write +model.seed=",
    "+reward.components.format.form=tool": "reward.components.format.form is filled in by the",
    "curriculum=replay +curriculum.groups=3": "curriculum.groups is filled in by the program",
    "history.least=3": "history.least and history.most",
    "model.lora={rnak:8}": "rank, alpha, dropout, targets",
    # values of another kind
    "optim.lr=abc": "optim.lr must be a number",
    "rules.max_turns=six": "rules.max_turns must be a whole number",
    "trainer.steps=1e9": "trainer.steps must be a whole number",
    "seed=null": "seed must be a whole number",
    "model.lora.rank=4": "model.lora is a single value",
    "model.lora=5": "model.lora must be a group of settings or null",
    "reward.components.win.weight=abc": "reward.components.win.weight must be a number",
    "model=untrained model.shape.layers=1.5": "model.shape.layers must be a whole number, not 1.5",
    "optim.lr=${seed.x}": "optim.lr",
    # parts that are missing
    "~reward": "reward must be given",
    "~rollout.num_generations": "rollout.num_generations must be given",
    # ranges
    "optim.lr=-1": "optim.lr must be 0..10",
    "optim.clip_grad_norm=nan": "optim.clip_grad_norm must be a number, not nan",
    "algorithm.clip_low=0": "algorithm.clip_low must be above 0",
    "rollout.groups=0": "rollout.groups must be 1..100000",
    "num_generations=8 rollout.games_at_once=7": "rollout.games_at_once must be 8 or more",
    "words.test=1.0": "words.test must be a whole number of at least 1, or a share",
    "words.train=9 words.protocol=all": "words.train is for words.protocol=split",
    "words.val=1": "words.val must hold out 2",
    "backend.threads=1.5": "backend.threads must be a whole number or auto, not 1.5",
    # impossible pairs
    "num_generations=1": "rollout.num_generations must be 2 or more",
    "algorithm=dpo num_generations=4 algorithm.pairs=3": "rollout.num_generations must be 6",
    "algorithm=rloo algorithm.scale=std": "algorithm.scale must be none",
    "algorithm=ppo algorithm.minibatches=65": "algorithm.minibatches must be at most",
    "algorithm=dapo algorithm.overlong=cut": "punish, filter, none",
    "algorithm.updates=2": "algorithm",
    "sampling.temperature=0": "sampling.temperature must be above 0 in training",
    "sampling.top_p=0.9": "sampling.top_p must be 1",
    "rollout.credit=game": "rollout.discount must be 1 with rollout.credit=game",
    "rules.hard_mode=true rules.invalid=accept": "rules.hard_mode",
    "sampling.max_tokens=512": "below model.max_context=512",
    "reward.components.win=null": "win",
    "model=untrained model.shape.heads=3": "model.shape.hidden_size must be a multiple",
    "model=untrained model.path=embedded/tiny": "model.shape is for model.path=untrained",
    "model=qwen3b model.lora.targets=[q_proj,lm_head]": "model.lora.targets must leave out lm_head",
    "model=qwen3b model.lora.targets='.*'": "model.lora.targets must leave out lm_head",
    "rollout=best_of algorithm=sft": "use rollout=game or rollout=turn",
    "rollout=turn algorithm=expert_iteration": "use rollout=game",
    "rollout=turn curriculum=replay": "curriculum=replay depends on how games end",
    "rollout.advance=best": "rollout.advance is not listed",
    "history=upto4 rules.max_turns=4": "history.most must be below rules.max_turns=4",
    "rules.hard_mode=true history=one history.player=entropy": "rules.hard_mode=true",
    "rules.hard_mode=true history=one history.player=entropy_allowed": "ignores clues",
    # files and folders that are not there, or are something else
    "words.answers=/no/such/file.txt": "/no/such/file.txt: no such file",
    "words.answers=README.md": "README.md: a word list must be a file whose name ends in .txt",
    "model.path=embedded/huge": "embedded/tiny",
    "model.path=train.py": "model.path=train.py is no model folder",
    "model.path=/no/such/model": "no such folder",
    "output_dir=train.py": "train.py",
    "resume=outputs/none": "outputs/none: no such run folder",
    "resume=train.py": "is a file, not a run folder",
    "resume=conf": "not a run folder (no manifest.json)",
    "init_from=outputs/none": "outputs/none: no such run folder",
    "init_checkpoint=last": "init_checkpoint needs init_from=",
    "init_checkpoint=first": "init_checkpoint must be one of best, last, start",
    "model=tiny init_from=outputs/none": "model and init_from exclude each other",
    "model.path=embedded/tiny init_from=conf": "model.path and init_from exclude each other",
    "allow_mismatch=maybe": "allow_mismatch must be true or false",
}  # fmt: skip


@pytest.mark.parametrize("line", TRAIN)
def test_training_with_wrong_settings_is_refused(line: str, refused) -> None:  # row 24
    assert TRAIN[line] in refused(training(line))


EVAL = {
    "player=oracle": "random_consistent",
    "player=5": "player must be text",
    "player=random sampling.temperature=-1": "sampling.temperature must be 0 (greedy)",
    "player=tree": "tree=",
    "player=tree tree=README.md": "README.md row 3",
    "tree=tree.txt": "tree=tree.txt: no such file",
    "opener=crance": "opener must be one of the allowed words",
    "player=tree tree=README.md opener=crane": "player=tree and opener exclude each other",
    "player=entropy opener=zzzzz": "opener must be one of the allowed words",
    "run=outputs/none": "outputs/none: no such run folder",
    "checkpoint=last": "checkpoint=last needs run=",
    "player=random model=tiny": "player and model exclude each other",
    "words.split=half": "train, val, test, all",
    "form=chat": "form must be one of conversation, fresh, tool",
    "samples=0": "samples must be 1..10000, not 0",
    "samples=2": "add sampling.temperature=1",  # a model's greedy games are all alike
    "time_limit=0": "time_limit must be above 0 seconds",
    "shots=-1": "shots must be 0..100, not -1",
    "shots=2 player=random": "player and shots exclude each other",
    "shots=90": "model.max_context",
    "shots=1 form=tool": "shots needs form=conversation or fresh",
    "history=upto4 opener=crane": "opener and history exclude each other",
    "history=upto4 player=tree tree=none.txt": "player=tree needs history=none",
    "history=upto4 history.most=6": "history.most must be below rules.max_turns=6",
    "player=random words.split=allowed "
    "words.answers=wordle_rl/words/original/answers.txt": "train, val, test or all",
    "time_limit=nan": "time_limit must be a number",
    "curriculum=phases": "there is no choice curriculum",
    "optim.lr=1": "there is no setting optim",
    "optim=adamw": "there is no setting optim",
    "model=qwen3b optim.lr=1": "there is no setting optim",
    "num_generations=4": "there is no setting num_generations",
    "~words": "words must be given",
}


@pytest.mark.parametrize("line", EVAL)
def test_evaluating_with_wrong_settings_is_refused(line: str, refused) -> None:
    assert EVAL[line] in refused(evaluation(line))


def latin(path: Path) -> None:
    path.write_bytes("crane\nélans\n".encode("latin-1"))


def large(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)  # takes no room on the disk


def many(path: Path) -> None:
    words = itertools.islice(itertools.product("abcdefgh", repeat=5), 32_000)
    path.write_text("\n".join(map("".join, words)))


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a folder": ("a.txt", Path.mkdir, "cannot be read (Is a directory)"),
    "a file of 2 GB": ("a.txt", lambda p: large(p, 2**31), "larger than 67,108,864 bytes"),
    "a binary file": ("a.txt", lambda p: p.write_bytes(bytes(range(256))), "row "),
    "not UTF-8": ("a.txt", latin, "row 2: not UTF-8"),
    "an empty file": ("a.txt", Path.touch, "no words in it"),
    "a long word": ("a.txt", lambda p: p.write_text("crane\nslates\n"), "row 2: 'slates' has 6"),
    "a word twice": (
        "a.txt",
        lambda p: p.write_text("crane\nCrane\n"),
        "row 2: 'crane' stands twice",
    ),
    "no such column": ("a.csv", lambda p: p.write_text("w,n\ncrane,1\n"), "one of w, n"),
    "no CSV": ("a.csv", lambda p: p.write_text('word\n"cra'), "row 2: not CSV"),
    "too many words": (
        "a.txt",
        many,
        "32,000 possible secrets and 32,000 allowed words are too many",
    ),
    "too few words": ("a.txt", lambda p: p.write_text("crane\nslate\n"), "leave a secret"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_word_list_that_cannot_be_used_is_named(kind: str, tmp_path: Path, refused) -> None:
    name, make, told = FILES[kind]
    make(tmp_path / name)
    column = "words.column=word" if name == "a.csv" else ""
    line = refused(training(f"words.answers={tmp_path / name} {column}"))
    named = f"words.answers={tmp_path / name}"
    assert told in line and (kind.startswith("too ") or named in line)


EVIL = [  # classes and functions that do something when they are called, or are of another kind
    "os.system", "subprocess.Popen", "builtins.eval", "builtins.open", "pathlib.Path.unlink",
    "pathlib.Path", "wordle_rl.words.lists.Path", "wordle_rl.commands.train.train",
    "wordle_rl.runs.errors.os.system", "wordle_rl.backends.torch.load.load_model",
    "wordle_rl.game.rules.Game", "wordle_rl.runs.errors",
    "wordle_rl.words.splits.WordSettings", "wordle_rl.rewards.win.Win", "", None, 5,
]  # fmt: skip


@pytest.fixture(scope="module")
def config() -> dict:
    return resolve(composed())


@pytest.mark.parametrize("target", EVIL)
@pytest.mark.parametrize("key", ["optim", "algorithm", "model.lora"])
def test_a_target_that_is_no_component_of_the_right_kind_is_never_called(
    target: object, key: str, config: dict, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    node = {"_target_": target, "file": str(file), "mode": "w"}
    changed = {"model": {**config["model"], "lora": node}} if key == "model.lora" else {key: node}
    with pytest.raises(ConfigError, match=rf"{key}\._target_ must be "):
        build_experiment({**config, **changed})
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train.py modle=tiny", "did you mean model?"),
        ("train.py --lr=5", "unrecognized arguments: --lr=5; settings are given as key=value"),
        ("train.py --config-name other", "other"),
        ("train.py num_generations=1", "rollout.num_generations"),
        ("eval.py player=oracle", "random_consistent"),
    ],
)
def test_a_command_with_wrong_input_prints_one_line_and_exits_with_2(line: str, told: str) -> None:
    done, _ = command(*line.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ") and told in done.stderr


@pytest.mark.parametrize("line", ["train.py --help", "train.py --cfg job", "eval.py --help"])
def test_help_and_config_are_shown_without_heavy_imports(line: str) -> None:
    _, alone = command("-X", "importtime", "-c", "import hydra.main")
    done, seconds = command("-X", "importtime", *line.split(), "model=qwen1.5b")
    imported = {name.split("|")[-1].strip().partition(".")[0] for name in done.stderr.splitlines()}
    assert done.returncode == 0 and "Qwen/Qwen2.5-1.5B-Instruct" in done.stdout
    assert "hydra" in imported and not imported & HEAVY
    assert seconds < 10 * alone
