"""The likeliest words of a model, against scoring every word's whole answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.talks import talk_of
from tests.helpers.tiny import plain_copy
from wordle_rl.commands.play import load_opponent
from wordle_rl.game.rules import Clue, Game, State, feedback_code
from wordle_rl.policy.grammar import AnswerList
from wordle_rl.rollouts.play import ModelPlayer
from wordle_rl.web.likeliest_words import find_likeliest
from wordle_rl.web.opponent import Opponent, WatchedGame

BOARDS = {
    "empty": State(),
    "two guesses": State(
        tuple(Clue(guess, feedback_code(guess, "slate")) for guess in ("crane", "sooth")), 2
    ),
}


@pytest.fixture(scope="module")
def micro() -> Opponent:
    """Spells its guesses letter by letter."""
    return load_opponent("backend.precision=fp32", model="micro")


def player_of(opponent: Opponent) -> ModelPlayer:
    player = opponent.seat()
    assert isinstance(player, ModelPlayer)
    return player


def answers_of(player: ModelPlayer, words: Sequence[str]) -> list[list[int]]:
    return [player.form.chat.answer(player.form.write(word)) for word in words]


def plain_scores(
    model: Any, prompt: list[int], answers: list[list[int]], block: int = 256
) -> np.ndarray:
    """The probability of each answer: whole sequences through transformers' own code."""
    assert len({len(answer) for answer in answers}) == 1
    scores = []
    for start in range(0, len(answers), block):
        ids = torch.tensor([prompt + answer for answer in answers[start : start + block]])
        with torch.no_grad():
            logprobs = model(input_ids=ids).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
        token_logprobs = logprobs.gather(2, ids[:, len(prompt) :, None])[..., 0]
        scores.append(token_logprobs.double().sum(1).exp().numpy())
    return np.concatenate(scores)


def check_against_plain_scores(opponent: Opponent, state: State, words: Sequence[str]) -> None:
    player = player_of(opponent)
    prompt, answers = player.form.opening(state), answers_of(player, words)
    model = plain_copy(player.engine._model._lm.model)  # type: ignore[attr-defined]
    scores = plain_scores(model, prompt, answers)
    answer_list = AnswerList.of(zip(words, answers, strict=True))
    result = find_likeliest(player.engine, prompt, answer_list, most=100_000)
    best = np.argsort(-scores, kind="stable")[:10]
    assert result.exact
    assert list(result.words)[:10] == [words[i] for i in best]
    for word, chance in result.words.items():
        assert chance == pytest.approx(scores[words.index(word)], rel=1e-3)
    gap = scores.sum() - sum(result.words.values())
    assert -1e-5 <= gap <= result.untried + 1e-5 and result.untried < 1e-3
    assert sum(result.words.values()) + result.untried + result.other == pytest.approx(1.0)


@pytest.mark.parametrize("board", ["two guesses"])
def test_ten_likeliest_words_are_those_of_scoring_every_answer(board, micro):
    words = sorted({*micro.knowledge.words.allowed[::50], "crane", "slate", "stale", "least"})
    check_against_plain_scores(micro, BOARDS[board], words)


class Undecided:
    """An engine for which all of 200 first tokens are as likely, and token 0 ends an answer."""

    max_context = 9

    def next_logprobs(self, prompts: list[tuple[int, ...]]) -> np.ndarray:
        rows = np.full((len(prompts), 201), -50.0)
        for row, ids in zip(rows, prompts, strict=True):
            row[slice(1, None) if len(ids) == 1 else 0] = -np.log(200) if len(ids) == 1 else 0.0
        return rows


def test_the_search_goes_on_until_hardly_any_word_is_untried():
    answers = AnswerList.of((f"w{i:04}", (i, 0)) for i in range(1, 201))
    engine: Any = Undecided()
    best = find_likeliest(engine, [7], answers, count=1)  # which is certain after the first words
    assert len(best.words) == 200 and best.untried < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_so_are_they_among_all_allowed_words(board, micro):
    check_against_plain_scores(micro, BOARDS[board], micro.knowledge.words.allowed)


def test_chances_of_a_turn_are_those_behind_the_conversation_so_far(micro):
    """A refused guess is part of what the model has read, though no clue shows it."""
    session = micro.play("mound")
    assert any(turn.guess not in micro.knowledge.words.allowed_set for turn in session.game.turns)
    for number, turn in list(enumerate(session.game.turns))[3:]:
        [talk] = session.talks
        prompt = talk.ids[: talk.answers[number].start]
        if turn.guess is None or turn.guess not in micro.knowledge.words.allowed_set:
            continue
        player = player_of(micro)
        [answer] = answers_of(player, [turn.guess])
        model = plain_copy(player.engine._model._lm.model)  # type: ignore[attr-defined]
        chances = micro.chances(session, number)
        assert chances is not None
        [expected] = plain_scores(model, prompt, [answer])
        assert chances.untried + chances.other + sum(chances.words.values()) == pytest.approx(1.0)
        assert chances.words[turn.guess] == pytest.approx(expected, rel=1e-3)


def test_a_model_that_thinks_is_asked_behind_its_thought(micro):
    player, thought = player_of(micro), "<think>no clue yet</think>"
    chat, prompt = player.form.chat, player.form.opening(State())
    ids = [*chat.tokenizer.encode(thought), *chat.answer("<guess>crane</guess>", begins=False)]
    game = Game("slate", micro.knowledge.words.allowed_set)
    game.play("crane", text=f"{thought}<guess>crane</guess>", thought=thought)
    session = WatchedGame(game=game, talks=[talk_of((prompt, ids))])
    chances = micro.chances(session, 0)
    assert chances is not None
    model = plain_copy(player.engine._model._lm.model)  # type: ignore[attr-defined]
    prefix = [*prompt, *chat.tokenizer.encode(thought)]
    [expected] = plain_scores(model, prefix, [chat.answer("<guess>crane</guess>", begins=False)])
    [direct] = plain_scores(model, prompt, [chat.answer("<guess>crane</guess>")])
    assert chances.words["crane"] == pytest.approx(expected, rel=1e-3)
    assert expected != pytest.approx(direct, rel=0.1)
