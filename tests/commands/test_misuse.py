"""Wrong input ends in one line that says what is allowed, with exit code 2, and nothing is lost."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.test_configs import OPTIONS, composed
from tests.helpers.marks import half_slow
from wordle_rl import cli
from wordle_rl.build import build_experiment, resolve
from wordle_rl.evaluate import evaluate
from wordle_rl.policy.stages import stages_of
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.errors import full_disk_told
from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.train import train

HEAVY = {"torch", "lightning", "transformers", "peft", "safetensors", "tensorboard", "matplotlib"}


def training(line: str) -> Callable[[], object]:
    """What `python train.py <line>` does."""
    overrides = shlex.split(line)
    return lambda: train(composed(*overrides), [cli.quoted(o) for o in overrides])


def evaluation(line: str) -> Callable[[], object]:
    overrides = shlex.split(line)
    return lambda: evaluate(composed(*overrides, name="eval"), overrides)


def one_of(group: str) -> str:
    return f"{group} must be one of {', '.join(OPTIONS[group])}, not"


TRAIN = {
    # typos
    "modle=tiny": "did you mean model?",
    "model=no_such": one_of("model"),
    "model=gemma4b-mlx backend=lightning": "model=gemma4b-mlx needs backend=mlx",
    "backend=mlx backend.precision=fp16": "backend.precision must be one of auto, fp32, bf16",
    "backend=mlx backend.micro_batch_tokens=0": "backend.micro_batch_tokens must be 1",
    "backend=mlx backend.cache_gb=-1": "backend.cache_gb must be 0",
    "backend=mlx backend.devices=2": "backend.devices",
    "backend=mlx +backend.threads=1": "cache_gb",  # which is Lightning's, so those of MLX are named
    "backend=mlx algorithm=gpro": one_of("algorithm"),
    "backend=mlx optim.lrr=1": "did you mean optim.lr?",
    "model=": "model must be one of",
    "optim.lrr=1": "did you mean optim.lr?",
    "optim.lr.max=1": "optim.lr is a single value",
    "+foo=1": "there is no setting foo",
    "+optim.foo=1": "clip_grad_norm",
    "curriculum=no_such": one_of("curriculum"),
    "curriculum=phases reward=phase1": "curriculum.first must differ from reward=",
    "curriculum=linear reward=phase1_seed": "reward.lawful and curriculum.first.lawful",
    "curriculum=linear reward.components.win.speed=0.5": "win must have the same settings",
    "curriculum=phases curriculum.epochs=0": "curriculum.epochs must be above 0",
    "curriculum=gated curriculum.threshold=90": "curriculum.threshold must be above 0, up to 1",
    "curriculum=replay rollout.groups=2": "curriculum.share must be 0.5 or more",
    "algorithm=sft algorithm.reasoning=long": "one of none, notes, brief, full, not 'long'",
    "algorithm=distill algorithm.reasoning=notes": "set prompt.think=true",
    "curriculum=replay algorithm=sft": "curriculum must be none with an algorithm that imitates",
    "curriculum=phases curriculum.first.components.win.weight=x": "curriculum.first.components.win",
    "trainer.memory_limit_gb=0": "trainer.memory_limit_gb must be above 0",
    "trainer.tree=README.md": "README.md row 3",
    "seed": "key=value",
    "optim.lr==1": "key=value",
    "model.path=~/models": "quotes",
    "words.preset=nyt": "original",
    "rules.invalid=shout": "lose_turn",
    "words.protocol=both": "split, all",
    "algorithm=sft algorithm.player=oracle": "random_consistent",
    "experiment=smoke,warm_start": "-m",
    "rollout=no_such": one_of("rollout"),
    "rollout.form=chat": "rollout.form must be one of conversation, fresh, tool",
    "rollout=best_of rollout.advance=worst": "rollout.advance must be one of best, sampled",
    "reward.components.win.turns=2": "there is no setting reward.components.win.turns",
    "model.seed=1": "only what is listed there can be overridden: list it, or write +model.seed=",
    "+reward.components.format.form=tool": "reward.components.format.form is filled in by the",
    "curriculum=replay +curriculum.groups=3": "curriculum.groups is filled in by the program",
    "history=no_such": one_of("history"),
    "history=one history.player=oracle": "random_consistent_allowed, entropy, top_openers",
    "history.least=3": "history.least and history.most",
    "num_generations=3": "rollout.num_generations",
    "model.lora={rnak:8}": "rank, alpha, dropout, targets",
    # values of another kind
    "optim.lr=abc": "optim.lr must be a number",
    "optim.lr=true": "optim.lr must be a number",
    "rules.max_turns=six": "rules.max_turns must be a whole number",
    "trainer.steps=1e9": "trainer.steps must be a whole number",
    "seed=null": "seed must be a whole number",
    "name=[a]": "name must be text",
    "words.answers=false": "words.answers must be text or null",
    "model=null": "model must be one of",
    "model=[tiny,qwen3b]": "model must be one of",
    "optim=adam": "optim must be a group of settings",
    "model.lora=5": "model.lora must be a group of settings or null",
    "reward.components=5": "reward.components must be a group",
    "+reward.components.foo=5": "reward.components.foo",
    "reward.components.win.weight=abc": "reward.components.win.weight must be a number",
    "model=untrained model.shape.layers=1.5": "model.shape must be names with a whole number",
    "optim.lr=${seed.x}": "optim.lr",
    # parts that are missing
    "~reward": "reward must be given",
    "~rollout.num_generations": "rollout.num_generations must be given",
    "words=custom": "words.answers must be given",
    # ranges
    "optim.lr=-1": "optim.lr must be 0..10",
    "optim.clip_grad_norm=nan": "optim.clip_grad_norm must be a number, not nan",
    "algorithm.beta=inf": "algorithm.beta must be a number, not inf",
    "algorithm.clip_low=0": "algorithm.clip_low must be above 0",
    "sampling.temperature=1e-9": "0.01..10",
    "rollout.groups=0": "rollout.groups must be 1..100000",
    "trainer.validation_temperature=11": "trainer.validation_temperature",
    "reward.components.win.weight=-1": "win",
    "words.test=5000": "words.test + words.val must leave a secret",
    "words.test=1.0": "words.test must be a whole number of at least 1, or a share",
    "words.train=0": "words.train must be 1..",
    "words.train=9 words.protocol=all": "words.train is for words.protocol=split",
    "words.val=1": "words.val must hold out 2",
    "seed=99999999999999999999": "seed must be a whole number from 0 to below 2**63",
    "backend.precision=fp8": "backend.precision must be one of auto, fp32, bf16, not 'fp8'",
    "backend.threads=0": "backend.threads must be auto or 1..1024, not 0",
    "backend.threads=2000": "backend.threads must be auto or 1..1024, not 2000",
    "backend.threads=all": "backend.threads must be a whole number or auto, not 'all'",
    "backend.threads=1.5": "backend.threads must be a whole number or auto, not 1.5",
    # impossible pairs
    "num_generations=1": "rollout.num_generations must be 2 or more",
    "algorithm=dpo num_generations=1": "rollout.num_generations must be 2 or more",
    "algorithm=dpo num_generations=4 algorithm.pairs=3": "rollout.num_generations must be 6",
    "algorithm=rloo num_generations=1": "rollout.num_generations must be 2 or more",
    "algorithm=rloo algorithm.scale=std": "algorithm.scale must be none",
    "algorithm=ppo algorithm.minibatches=65": "algorithm.minibatches must be at most",
    "algorithm=dapo algorithm.overlong=cut": "punish, filter, none",
    "algorithm=no_such": one_of("algorithm"),
    "algorithm.updates=2": "algorithm",
    "sampling=greedy": "sampling.temperature must be above 0 in training",
    "sampling.top_p=0.9": "sampling.top_p must be 1",
    "rollout.credit=game": "rollout.discount must be 1 with rollout.credit=game",
    "rules=hard rules.invalid=accept": "rules.hard_mode",
    "sampling.max_tokens=512": "below model.max_context=512",
    "reward.components.win=null": "win",
    "words.column=word": "words.column needs words.answers",
    "model=untrained model.shape.heads=3": "model.shape.hidden_size must be a multiple",
    "model=untrained model.shape.kv_heads=3": "model.shape.heads must be a multiple",
    "model=untrained model.path=embedded/tiny": "model.shape is for model.path=untrained",
    "model=qwen3b model.lora.targets=[q_proj,lm_head]": "model.lora.targets must leave out lm_head",
    "model=qwen3b model.lora.targets='.*'": "model.lora.targets must leave out lm_head",
    "model.lora={targets:[]}": "model.lora.targets",
    "rollout=best_of algorithm=sft": "use rollout=game or rollout=turn",
    "rollout=best_of algorithm=dapo": "algorithm.resample must be 0",
    "rollout=best_of algorithm=expert_iteration": "use rollout=game",
    "rollout=turn algorithm=expert_iteration": "use rollout=game",
    "rollout=turn curriculum=replay": "curriculum=replay depends on how games end",
    "rollout.advance=best": "it is for rollout=best_of",
    "history=upto4 rules.max_turns=4": "history.most must be below rules.max_turns=4",
    "rules=hard history=one history.player=entropy": "rules.hard_mode=true",
    # files and folders that are not there, or are something else
    "words.answers=/no/such/file.txt": "/no/such/file.txt: no such file",
    "words.answers=README.md": "README.md: a word list must be a file whose name ends in .txt",
    "model.path=embedded/huge": "embedded/tiny",
    "model.path=train.py": "model.path=train.py is no model folder",
    "model.path=conf": "config.json",
    "model.path=/no/such/model": "no such folder",
    "output_dir=train.py": "train.py",
    "resume=outputs/none": "outputs/none: no such run folder",
    "resume=train.py": "is a file, not a run folder",
    "resume=conf": "not a run folder (no manifest.json)",
    "resume=5": "no such run folder",
    "init_from=outputs/none": "outputs/none: no such run folder",
    "init_from=conf": "not a run folder (no manifest.json)",
    "init_checkpoint=last": "init_checkpoint needs init_from=",
    "init_checkpoint=first": "init_checkpoint must be one of best, last, start",
    "model=tiny init_from=outputs/none": "model and init_from exclude each other",
    "model.path=embedded/tiny init_from=conf": "model.path and init_from exclude each other",
    "experiment=warm_start_more": "init_from must be given",
    "allow_mismatch=maybe": "allow_mismatch must be true or false",
}  # fmt: skip


@pytest.mark.parametrize("line", half_slow(TRAIN))
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
    "time_limit=nan": "time_limit must be a number",
    "curriculum=phases": "there is no choice curriculum",
    "optim.lr=1": "there is no setting optim",
    "~words": "words must be given",
}


@pytest.mark.parametrize("line", EVAL)
def test_evaluating_with_wrong_settings_is_refused(line: str, refused) -> None:
    assert EVAL[line] in refused(evaluation(line))


EVIL = [  # classes and functions that do something when they are called, or are of another kind
    "os.system", "subprocess.Popen", "builtins.eval", "builtins.open", "pathlib.Path.unlink",
    "pathlib.Path", "wordle_rl.words.lists.Path", "wordle_rl.train.train",
    "wordle_rl.cli.os.system", "wordle_rl.backends.torch.load.load_model",
    "wordle_rl.game.rules.Game", "wordle_rl.runs.checks",
    "wordle_rl.words.settings.WordSettings", "wordle_rl.rewards.win.Win", "", None, 5,
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


def latin(path: Path) -> None:
    path.write_bytes("crane\nélans\n".encode("latin-1"))


def large(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)  # takes no room on the disk


def many(path: Path) -> None:
    words = itertools.islice(itertools.product("abcdefgh", repeat=5), 32_000)
    path.write_text("\n".join(map("".join, words)))


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a folder": ("a.txt", Path.mkdir, "is a folder, not a file"),
    "a pipe": ("a.txt", os.mkfifo, "is a pipe, not a file"),
    "a device": ("a.txt", lambda p: p.symlink_to("/dev/zero"), "is a device, not a file"),
    "a file of 2 GB": ("a.txt", lambda p: large(p, 2**31), "has 2,048 MB, and at most 64 MB"),
    "a binary file": ("a.txt", lambda p: p.write_bytes(bytes(range(256))), "row "),
    "a file in a file": ("a.txt/b.txt", lambda p: p.parent.touch(), "(Not a directory)"),
    "a link to nothing": ("a.txt", lambda p: p.symlink_to("nothing.txt"), "no such file"),
    "not UTF-8": ("a.txt", latin, "row 2: not UTF-8"),
    "an empty file": ("a.txt", Path.touch, "no words in it"),
    "a long word": ("a.txt", lambda p: p.write_text("crane\nslates\n"), "row 2: 'slates' has 6"),
    "a word twice": ("a.txt", lambda p: p.write_text("crane\nCrane\n"), "rows 1 and 2"),
    "no such column": ("a.csv", lambda p: p.write_text("w,n\ncrane,1\n"), "one of 'w', 'n'"),
    "no CSV": ("a.csv", lambda p: p.write_text('word\n"cra'), "row 2: not CSV"),
    "too many words": ("a.txt", many, "32,000 answers and 32,000 allowed words are too many"),
    "too few words": ("a.txt", lambda p: p.write_text("crane\nslate\n"), "leave a secret"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_word_list_that_cannot_be_used_is_named(kind: str, tmp_path: Path, refused) -> None:
    name, make, told = FILES[kind]
    make(tmp_path / name)
    column = "words.column=word" if name == "a.csv" else ""
    line = refused(training(f"words=custom words.answers={tmp_path / name} {column}"))
    named = f"words.answers={tmp_path / name}"
    assert told in line and (kind == "too few words" or named in line)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_word_list_that_may_not_be_read_is_named(tmp_path: Path, refused) -> None:
    (tmp_path / "a.txt").touch(0)
    line = refused(training(f"words=custom words.answers={tmp_path / 'a.txt'}"))
    assert f"words.answers={tmp_path / 'a.txt'}: cannot be read (Permission denied)" in line


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a device", "a file of 2 GB"])
@pytest.mark.parametrize("setting", ["trainer.tree", "tree", "player=tree tree", "words.allowed"])
def test_so_is_every_other_file_that_is_read(
    setting: str, kind: str, tmp_path: Path, refused
) -> None:
    name, make, told = FILES[kind]
    make(tmp_path / name)
    (tmp_path / "b.txt").write_text("crane\n")
    command = training if setting.startswith("trainer") else evaluation
    beside = f"words.answers={tmp_path / 'b.txt'}" if setting == "words.allowed" else ""
    line = refused(command(f"{setting}={tmp_path / name} {beside}"))
    assert f"{setting.split()[-1]}={tmp_path / name}: " in line and told in line


SMALL = (
    "model=untrained model.shape='{hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, "
    "intermediate_size: 64}' algorithm=sft num_generations=1 words.test=6 words.val=6 "
    "rollout.groups=4 backend.precision=fp32 backend.accelerator=cpu backend.threads=1 logger=none "
    "trainer.report=false trainer.show_games=0 trainer.validate_every=9 trainer.checkpoint_every=1 "
    "trainer.steps=2 name=small"
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="lightning|transformers")
        yield


def trained(root: Path, line: str = "") -> Path:
    root.mkdir(exist_ok=True)
    training(f"{SMALL} output_dir={root} {line}")()
    [folder] = root.iterdir()
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run folder with checkpoints of steps 0, 1 and 2, trained on split words."""
    return trained(tmp_path_factory.mktemp("runs") / "split")


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    """A run of a wider model, trained on all words."""
    line = "model.shape.hidden_size=64 words.protocol=all trainer.steps=1"
    return trained(tmp_path_factory.mktemp("runs") / "all", line)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may spoil."""
    return shutil.copytree(finished, tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which lists every attempt to resume, and the lock."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.parent != folder]
    files += [p for p in folder.glob("*.*") if p.is_file() and p.name != "manifest.json"]
    return {str(p): p.read_bytes() for p in files if p.name != ".lock"}


def test_a_run_folder_in_use_is_not_resumed_but_can_be_evaluated(
    run: Path, tmp_path: Path, refused
) -> None:
    before, manifest = contents(run), (run / "manifest.json").read_bytes()
    with RunFolder.open(run).lock():
        told = refused(training(f"resume={run} trainer.steps=3"))
        assert str(run) in told and str(os.getpid()) in told
        evaluation(f"run={run} output_dir={tmp_path} compare=false limit=2 backend.threads=1")()
    assert contents(run) == before and (run / "manifest.json").read_bytes() == manifest


KEPT = {
    "model=qwen3b": "keeps model",
    "model.path=embedded/tiny": "keeps model",
    "words.protocol=all": "words",
    "words.test=5": "words",
    "prompt.think=true": "prompt",
    "rollout.form=fresh": "rollout.form",
    "output_dir=elsewhere": "output_dir",
    "init_from=conf": "init_from",
    "init_checkpoint=last": "init_checkpoint",
    "reward=phase2": "single values",
    "+optim.foo=1": "+optim.foo=1",
    "optim.foo=1": "optim.foo",
    "optim.lr='[1'": "optim.lr",
    "trainer.steps=0": "trainer.steps must be 1..",
    "trainer.steps=1": "trainer.steps must be 2 or more, because 2 are done, not 1",
}


@pytest.mark.parametrize("line", KEPT)
def test_a_resumed_run_stays_the_same_run(line: str, finished: Path, refused) -> None:
    before = contents(finished)
    given = ["resume=" + str(finished), line]
    config = composed(given[0])
    assert KEPT[line] in refused(lambda: train(config, given))
    assert contents(finished) == before


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "config.yaml is not YAML": (lambda r: (r / "config.yaml").write_text("a: [1"), "YAML"),
    "config.yaml is not text": (lambda r: (r / "config.yaml").write_bytes(b"\xff\xfe\x00"), "YAML"),
    "config.yaml is a list": (lambda r: (r / "config.yaml").write_text("- 1\n"), "config.yaml"),
    "config.yaml is a folder": (
        lambda r: ((r / "config.yaml").unlink(), (r / "config.yaml").mkdir()),
        "config.yaml is missing",
    ),
    "config.yaml has an evil target": (
        lambda r: (r / "config.yaml").write_text(
            (r / "config.yaml").read_text().replace("wordle_rl.policy.optim.Optim", "os.system")
        ),
        "optim._target_",
    ),
    "manifest.json is not JSON": (lambda r: (r / "manifest.json").write_text("{"), "not JSON"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_run_folder_is_named(kind: str, run: Path, refused) -> None:
    spoil, told = SPOILT[kind]
    spoil(run)
    before = contents(run)
    line = refused(training(f"resume={run}"))
    assert told in line and ("_target_" in told or str(run) in line)
    assert contents(run) == before


@pytest.mark.parametrize("part", ["model", "checkpoints/step_000002/model"])
def test_a_run_on_all_words_is_not_gone_on_from_with_split_words(
    part: str, other: Path, refused
) -> None:
    model = f"words.test=6 words.val=6 model.path={other / part}"
    line = refused(training(model.replace("step_000002", "step_000001")))
    assert str(other) in line and "words.protocol=all" in line
    start = model.replace("step_000002", "step_000001")
    assert build_experiment(resolve(composed(*start.split(), "words.protocol=all"))).test


@pytest.mark.parametrize("part", ["model", "checkpoints/step_000001/model"])
def test_a_copied_model_still_says_what_it_was_trained_on(
    part: str, other: Path, tmp_path: Path, refused
) -> None:
    model = shutil.copytree(other / part, tmp_path / "elsewhere" / "m")
    line = f"words.test=6 words.val=6 model.path={model}"
    told = refused(training(line))
    assert str(model) in told and other.name in told and "words.protocol=all" in told
    assert build_experiment(resolve(composed(*line.split(), "words.protocol=all"))).test
    assert "prompt=letters: not symbols" in refused(
        training(f"{line} words.protocol=all prompt=letters")
    )


def test_a_run_of_an_earlier_version_says_it_by_its_manifest(
    other: Path, tmp_path: Path, refused
) -> None:
    run = shutil.copytree(other, tmp_path / "run")
    for record in run.rglob("wordle_rl.json"):
        record.unlink()
    line = f"words.test=6 words.val=6 model.path={run / 'model'}"
    assert "words.protocol=all" in refused(training(line))


def test_a_model_that_no_run_made_is_taken_as_it_is(finished: Path, tmp_path: Path) -> None:
    model = shutil.copytree(finished / "model", tmp_path / "m")
    (model / "wordle_rl.json").unlink()
    assert build_experiment(resolve(composed("words.test=7", f"model.path={model}"))).test


def test_a_run_that_says_it_began_with_its_own_model_has_one_stage(run: Path) -> None:
    manifest = RunFolder(run).manifest()
    (run / "model" / "wordle_rl.json").unlink()
    write_json(run / "manifest.json", manifest | {"model": str(run / "model")})
    assert [stage["run"] for stage in stages_of(run / "model")] == ["run"]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"stages": []}', '{"stages": [{}]}', '{"stages": 5}',
        '{"stages": [{"run": "a", "digests": []}]}', '{"stages": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
    ids=range(8),
)  # fmt: skip
def test_a_broken_record_of_a_model_is_named(
    text: str, finished: Path, tmp_path: Path, refused
) -> None:
    model = shutil.copytree(finished / "model", tmp_path / "m")
    (model / "wordle_rl.json").write_text(text)
    line = refused(training(f"model.path={model}"))
    assert f"{model / 'wordle_rl.json'}" in line and "list the runs that made the model" in line


def test_a_run_is_gone_on_from_with_the_same_split_only(finished: Path, refused) -> None:
    model = f"model.path={finished / 'model'} words.val=6"
    assert "words.protocol" in refused(training(f"{model} words.test=7"))
    assert len(build_experiment(resolve(composed(*model.split(), "words.test=6"))).test) == 6


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(damage, run: Path) -> None:
    damage(run / "checkpoints" / "step_000002" / "model" / "model.safetensors")
    with pytest.warns(UserWarning, match=r"step_000002.*going on from step_000001"):
        training(f"resume={run} trainer.steps=3")()
    assert [record["step"] for record in StepLog(run / "metrics.jsonl").read()] == [0, 1, 2, 3]


def test_without_any_whole_checkpoint_nothing_is_touched(run: Path, refused) -> None:
    for path in run.glob("checkpoints/step_*/optimizer.pt"):
        cut(path)
    before = contents(run)
    assert "step_000002/optimizer.pt" in refused(training(f"resume={run} trainer.steps=3"))
    assert "optimizer.pt" in refused(evaluation(f"run={run} output_dir={run.parent}"))
    assert contents(run) == before


def test_a_checkpoint_of_another_model_is_refused(run: Path, other: Path, refused) -> None:
    shutil.rmtree(run / "checkpoints" / "step_000002")
    theirs = shutil.copytree(other / "checkpoints" / "step_000001", run / "checkpoints/step_000001",
                             dirs_exist_ok=True)  # fmt: skip
    (run / "checkpoints" / "last").write_text("step_000001\n")
    before = contents(run)
    line = refused(training(f"resume={run} trainer.steps=3"))
    assert f"{theirs}/model/model.safetensors belongs to another model" in line
    assert contents(run) == before


def test_weights_that_are_not_the_ones_of_the_config_are_refused(run: Path, refused) -> None:
    from safetensors.torch import load_file, save_file

    file = run / "model" / "model.safetensors"
    weights = load_file(file)
    save_file({n: w for n, w in weights.items() if "layers.1.mlp" not in n}, file, {"format": "pt"})
    line = refused(evaluation(f"model.path={run / 'model'} output_dir={run.parent}"))
    assert f"model.path={run / 'model'} lacks 3 of the weights" in line


MODELS = {
    "model.lora='{targets: [q_proj, k_prj]}'": "k_proj, o_proj",
    "model.lora='{targets: \".*_prj\"}'": "k_proj, o_proj",
    "model.max_context=16": "model.max_context must be 20 or more",
    "form=tool": "rollout.form=tool needs a model whose chat template has tools",
    "backend.accelerator=mps": "auto, cpu",
}


@pytest.mark.parametrize("line", MODELS)
def test_what_only_the_model_can_tell_is_told_in_one_line_too(
    line: str, tmp_path: Path, refused
) -> None:
    assert MODELS[line] in refused(evaluation(f"{line} output_dir={tmp_path}"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_model_folder_with_a_torn_file_is_named(name: str, run: Path, refused) -> None:
    cut(run / "model" / name)
    line = refused(evaluation(f"model.path={run / 'model'} output_dir={run.parent}"))
    assert f"model.path={run / 'model'} cannot be loaded" in line
    (run / "model" / "model.safetensors").unlink()
    line = refused(evaluation(f"model.path={run / 'model'} output_dir={run.parent}"))
    assert f"model.path={run / 'model'} is no model folder" in line


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond size bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "metrics": ("metrics.jsonl", lambda r: StepLog(r / "metrics.jsonl").append(
        3, {"a": "a" * 9999})),
    "summary": ("summary.json", lambda r: write_json(r / "summary.json", {"a": "a" * 9999})),
    "manifest": ("manifest.json", lambda r: RunFolder(r).note_resume(
        step=3, command=["a" * 9999], changes={})),
    "checkpoint": ("checkpoints/step_000002", lambda r: CheckpointStore(r / "checkpoints").save(
        2, lambda folder: (folder / "state.json").write_text("a" * 9999) and None)),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_leaves_what_was_there(kind: str, run: Path, refused) -> None:
    name, write = WRITERS[kind]
    before = contents(run)
    with largest_file((run / "metrics.jsonl").stat().st_size):
        line = refused(full_disk_told()(lambda: write(run)))
    assert f"{run / name}: File too large; make room" in line
    assert json.loads((run / "manifest.json").read_text())["status"] == "finished"
    StepLog(run / "metrics.jsonl").truncate_after(2)  # a torn last line, as the next start does
    assert contents(run) == before
    assert CheckpointStore(run / "checkpoints", read_only=True).load_latest().step == 2


def test_a_run_that_filled_the_disk_goes_on_when_there_is_room(run: Path, refused) -> None:
    whole = contents(run / "checkpoints")
    weights = (run / "model" / "model.safetensors").stat().st_size
    with largest_file(weights + 1000):  # enough for the weights, not for the optimiser's state
        line = refused(training(f"resume={run} trainer.steps=3"))
    assert "checkpoints/step_000003: File too large" in line and "resume=" in line
    assert contents(run / "checkpoints") == whole
    training(f"resume={run} trainer.steps=3")()
    assert [record["step"] for record in StepLog(run / "metrics.jsonl").read()] == [0, 1, 2, 3]


def command(*arguments: str, **options: object) -> tuple[subprocess.CompletedProcess, float]:
    """A command as a user types it, and the seconds of processor that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


@pytest.mark.slow
def test_a_command_that_fills_the_disk_prints_one_line_and_exits_with_2(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    words = [f"output_dir={tmp_path}", *shlex.split(SMALL)]
    done, _ = command("train.py", *words, preexec_fn=limit)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "checkpoints/step_000000: File too large" in done.stderr


@pytest.mark.parametrize("line", ["train.py --help", "train.py --cfg job", "eval.py --help"])
def test_help_and_config_are_shown_without_heavy_imports(line: str) -> None:
    _, alone = command("-X", "importtime", "-c", "import hydra.main")
    done, seconds = command("-X", "importtime", *line.split(), "model=qwen1.5b")
    imported = {name.split("|")[-1].strip().partition(".")[0] for name in done.stderr.splitlines()}
    assert done.returncode == 0 and "Qwen/Qwen2.5-1.5B-Instruct" in done.stdout
    assert "hydra" in imported and not imported & HEAVY
    assert seconds < 10 * alone
