"""A run becomes an embedded model: its record, its card, and what it may be the start of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers import runs
from tests.helpers.commands import trained, training
from tests.helpers.configs import composed
from wordle_rl import embed
from wordle_rl.backends.torch.load import load_model
from wordle_rl.build import build_experiment, resolve
from wordle_rl.policy.settings import ModelSettings
from wordle_rl.policy.stages import RECORD, stages_of
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT

pytestmark = pytest.mark.usefixtures("quiet")

CLEAN = "No test secret was ever the secret of a training game."
OLD = {"run", "protocol", "digests", "prompt", "form"}  # of a stage of an earlier version


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twenty answers among forty allowed words, so that games are quick."""
    folder = tmp_path_factory.mktemp("lists")
    answers = (ROOT / "wordle_rl/words/original/answers.txt").read_text().split()[::50][:40]
    (folder / "allowed.txt").write_text("\n".join(answers))
    (folder / "answers.txt").write_text("\n".join(answers[::2]))
    return f"words=custom words.answers={folder}/answers.txt words.allowed={folder}/allowed.txt"


@pytest.fixture(scope="module")
def taught(lists: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second stage of imitation, of allowed words; its teacher is careless."""
    root = tmp_path_factory.mktemp("runs")
    line = (
        f"{lists} words.protocol=allowed algorithm=distill trainer.steps=1 "
        "algorithm.player=random_consistent_allowed"
    )
    first = trained(root / "first", f"{line} name=make_tiny_1")
    training(
        f"init_from={first} init_checkpoint=last {line} name=make_tiny_2 output_dir={root}/second "
        "algorithm.careless=0.5 "
        "num_generations=1 words.test=6 words.val=6 rollout.groups=4 backend.precision=fp32 "
        "backend.accelerator=cpu backend.threads=1 logger=none trainer.report=false "
        "trainer.show_games=0 trainer.validate_every=9"
    )()
    [second] = (root / "second").iterdir()
    return second


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(embed, "EMBEDDED", tmp_path)
    return tmp_path / "tiny"


def embedded(run: Path, name: str = "tiny") -> str:
    return embed.embed(RunFolder.open(run), name, last=True)


def rows_of(card: str) -> list[list[str]]:
    """The cells of the table of stages."""
    table = card.partition("| stage |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_card_and_the_record_name_each_stage(taught: Path, folder: Path):
    card = embedded(taught)
    assert card == (folder / "README.md").read_text()
    teacher = "`random_consistent_allowed`: a random allowed word that fits all clues"
    assert rows_of(card) == [
        ["make_tiny_1", "28 allowed words", "`distill`", teacher],
        [
            "make_tiny_2",
            "28 allowed words",
            "`distill`",
            teacher + "; any word in 50% of its guesses",
        ],
    ]
    assert CLEAN in " ".join(card.split()) and "imitation only" in card
    assert "2,315" not in card
    stages = stages_of(folder)
    assert [stage["embedded"] for stage in stages] == ["tiny", "tiny"]
    assert [stage.get("careless") for stage in stages] == [None, 0.5]
    assert [{k: v for k, v in s.items() if k != "embedded"} for s in stages] == stages_of(
        taught / "model"
    )


def test_a_run_of_reinforcement_keeps_the_stages_before_it(
    taught: Path, folder: Path, lists: str, tmp_path: Path
):  # row 38
    embedded(taught)
    training(
        f"{lists} model.path={folder} words.test=6 words.val=6 rollout.groups=2 num_generations=2 "
        "backend.accelerator=cpu backend.precision=fp32 backend.threads=1 logger=none "
        "trainer.show_games=0 trainer.steps=1 trainer.validate_every=9 trainer.report=false "
        f"name=clean output_dir={tmp_path}/runs"
    )()
    [run] = (tmp_path / "runs").iterdir()
    card = embedded(run, "lexicon_clean")
    assert rows_of(card)[2] == ["clean", "8 training answers", "`grpo`", "-"]
    assert "Reinforcement learning was its last stage" in card and "imitation only" not in card
    assert CLEAN in " ".join(card.split())
    stages = stages_of(tmp_path / "lexicon_clean")
    assert [stage["embedded"] for stage in stages] == ["tiny", "tiny", "lexicon_clean"]


def test_of_a_run_with_lora_the_adapter_alone_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "EMBEDDED", tmp_path / "embedded")
    (tmp_path / "runs").mkdir()
    given = [*runs.settings(tmp_path, "sft"), "model.lora={rank: 4, alpha: 8}", "trainer.steps=1"]
    _, run = runs.run(tmp_path / "runs", *given, "trainer.report=false")
    card = embedded(run, "smollm2_sft")
    folder = tmp_path / "embedded" / "smollm2_sft"
    files = {"README.md", RECORD, "adapter_config.json", "adapter_model.safetensors"}
    assert {path.name for path in folder.iterdir()} == files
    weights = sum(w.numel() for w in load_file(folder / "adapter_model.safetensors").values())
    assert f"A LoRA adapter of {weights:,} weights for" in card
    assert f"for {tmp_path / 'base'}, of rank 4, that plays Wordle, a little" in card
    assert "license: unknown" in card and "Tokenizer: the base's." in card
    last = CheckpointStore(RunFolder.open(run).checkpoints, read_only=True).latest()
    assert last is not None
    trained = load_file(last / "model" / "adapter_model.safetensors")
    halved = load_file(folder / "adapter_model.safetensors")
    assert trained.keys() == halved.keys()
    for name, weight in trained.items():
        assert torch.equal(halved[name], weight.to(torch.bfloat16))
    settings = ModelSettings(
        name="taught", path=str(folder), learning_rate=1.0, max_tokens=8, max_context=64
    )
    model, tokenizer = load_model(settings, precision="fp32", device="cpu")
    assert model.peft_config["default"].r == 4 and len(tokenizer.inner) > 100


def test_an_embedded_model_is_a_start_for_any_prompt_form_and_lists(
    taught: Path, folder: Path, lists: str, refused: Callable
):
    embedded(taught)
    for line in ("words.test=20 words.val=20", f"{lists} words.test=3 words.val=3"):
        for choice in ("prompt=letters", "rollout.form=fresh"):
            given = (f"{line} {choice} model.path={folder}").split()
            assert build_experiment(resolve(composed(*given))).test
    # One more held-out secret of its own lists was a training secret of its games.
    told = refused(training(f"{lists} words.test=7 words.val=6 model.path={folder}"))
    assert "make_tiny_1" in told and "words.protocol=all" in told
