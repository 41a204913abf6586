"""TRL trains on the tokens that our engine drew, and pays the rewards of our set."""

import importlib.util
import itertools
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.examples import load_example
from tests.helpers.tiny import full_logprobs, weights_of
from wordle_rl import build_knowledge, build_rewards, load_words, parse
from wordle_rl.game.rules import Game
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.runs.paths import ROOT

FILE = ROOT / "examples" / "trl_rollout.py"
NEEDS_TRL = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None,
    reason="needs TRL: pip install trl==1.16.0 -c constraints.txt",
)
PATH = ROOT / "wordle_rl" / "embedded" / "mini"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example(FILE)


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(PATH, dtype=torch.float32).eval()


def answer_parts(ids: list[int], mask: list[int]) -> list[list[int]]:
    """The answers of a game: the runs of tokens that the mask covers."""
    runs = itertools.groupby(zip(ids, mask, strict=True), lambda token: token[1])
    return [[token for token, _ in run] for drawn, run in runs if drawn]


def test_masks_cover_the_answers_and_rewards_are_those_of_the_set(example, model):
    setup = example.build_setup(["model=mini", "reward=phase1"])
    tokenizer = HFTokenizer(AutoTokenizer.from_pretrained(PATH))
    style: PromptStyle = setup.recipe.style
    rollout = example.build_rollout(setup, build_form("conversation", Chat(tokenizer), style))
    secrets = ["crane", "crane", "mummy", "about", "sleep", "vivid"]
    prompts = [[{"role": "user", "content": "", "secret": secret}] for secret in secrets]
    trainer = SimpleNamespace(
        model=model,
        accelerator=SimpleNamespace(unwrap_model=lambda m: m, process_index=0),
        state=SimpleNamespace(global_step=3),
    )
    output = rollout(prompts, trainer)
    words = load_words()
    rewards = build_rewards("phase1", build_knowledge(words))
    assert len({len(parts) for parts in output["completion_ids"]}) > 1
    for number, secret in enumerate(secrets):
        ids, mask = output["completion_ids"][number], output["env_mask"][number]
        game = Game(secret, words.allowed_set)
        for answer in answer_parts(ids, mask):
            assert answer[-1] in tokenizer.stop_ids
            text = tokenizer.decode(answer)
            game.play(parse(text).guess, text=text, reason=parse(text).reason, tokens=len(answer))
        assert output["won"][number] == game.won
        assert output["game_reward"][number] == pytest.approx(rewards.reward(game).total)
        temperature = setup.recipe.sampling.temperature
        expected = full_logprobs(model, output["prompt_ids"][number] + ids, temperature=temperature)
        logprobs = np.array(output["logprobs"][number])
        gaps = np.abs(expected[-len(ids) :] - logprobs)[np.array(mask, bool)]
        assert gaps.max() < 1e-4
        assert not logprobs[~np.array(mask, bool)].any()


def assert_first_turns_are_standardised(batch: dict[str, Any]) -> None:
    """All games of a group of four play turn 1, so each is compared with all."""
    sums = torch.tensor([sum(rewards) for rewards, _ in batch["games"]]).reshape(-1, 4)
    expected = (sums - sums.mean(1, keepdim=True)) / sums.std(1, keepdim=True)
    for row, (_, tokens), value in zip(
        batch["advantages"], batch["games"], expected.flatten(), strict=True
    ):
        torch.testing.assert_close(row[: tokens[0]], value.repeat(tokens[0]), atol=1e-5, rtol=0)


@NEEDS_TRL
@pytest.mark.parametrize("credit", ["trl", "turn"])
def test_trl_trains_two_steps_on_the_tokens_that_were_drawn(
    example, model, tmp_path, monkeypatch, credit
):
    monkeypatch.setattr(example, "SECRETS", 2)
    monkeypatch.setattr(example, "GAMES", 4)
    batches: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL's own
        trainer = example.build_trainer(
            example.build_setup(["model=mini"]), 2, str(tmp_path), credit
        )
        prepare = trainer._generate_and_score_completions

        def watch(inputs: Any) -> Any:
            batch = prepare(inputs)
            with torch.no_grad():
                ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
                mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
                length = batch["completion_ids"].shape[1]
                logprobs = trainer._get_per_token_logps_and_entropies(
                    trainer.model, ids, mask, length
                )[0]
            games = [(row["turn_rewards"], row["turn_tokens"]) for row in inputs]
            batches.append({**batch, "trainer": logprobs, "games": games})
            return batch

        trainer._generate_and_score_completions = watch
        before = weights_of(trainer.model)
        trainer.train()
    assert len(batches) == 2
    for batch in batches:
        drawn = (batch["completion_mask"] * batch["tool_mask"]).bool()
        assert drawn.any() and not drawn.all()
        gap = (batch["trainer"] - batch["sampling_per_token_logps"])[drawn].abs()
        assert float(gap.max()) < 1e-4
        assert batch["advantages"].abs().max() > 0.1
        if credit == "turn":
            assert not batch["advantages"][~drawn].any()
            assert_first_turns_are_standardised(batch)
    after = weights_of(trainer.model)
    assert any((after[name] - before[name]).abs().max() > 0 for name in before)
