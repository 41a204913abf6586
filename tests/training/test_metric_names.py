"""Every metric that a run logs has a name for people and a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from tests.helpers.runs import resume, run, settings
from wordle_rl.backends.loggers import choose_columns
from wordle_rl.training.metric_names import OTHER, find, tag_of
from wordle_rl.training.metric_table import FLAT, TABLE

MORE = [
    "logger=tensorboard", "trainer.steps=4", "trainer.watch_every=2", "trainer.validate_every=2",
    "trainer.validation_history=1", "trainer.report_limit=4", "history=one",
]  # fmt: skip
STAGES = ("grpo with a reference", "ppo", "dapo", "dpo", "sft")


def events_of(folder: Path) -> EventAccumulator:
    sizes = {"scalars": 0, "tensors": 0, "histograms": 0}
    [curves] = (folder / "tensorboard").iterdir()
    return EventAccumulator(str(curves), sizes).Reload()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of GRPO with everything that adds metrics."""
    path = tmp_path_factory.mktemp("run")
    (root := path / "runs").mkdir()
    return run(root, *settings(path, "grpo with a reference"), *MORE, "curriculum=replay")[1]


def test_every_curve_text_and_histogram_of_a_run_has_an_entry(trained):
    tags = events_of(trained).Tags()
    shown = [*tags["scalars"], *tags["histograms"], *tags["tensors"]]
    assert len(shown) > 40
    assert not [tag for tag in shown if tag.startswith(OTHER)]
    keys = {key for line in (trained / "metrics.jsonl").read_text().splitlines()
            for key in json.loads(line)} - {"step"}  # fmt: skip
    assert not [key for key in keys if find(key) is None]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_every_algorithms_metrics_have_an_entry(stage, tmp_path, root):
    _, folder = run(root, *settings(tmp_path, stage), "trainer.steps=1", "trainer.report=false")
    keys = set(json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])) - {"step"}
    assert not [key for key in keys if find(key) is None]


def test_wins_and_reward_come_first(trained):
    scalars = sorted(events_of(trained).Tags()["scalars"])
    groups = list(dict.fromkeys(tag.partition("/")[0] for tag in scalars))
    assert groups[:2] == ["1 wins", "2 reward"]
    assert {"1 wins/training", "1 wins/validation"} <= set(scalars)


def test_no_card_is_flat_or_has_one_point(trained):
    events = events_of(trained)
    always = set(map(tag_of, FLAT))
    for tag in events.Tags()["scalars"]:
        values = [point.value for point in events.Scalars(tag)]
        assert len(values) > 1, tag
        assert tag in always or len(set(values)) > 1, tag


def test_a_curve_has_the_values_of_metrics_jsonl(trained):
    logged = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    points = events_of(trained).Scalars(tag_of("reward/mean"))
    wanted = [(r["step"], r["reward/mean"]) for r in logged if "reward/mean" in r]
    assert [point.step for point in points] == [step for step, _ in wanted]
    assert [point.value for point in points] == pytest.approx([value for _, value in wanted])


def test_a_chart_has_every_part_of_a_steps_time(trained):
    events = events_of(trained)
    layout = Layout()
    [event] = events.Tensors("custom_scalars__config__")
    layout.ParseFromString(event.tensor_proto.string_val[0])
    charts = {c.title: list(c.multiline.tag) for part in layout.category for c in part.chart}
    [pattern] = charts["seconds of each part of a step"]
    scalars = events.Tags()["scalars"]
    drawn = {tag for tag in scalars if re.match(pattern, tag)}
    assert {tag_of(f"time/{part}") for part in ("decode", "game", "backward")} <= drawn
    [one, other] = charts["training and validation"]
    assert [tag for tag in scalars if re.match(one, tag)] == [tag_of("train/win_rate")]
    assert [tag for tag in scalars if re.match(other, tag)] == [tag_of("val/win_rate")]


def test_a_finished_run_has_a_row_with_what_tells_it_apart(trained):
    metadata = events_of(trained).SummaryMetadata("_hparams_/session_start_info")
    data = HParamsPluginData.FromString(metadata.plugin_data.content)
    columns = data.session_start_info.hparams
    assert columns["seed"].number_value == 0
    assert columns["lr"].number_value == pytest.approx(1e-2)
    assert columns["num_generations"].number_value == 2
    assert len(columns) < 40


def test_columns_are_choices_values_and_what_the_command_line_set():
    manifest: dict[str, Any] = {
        "choices": {"model": "mini", "algorithm": "dapo", "words": "original"},
        "command": ["train.py", "optim.lr=1e-4", "algorithm=dapo", "sampling.temperature=0.8"],
    }
    config = {"seed": 3, "rollout": {"num_generations": 8}, "optim": {"lr": 1e-4}}
    assert choose_columns(manifest, config) == {
        "model": "mini", "algorithm": "dapo", "seed": 3, "num_generations": 8, "lr": 1e-4,
        "sampling.temperature": "0.8",
    }  # fmt: skip


def test_a_resumed_run_continues_its_curves(tmp_path, root):
    given = [*settings(tmp_path, "sft"), "logger=tensorboard", "trainer.report=false"]
    _, folder = run(root, *given, "trainer.steps=2")
    resume(folder, "trainer.steps=4")
    steps = [point.step for point in events_of(folder).Scalars(tag_of("loss"))]
    assert steps == [1, 2, 3, 4]


def test_names_are_unlike_and_sentences_are_sentences():
    for name in ("key", "tag"):
        values = [getattr(metric, name) for metric in TABLE]
        assert len(values) == len(set(values))
    for metric in TABLE:
        assert re.fullmatch(r"[A-Z1].{8,140}\.", metric.meaning), metric.key
        assert metric.group[0] in "123456789" and "/" not in metric.title


def test_a_placeholder_takes_the_name_and_a_name_of_its_own_comes_first():
    assert tag_of("reward/format") == "2 reward/training, part format"
    assert tag_of("reward/mean") == "2 reward/training"
    assert tag_of("val/given_2/win_rate") == "1 wins/validation after 2 given"
    tag = tag_of("val/skill/turn_3/bits_ratio")
    assert tag == "4 skill/validation, turn 3, bits of the possible"
    assert tag_of("policy/mine") == f"{OTHER}/policy/mine" and find("policy/mine") is None


def test_no_entry_is_hidden_behind_an_earlier_one():
    for metric in TABLE:
        assert find(re.sub(r"<\w+>", "x", metric.key)) is metric
