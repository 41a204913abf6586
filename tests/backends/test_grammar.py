"""A policy that can only answer with words: the mask is the same in draws, scores and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import plain_copy, policy_of, qwen, qwen_like_tokenizer
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.rules import Rules, TurnKind
from wordle_rl.policy.grammar import AnswerTree, OpenAnswer
from wordle_rl.policy.sampling import Draws, Sampling, uniforms
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Spelled, Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, check_grammar, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.update import pad

# Three words as their tokens; 0 ends an answer. Behind 5 two of them are left, behind 6 one.
WORDS = [(5, 7, 0), (5, 8, 0), (6, 7, 0)]
TREE = AnswerTree.grow((str(i), ids) for i, ids in enumerate(WORDS))
# A game: two different words. Its opening, and what stands between the answers.
OPENING, BETWEEN = [3, 30], [4, 31]
GAMES = [(first, second) for first in range(3) for second in range(3) if first != second]
REWARDS = np.array([1.0, -0.5, 0.25, 2.0, 0.0, -1.5])
TEMPERATURE = 0.7


def place_of(first: int | None) -> OpenAnswer:
    return OpenAnswer(TREE) if first is None else OpenAnswer(TREE, (WORDS[first],))


def words_logprob(plain: Any, prompt: list[int], word: tuple[int, ...], left: list[tuple]) -> Any:
    """Log-probability of a word among those left, in float64, by the plain model alone."""
    total = torch.zeros((), dtype=torch.float64)
    for place, token in enumerate(word):
        tokens = sorted({ids[place] for ids in left if ids[:place] == word[:place]})
        row = torch.tensor([[*prompt, *word[:place]]])
        logits = plain(input_ids=row).logits[0, -1].double() / TEMPERATURE
        total = total + logits[tokens].log_softmax(-1)[tokens.index(token)]
    return total


def game_logprob(plain: Any, game: tuple[int, int]) -> Any:
    first, second = (WORDS[i] for i in game)
    left = [word for word in WORDS if word != first]
    behind = [*OPENING, *first, *BETWEEN]
    return words_logprob(plain, OPENING, first, WORDS) + words_logprob(plain, behind, second, left)


def talk_of(game: tuple[int, int]) -> Talk:
    """A game as tokens, with the choices of a grammar, by the list of words alone."""
    talk = Talk()
    for turn, number in enumerate(game):
        talk.hear(BETWEEN if turn else OPENING, turn)
        word = WORDS[number]
        left = [ids for ids in WORDS if not turn or ids != WORDS[game[0]]]
        choices = [
            np.array(sorted({ids[i] for ids in left if ids[:i] == word[:i]}))
            for i in range(len(word))
        ]
        talk.answer(list(word), turn, choices=choices)
    return talk


def test_the_gradient_of_a_masked_policy_is_that_of_the_expected_reward(backend):  # row 31
    plain = plain_copy(qwen())
    logprobs = torch.stack([game_logprob(plain, game) for game in GAMES])
    assert logprobs.exp().sum().item() == pytest.approx(1.0)  # no other game can be played
    (-(logprobs.exp() * torch.from_numpy(REWARDS)).sum()).backward()
    expected = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}

    talks = [talk_of(game) for game in GAMES]
    shares = logprobs.exp().detach().numpy()
    values = {
        "advantages": [
            [r * t for t in talk.trained] for r, talk in zip(REWARDS, talks, strict=True)
        ],
        "weights": [[p * t for t in talk.trained] for p, talk in zip(shares, talks, strict=True)],
    }
    batch = pad(talks, 0, values)
    found = backend.gradients(
        backend.policy_of(qwen(), temperature=TEMPERATURE), batch, Grpo(beta=0.0)
    )
    scale = max(float(slope.abs().max()) for slope in expected.values())
    for name, slope in expected.items():
        assert torch.allclose(found[name], slope, atol=1e-5 * scale, rtol=1e-4), name


def test_draws_follow_the_masked_distribution_and_the_trainer_scores_them_alike(backend):
    count = 3000
    policy = backend.policy_of(qwen(), temperature=TEMPERATURE)
    engine, sampling = policy.engine(), Sampling(temperature=TEMPERATURE, max_tokens=3)
    talks, firsts = [Talk() for _ in range(count)], [None] * count
    for turn in range(2):
        for talk in talks:
            talk.hear(BETWEEN if turn else OPENING, turn)
        numbers = uniforms(seed=1, step=0, rollouts=np.arange(count), turn=turn, tokens=3)
        asked = [talk.ids for talk in talks]
        drawn = engine.complete(asked, sampling, numbers, [place_of(first) for first in firsts])
        for talk, answer in zip(talks, drawn, strict=True):
            talk.answer(answer.ids, turn, answer.logprobs, choices=answer.choices)
        firsts = [WORDS.index(tuple(answer.ids)) for answer in drawn]
    games = [
        tuple(WORDS.index(tuple(talk.ids[i] for i in part)) for part in talk.answers.values())
        for talk in talks
    ]
    plain = plain_copy(qwen())
    chances = np.exp([game_logprob(plain, game).item() for game in GAMES])
    seen = np.array([games.count(game) for game in GAMES])
    assert seen.sum() == count
    spread = np.sqrt(count * chances * (1 - chances))
    assert (np.abs(seen - count * chances) < 4.5 * spread + 1).all()

    few = talks[:40]
    scored = policy.score(pad(few, 0))
    for row, talk in zip(scored, few, strict=True):
        told = np.array(talk.logprobs)
        assert np.abs(row[: len(told)] - told).max() < 1e-5  # forced tokens have 0 in both
        forced = [
            t for t in range(len(told)) if talk.choices[t] is not None and not talk.trained[t]
        ]
        assert forced and not told[forced].any()
    whole = [game_logprob(plain, game).item() for game in games[:40]]
    assert np.abs(scored.sum(1) - whole).max() < 1e-4


@pytest.mark.parametrize(
    ("style", "count"), [(Symbols(), 170), (Spelled(), 40)], ids=["words", "spelled"]
)
def test_an_untrained_model_guesses_an_allowed_word_each_time_and_none_twice(
    style, count, original
):
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    policy = policy_of(qwen(len(tokenizer.inner)), tokenizer, max_context=2048)
    form = build_form("conversation", Chat(tokenizer), style)
    sampling = Sampling(max_tokens=40, grammar="words", repeats=False)
    words = original.words
    check_grammar(form, sampling, words.allowed_set)
    player = ModelPlayer(
        engine=policy.engine(), form=form, sampling=sampling, draws=Draws(seed=0)
    )  # fmt: skip
    games = play(player, new_games(words.answers[:count], words, Rules()))
    guesses = [[turn.guess for turn in game.turns] for game in games]
    assert sum(map(len, guesses)) > 5.9 * count
    assert words.allowed_set.issuperset(guess for mine in guesses for guess in mine)
    assert all(len(set(mine)) == len(mine) for mine in guesses)
    assert all(turn.kind is TurnKind.ACCEPTED for game in games for turn in game.turns)
