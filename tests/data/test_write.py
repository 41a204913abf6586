"""Rows that are made: true feedback, the prompts of training, and secrets of one split."""

from collections import Counter
from typing import Any

import pytest

from tests.helpers.configs import composed
from tests.helpers.tiny import qwen_like_tokenizer
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.data.rows import read_dialogue, read_guesses, read_state
from wordle_rl.data.write import Synthesis
from wordle_rl.game.rules import feedback_code
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import parse, parse_spelled
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.training.experiment import Experiment


def setup_of(*overrides: str) -> Experiment:
    return build_experiment(resolve(composed("model=untrained", *overrides)))


def synthesis(setup: Experiment, **fields: Any) -> Synthesis:
    return Synthesis(
        recipe=setup.recipe, **{"secrets": setup.recipe.secrets, "split": "train", **fields}
    )


@pytest.fixture(scope="module")
def states() -> Experiment:
    return setup_of("history=upto4")


def test_states_are_true_of_their_secrets_and_evenly_deep(states):
    rows = synthesis(states).states(600)
    counts = Counter(row["clues"] for row in rows)
    assert sorted(counts) == [0, 1, 2, 3, 4] and min(counts.values()) > 60
    for row in rows:
        # Raises for feedback that is not true.
        clues = read_state(row, states.words, states.recipe.rules).clues
        assert len(clues) == row["clues"] and row["split"] == "train"


def test_each_epoch_has_every_secret_once(states):
    secrets = states.splits.val
    rows = synthesis(states, secrets=secrets, split="val").states(2 * len(secrets))
    drawn = [row["secret"] for row in rows]
    assert sorted(drawn[: len(secrets)]) == sorted(drawn[len(secrets) :]) == sorted(secrets)
    assert drawn[: len(secrets)] != drawn[len(secrets) :]


def test_the_same_seed_makes_the_same_rows_and_another_one_others(states):
    rows = synthesis(states).states(50)
    assert synthesis(setup_of("history=upto4")).states(50) == rows
    assert synthesis(setup_of("history=upto4", "seed=1")).states(50) != rows


@pytest.mark.parametrize("prompt", ["symbols", "state", "spelled"])
@pytest.mark.parametrize("form", ["conversation", "fresh"])
def test_prompts_are_those_that_training_shows_in_the_same_state(prompt, form):
    setup = setup_of("history=upto4", f"prompt={prompt}", f"rollout.form={form}")
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    game_form = build_form(form, Chat(tokenizer), setup.recipe.style)
    for row in synthesis(setup).states(12):
        ids = game_form.opening(read_state(row, setup.words, setup.recipe.rules).state(6))
        assert tokenizer.render(row["prompt"]) == tokenizer.inner.decode(ids)


def test_game_rows_hold_whole_games():
    setup = setup_of("algorithm=sft", "num_generations=1")
    source = synthesis(setup)
    games = source.games(30)
    for row, game in zip(source.game_rows(games), games, strict=True):
        dialogue = read_dialogue(row, 1)
        assert dialogue.system == setup.recipe.style.system
        answers = [exchange.answer for exchange in dialogue.exchanges]
        guesses = [parse(answer).guess for answer in answers]
        assert guesses == [turn.guess for turn in game.turns] and row["guesses"] == len(guesses)
        assert row["won"] == (guesses[-1] == row["secret"])
        for guess, reply in zip(guesses, dialogue.exchanges[1:], strict=False):
            code = read_guesses([[guess, reply.message]])[0][1]
            assert code == feedback_code(str(guess), row["secret"])


def test_answers_have_their_letters_apart_where_the_prompt_says_so():
    source = synthesis(setup_of("algorithm=sft", "num_generations=1", "prompt=spelled"))
    games = source.games(10)
    for row, game in zip(source.game_rows(games), games, strict=True):
        answers = [exchange.answer for exchange in read_dialogue(row, 1).exchanges]
        assert [parse_spelled(answer).guess for answer in answers] == [t.guess for t in game.turns]
        assert all(parse(answer).guess is None for answer in answers)
    for row in source.answer_rows(games):
        [answer] = row["completion"]
        assert parse_spelled(answer["content"]).guess is not None


@pytest.mark.parametrize("form", ["conversation", "fresh"])
def test_answer_rows_end_in_each_guess_of_each_game(form):
    setup = setup_of("algorithm=sft", "num_generations=1", f"rollout.form={form}", "prompt=letters")
    source = synthesis(setup)
    games = source.games(10)
    rows = source.answer_rows(games)
    assert len(rows) == sum(len(game.turns) for game in games)
    dialogues = [row["messages"] for row in source.game_rows(games)]
    for row in rows:
        [answer] = row["completion"]
        assert len(read_dialogue(row, 1).exchanges) == (1 if form == "fresh" else row["turn"])
        prefix = [*row["prompt"], answer]
        assert form == "fresh" or any(messages[: len(prefix)] == prefix for messages in dialogues)
