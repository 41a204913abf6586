"""The training command as a user runs it, on models small enough for a test."""

import itertools
import json
import re
import shutil
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from research.make_models import TINY
from tests.helpers.commands import error_of
from tests.helpers.configs import composed
from tests.helpers.runs import resume, without_clock
from wordle_rl.backends import loggers
from wordle_rl.commands.train import train
from wordle_rl.runs.config import read_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.experiment import LoggerSettings
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

pytestmark = pytest.mark.usefixtures("quiet")

SMALL = [
    "model.shape={hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate_size: 64}",
    "words.test=12",
    "words.val=12",
    "rollout.groups=4",
    "backend.precision=fp32",
    "backend.threads=1",
    "logger=none",
    "trainer.games_every=2",
]
SFT_SETTINGS = [*TINY.split(), "words.protocol=split", *SMALL]
RL_SETTINGS = [
    "model=untrained",
    "sampling.temperature=0.7",
    "algorithm.beta=0.04",
    "reward=phase1",
    "optim.lr=2e-3",
    "optim.warmup_steps=0",
    "optim.final_lr_ratio=0.1",
    "num_generations=2",
    *SMALL,
]


# A short run in which the sampled policy improves by far more than chance, on any backend. It
# validates as it samples, four games per secret.
LEARNING = [
    "model=micro",
    "rollout.groups=16",
    "optim.schedule=constant",
    "trainer.steps=20",
    "trainer.validate_every=20",
    "trainer.validation_temperature=1.0",
    "trainer.validation_samples=4",
    "trainer.checkpoint_every=20",
    "trainer.games_every=20",
    "trainer.report=false",
    "logger=none",
]


def run(tmp_path: Path, *overrides: str) -> tuple[dict, Path]:
    """Train into a folder of its own; returns the summary and the run folder."""
    arguments = [*overrides, f"output_dir={tmp_path}"]
    folders = set(tmp_path.iterdir())
    summary = train(composed(*arguments), arguments)
    [folder] = set(tmp_path.iterdir()) - folders
    return summary, folder


def metrics_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def reinforced(tmp_path_factory) -> tuple[dict, Path]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        overrides = [*RL_SETTINGS, "trainer.steps=3", "trainer.checkpoint_every=2"]
        return run(tmp_path_factory.mktemp("runs"), *overrides)


def test_a_run_folder_stands_alone(reinforced) -> None:
    summary, folder = reinforced
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    splits = split_secrets(load_words(), test=12, val=12)
    assert manifest["digests"]["splits"] == splits.digest  # row 21
    lines = (folder / "validation_games.jsonl").read_text().splitlines()
    assert [json.loads(line)["secret"] for line in lines[:12]] == [*splits.val]
    for name in ("start_games.jsonl", "best_games.jsonl"):
        games = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert [game["secret"] for game in games] == [*splits.test], "not what chose the checkpoint"
    assert (folder / "config.yaml").is_file() and (folder / "games.jsonl").is_file()
    assert json.loads((folder / "summary.json").read_text())["games"] == summary["games"] == 12
    assert summary["start"]["secrets"] == 12
    assert {"step_000002", "step_000003"} <= {p.name for p in (folder / "checkpoints").iterdir()}
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["game", "best_of"])
def test_training_games_that_run_out_of_context_are_counted_and_told(kind, tmp_path, capsys):
    overrides = ["model=micro", *SMALL[1:], "trainer.steps=1", "trainer.report=false"]
    overrides += [f"rollout={kind}", "trainer.games_every=1"]
    with pytest.raises(SystemExit):
        run(tmp_path, *overrides, "model.max_context=64")
    assert "must be 91 or more for a game of 6 guesses" in error_of(capsys.readouterr().err)
    _, folder = run(tmp_path, *overrides, "model.max_context=91", "rules.invalid=retry")
    step = metrics_of(folder)[-1]
    assert step["train/out_of_context"] > 0 < step["val/out_of_context"]
    assert "WARNING: the policy ran out of model.max_context in" in capsys.readouterr().out


