"""Games on held-out secrets: which are played, at which temperature, and what a run keeps."""

import gzip
import json
import shutil
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from research.rescore import rescore
from tests.helpers.runs import metrics_of, resume, run, settings
from tests.helpers.tiny import policy_of, qwen, qwen_like_tokenizer, recipe_of, step_of
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.reports.run import read_run
from wordle_rl.rollouts.play import Portions
from wordle_rl.runs.files import StepLog
from wordle_rl.training.validation import HeldOutPlay, RunReports


@pytest.mark.parametrize(("temperature", "training"), [(0.0, 1.0), (1.0, 0.1)])
def test_a_run_writes_every_game_of_every_validation_and_draws_it_at_its_own_temperature(
    temperature: float, training: float, tmp_path: Path
) -> None:
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report=false"]
    overrides += ["trainer.validation_samples=2", f"trainer.validation_temperature={temperature}"]
    overrides += [f"sampling.temperature={training}"]
    (root := tmp_path / "runs").mkdir()
    _, folder = run(root, *overrides)
    lines = (folder / "validation_games.jsonl").read_text().splitlines()
    games = [json.loads(line) for line in lines]
    assert [game["step"] for game in games] == [0] * 12 + [3] * 12  # 6 secrets
    assert [game["secret"] for game in games[:12]] == [game["secret"] for game in games[12:]]
    pairs = zip(games[:12:2], games[1:12:2], strict=True)  # of one secret
    equal = [first["texts"] == second["texts"] for first, second in pairs]
    assert all(equal) if temperature == 0 else not any(equal), "not as training samples"
    for step, metrics in ((0, metrics_of(folder)[0]), (3, metrics_of(folder)[-1])):
        step_games = [game for game in games if game["step"] == step]
        mean = np.mean([game["reward"]["total"] for game in step_games])
        assert metrics["val/reward"] == pytest.approx(mean)


def test_packed_validation_games_are_read_and_resumed_as_those_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report=false"]
    overrides += ["trainer.validate_every=1", "trainer.checkpoint_every=2"]
    (plain_root := tmp_path / "plain").mkdir()
    (packed_root := tmp_path / "packed").mkdir()
    _, plain_run = run(plain_root, *overrides)
    monkeypatch.setattr(StepLog, "pack", partialmethod(StepLog.pack, most=1))
    _, packed_run = run(packed_root, *overrides)
    names = [f"validation_games.{step:06d}.jsonl.gz" for step in range(4)]
    assert sorted(path.name for path in packed_run.glob("validation*.gz")) == names
    shutil.rmtree(packed_run / "checkpoints" / "step_000003")  # so that step 3 is done again
    (packed_run / "summary.json").unlink()
    resume(packed_run)
    assert "has lost" not in capsys.readouterr().err
    assert sorted(path.name for path in packed_run.glob("validation*.gz")) == names
    lines = b"".join(gzip.decompress((packed_run / name).read_bytes()) for name in names)
    assert lines == (plain_run / "validation_games.jsonl").read_bytes()
    assert read_run(packed_run).validated == read_run(plain_run).validated
    capsys.readouterr()
    outputs = [
        rescore(str(folder), ["reward=phase2"]) or capsys.readouterr().out
        for folder in (plain_run, packed_run)
    ]
    assert outputs[0] == outputs[1] and "val after 3 steps" in outputs[0]


def held_out(tokenizer: HFTokenizer, **split: tuple[str, ...]) -> HeldOutPlay:
    policy = policy_of(qwen(340), tokenizer)
    recipe = recipe_of(Grpo(beta=0.0), lambda turn: 0.0, secrets=("slate",))
    setup: Any = SimpleNamespace(
        recipe=recipe,
        greedy=Sampling(temperature=0.0, max_tokens=8),
        model=SimpleNamespace(games_at_once=4),
        **split,
    )
    form = step_of(policy, recipe).form
    return HeldOutPlay(policy=policy, form=form, setup=setup, portions=Portions())


def test_games_outside_training_are_greedy_unless_a_temperature_is_asked_for() -> None:
    play = partial(held_out(HFTokenizer(qwen_like_tokenizer())).play, ["crane"] * 4, "some")
    greedy_texts, sampled_texts = (
        {game.turns[0].text for game in play(sampling=s)} for s in (None, Sampling())
    )
    assert len(greedy_texts) == 1 < len(sampled_texts)


class AlwaysCrane(HFTokenizer):
    def decode(self, ids: list[int]) -> str:
        return "<guess>crane</guess>"


def test_a_watched_run_shows_its_test_secrets_beside_its_training_secrets() -> None:
    tokenizer = AlwaysCrane(qwen_like_tokenizer(), extra_stop_ids=tuple(range(340)))
    metrics = held_out(tokenizer, validation=("sleep",), test=("crane",)).watch()
    assert (metrics["watch/test/win_rate"], metrics["watch/train/win_rate"]) == (1.0, 0.0)


def test_what_the_opener_alone_brings_is_seen_in_games_that_begin_with_the_old_one(tmp_path):
    tokenizer = AlwaysCrane(qwen_like_tokenizer(), extra_stop_ids=tuple(range(340)))
    play = held_out(tokenizer, test=("crane", "slate"))
    play.setup.trainer = SimpleNamespace(report_limit=None)
    folder: Any = SimpleNamespace(path=tmp_path)
    reports = RunReports(play, folder, (), lambda: None)
    rows = [{"step": 0, "won": won, "guesses": ["slate"]} for won in (False, True)]
    (tmp_path / "start_games.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    change = reports.compare(play.play(("crane", "slate"), "some"))
    assert (change["only_after"], change["only_before"]) == (1, 1)
    assert (change["old_opener"], change["win_rate_old_opener"]) == ("slate", 1.0)
