"""TRL's tool loop plays our games: results of guesses, rewards and ends are those of the rules."""

from __future__ import annotations

import importlib.util
import json
import warnings
from typing import Any

import pytest

from tests.helpers.examples import load_example
from tests.helpers.tiny import qwen, qwen_like_tokenizer
from wordle_rl import build_knowledge, build_rewards, load_words
from wordle_rl.game.rules import Game
from wordle_rl.runs.paths import ROOT

GUESSES = ("slate", "zzzzz", "crane")  # of a game, the same in all


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example(ROOT / "examples" / "trl_environment.py")


def reward_of(secret: str) -> float:
    """The reward of a game with these guesses, which is lost unless they win it."""
    words = load_words()
    game = Game(secret, words.allowed_set)
    for guess in GUESSES:
        if not game.won:
            game.play(guess, text=f"<guess>{guess}</guess>")
    if not game.won:
        game.forfeit()
    return build_rewards("phase2", build_knowledge(words)).score(game).total


def test_a_game_answers_with_marks_and_pays_the_reward_of_the_set(example):
    game = example.Wordle()
    for secret in ("crane", "mummy"):
        game.reset(secret=secret)
        said = [game.guess(guess) for guess in GUESSES]
        assert ("xx✓x✓" if secret == "crane" else "xxxxx") in said[0].replace(" ", "")
        assert (said[2] == example.OVER) == (secret == "crane")
        assert game.get_reward() == pytest.approx(reward_of(secret))
    assert game.guess("crane") == example.OVER  # after the end


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("trl") is None,
    reason="needs TRL: pip install trl==1.16.0 -c constraints.txt",
)
def test_trl_plays_games_by_tool_calls_and_learns_from_their_rewards(example, tmp_path):
    from trl.chat_template_utils import qwen2_5_chat_template

    tokenizer = qwen_like_tokenizer(qwen2_5_chat_template)
    folder = tmp_path / "model"
    tokenizer.save_pretrained(folder)
    qwen(len(tokenizer), seed=1).save_pretrained(folder)
    calls = [
        tokenizer.encode(
            "<tool_call>\n"
            + json.dumps({"name": "guess", "arguments": {"word": guess}})
            + "\n</tool_call><|im_end|>"
        )
        for guess in GUESSES
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL's own
        trainer = example.build_trainer(
            str(folder), 1, str(tmp_path / "out"), max_completion_length=1024, use_cpu=True,
            bf16=False, activation_checkpointing=False, per_device_train_batch_size=4,
            num_generations=2, save_strategy="no",
        )  # fmt: skip
        turns = iter([*calls, tokenizer.encode("done<|im_end|>")])

        def answer(prompt_ids: list[Any], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
            said = next(turns)
            return [said] * len(prompt_ids), None

        trainer._generate_single_turn = answer
        secrets = trainer.train_dataset["secret"]
        played: list[Any] = []
        prepare = trainer._generate_and_score_completions

        def watch(inputs: list[Any]) -> Any:
            played.extend(row["secret"] for row in inputs)
            return prepare(inputs)

        trainer._generate_and_score_completions = watch
        trainer.train()
    assert len(played) == 4 and set(played) <= set(secrets)
    [entry] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert entry["reward"] == pytest.approx(sum(map(reward_of, played)) / 4, abs=1e-4)