def test_a_step_logs_loss_rewards_groups_speed_and_where_time_went(reinforced) -> None:
    step = metrics_of(reinforced[1])[-1]
    for key in (
        "loss",
        "reward/mean",
        "reward/format",
        "train/win_rate",
        "groups/zero_spread",
        "lr",
        "games_per_second",
        "grad_norm",
        "policy/kl",
        "policy/ratio_gap",
        "policy/sampler_gap",
        "time/prefill",
        "time/decode",
        "time/reward",
        "time/forward",
        "time/backward",
        "time/optimizer",
        "val/win_rate",
        "val/reward",
        "memory/resident_gb",
        "memory/device_gb",
        "skill/consistency_placed",
        "skill/turn_2/consistency",
        "skill/bits_ratio",
        "skill/regret",
        "val/skill/consistency",
        "val/skill/regret",
        "curriculum/replayed",
    ):
        assert key in step
    assert step["policy/ratio_gap"] == 0.0  # row 3
    assert step["policy/sampler_gap"] < 1e-4  # row 4: scored as it was drawn


def test_a_step_learns_at_its_own_rate_of_the_schedule(reinforced) -> None:
    rates = [step["lr"] for step in metrics_of(reinforced[1])[1:]]
    assert rates == pytest.approx([2e-3, 1.1e-3, 2e-4])  # half a cosine from 1 to 0.1


def test_neither_watched_secrets_nor_a_slow_machine_change_anything_else(
    reinforced, tmp_path, monkeypatch
) -> None:
    hours = itertools.count(step=3600)  # rows 37 and 39
    monkeypatch.setattr(time, "monotonic", lambda: float(next(hours)))
    overrides = ("trainer.steps=3", "trainer.report=false", "trainer.watch_every=2")
    rows = metrics_of(run(tmp_path, *RL_SETTINGS, *overrides)[1])
    keys = {key for record in rows for key in record if key.startswith("watch/")}
    assert keys == {
        f"watch/{s}/{m}"
        for s in ("train", "test")
        for m in ("win_rate", "mean_guesses_with_losses")
    }
    assert [r["step"] for r in rows if "watch/test/win_rate" in r] == [0, 2, 3]
    for expected, row in zip(metrics_of(reinforced[1]), rows, strict=True):
        rest = {k: v for k, v in row.items() if k not in keys}
        assert without_clock(expected) == without_clock(rest)


def test_weights_whose_predictions_overflow_end_the_run_and_are_not_kept(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        # The weights grow ten thousandfold with each update, until float32 overflows.
        run(
            tmp_path,
            *SFT_SETTINGS,
            "trainer.steps=20",
            "optim.lr=10",
            "optim.warmup_steps=0",
            "optim.schedule=constant",
            "optim.clip_grad_norm=0",
            "optim.weight_decay=1000",
            "trainer.validate_every=100",
        )
    assert stop.value.code == 1
    line = error_of(capsys.readouterr().err)
    assert "predictions are not finite numbers" in line
    [folder] = tmp_path.iterdir()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "failed"
    assert [place.name for place in (folder / "checkpoints").glob("step_*")] == ["step_000000"]


def test_five_updates_that_fail_stop_the_run_and_keep_its_state(tmp_path, capsys, monkeypatch):
    norm = torch.tensor(np.inf)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: norm)
    with pytest.raises(SystemExit):
        run(tmp_path, *SFT_SETTINGS, "trainer.steps=9", "trainer.validate_every=100")
    assert "was not finite in 5 updates in a row" in capsys.readouterr().err
    [folder] = tmp_path.iterdir()
    assert (folder / "checkpoints" / "step_000005").is_dir()


def test_a_run_keeps_as_many_checkpoints_as_asked_for(tmp_path) -> None:
    options = ["trainer.steps=6", "trainer.checkpoint_every=1", "trainer.keep_checkpoints=4"]
    _, folder = run(tmp_path, *RL_SETTINGS, *options, "trainer.report=false")
    steps = {int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*")}
    assert {3, 4, 5, 6} <= steps and len(steps) <= 5  # and the best


@pytest.mark.slow
def test_grpo_improves_the_smallest_embedded_model_by_more_than_chance(tmp_path) -> None:
    overrides = ["trainer.steps=10", "trainer.validate_every=10", "trainer.checkpoint_every=10"]
    _, folder = run(tmp_path, *LEARNING, *overrides)
    start, *_, end = [r for r in metrics_of(folder) if "val/reward" in r]
    gain = end["val/reward"] - start["val/reward"]
    error = np.hypot(start["val/reward_standard_error"], end["val/reward_standard_error"])
    assert gain > 3 * error


def test_the_page_of_metrics_explains_every_metric_and_tensorboard_shows_the_same_names(
    tmp_path,
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = ["logger=tensorboard", "trainer.watch_every=1"]
    args = [*RL_SETTINGS, *options, "trainer.steps=2", "trainer.report=false", "curriculum=replay"]
    _, folder = run(tmp_path, *args)
    metrics = {key for record in metrics_of(folder) for key in record} - {"step"}
    page = (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8")
    names = [re.escape(name) for name in re.findall(r"^\| `(.+?)` \|", page, re.M)]
    pattern = re.compile("|".join(re.sub(r"<\w+>", "[^/]+", name) for name in names))
    keys = {key.replace("val/skill/", "skill/") for key in metrics}
    assert not [key for key in keys if not pattern.fullmatch(key)]
    events = EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()
    rows = metrics_of(folder)
    tags, moves = events.Tags(), {k for k in metrics if len({r[k] for r in rows if k in r}) > 1}
    assert min(tags["scalars"]).startswith("0_wins/") and "0_wins/val/win_rate" in tags["scalars"]
    scalars = {tag.removeprefix("0_wins/") for tag in tags["scalars"] if "win_rate" not in tag}
    assert scalars - {"reward/guess"} == {name for name in moves if "win_rate" not in name}
    assert tags["histograms"] == ["rewards"]
    histograms = [histogram.histogram_value for histogram in events.Histograms("rewards")]
    assert [(histogram.min, histogram.max) for histogram in histograms] == [
        (row["reward/min"], row["reward/max"]) for row in rows[1:]
    ]
    [config] = events.Tensors("config/text_summary")
    text = config.tensor_proto.string_val[0].decode().splitlines()
    assert f"seed={read_config(folder)['seed']}" in text and pattern.fullmatch("reward/guess")
    texts = {tag.removesuffix("/text_summary") for tag in tags["tensors"]}
    assert all(pattern.fullmatch(tag) for tag in texts)


def test_tensorboard_shows_each_step_once_after_a_kill_and_the_settings_of_the_run(
    tmp_path,
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    options = ["logger=tensorboard", "trainer.report_limit=3", "trainer.checkpoint_every=2"]
    summary, folder = run(
        tmp_path, *RL_SETTINGS, *options, "trainer.steps=3", "trainer.validate_every=2"
    )
    shutil.rmtree(folder / "checkpoints" / "step_000003")  # as if it had been killed in step 3
    resume(folder, "trainer.steps=4")
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars("grad_norm")] == [1, 2, 3, 4]
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    config = read_config(folder)
    assert settings["optim.lr"].number_value == config["optim"]["lr"]
    assert settings["prompt._target_"].string_value == config["prompt"]["_target_"]
    points = events.Scalars("0_wins/report/win_rate")
    expected = [summary["start"]["win_rate"], summary["win_rate"]]
    assert [point.value for point in points][:: len(points) - 1] == pytest.approx(expected)
    assert "report/mean_guesses_with_losses" in events.Tags()["scalars"]


def test_a_resumed_run_is_the_same_one_at_weights_and_biases(tmp_path, monkeypatch) -> None:
    from lightning.pytorch import loggers as theirs

    monkeypatch.setattr(theirs, "WandbLogger", lambda *_, **fields: SimpleNamespace(**fields))
    settings, items = LoggerSettings(tensorboard=False, wandb=True), []
    for name in ("one", "other"):
        folder = RunFolder.create(tmp_path, name)
        folder.write_manifest()
        items += [loggers.build_loggers(settings, folder)[0].id, folder]
        folder.note_resume()
        assert loggers.build_loggers(settings, RunFolder.open(folder.path))[0].id == items[-2]
    assert items[0] != items[2] and all(items)


class Tables(list):  # stands for wandb's logger, which needs wandb
    def log_table(self, *table: object, step: int) -> None:
        self.append((step, *table))


def test_weights_and_biases_get_all_games_of_a_validation_as_a_table() -> None:
    game = {"secret": "crept", "won": False, "guesses": [None, "crane"], "feedback": [None, "✓"]}
    loggers.LoggersReporter([logger := Tables()]).games([game] * 6, 7)
    [(step, _, heads, rows)] = logger
    entry = dict(zip(heads, rows[5], strict=True))
    assert (step, len(rows), entry["guesses"]) == (7, 6, "[None, 'crane']") and not entry["won"]


def test_tensorboard_begins_with_words_left_and_wins(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = loggers.TensorBoard(tmp_path)
    reporter = loggers.LoggersReporter([writer])
    names = ["skill/turn_2/expected_remaining", "val/win_rate", "loss", "games_per_second"]
    for step in (1, 2):
        reporter.metrics({name: float(step) for name in names}, step)
    writer.experiment.close()
    tags = sorted(EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"])
    assert tags[:2] == [f"0_wins/{name}" for name in names[:2]] and len(tags) == 4
