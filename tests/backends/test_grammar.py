"""A policy that can only answer with words: the mask is the same in draws, scores and gradient."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import plain_copy, policy_of, qwen, qwen_like_tokenizer
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules, TurnKind, marks
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Spelled, Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form
from wordle_rl.rollouts.play import ModelPlayer, check_grammar, hear, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.update import pad
from wordle_rl.words.lists import WordLists

# Five words for games of three turns, all on this secret. After a guess one to four of them fit.
WORDS = WordLists(answers=("grate",), allowed=("crate", "grate", "irate", "prate", "slate"))
SECRET, RULES = "grate", Rules(max_turns=3)
TEMPERATURE = 0.7
GRAMMARS = {
    "words": {"grammar": "words"},
    "none twice": {"grammar": "words", "repeats": False},
    "clues": {"grammar": "clues"},
    "clues from 2": {"grammar": "clues", "grammar_from": 2, "repeats": False},
}


def words_left(guesses: Sequence[str], grammar: dict[str, Any]) -> list[str]:
    """The words that a grammar allows after some guesses, by its definition."""
    words = [
        word
        for word in WORDS.allowed
        if all(marks(guess, word) == marks(guess, SECRET) for guess in guesses)
    ]
    if grammar["grammar"] == "clues" and len(words) <= grammar.get("grammar_from", 99):
        return words
    return [w for w in WORDS.allowed if grammar.get("repeats", True) or w not in guesses]


def all_games(grammar: dict[str, Any], *guesses: str) -> list[tuple[str, ...]]:
    """Every game that can be played under a grammar."""
    if len(guesses) == RULES.max_turns or SECRET in guesses:
        return [guesses]
    words = words_left(guesses, grammar)
    return [game for word in words for game in all_games(grammar, *guesses, word)]


def talk_of(form: Form, guesses: Sequence[str], grammar: dict[str, Any]) -> Talk:
    """A game as tokens, with the choices of a grammar, by the list of words alone."""
    [game], talk = new_games([SECRET], WORDS, RULES), None
    for turn, guess in enumerate(guesses):
        talk = hear(form, game, talk, 2048)
        assert talk is not None
        ids = form.chat.answer(form.write(guess))
        texts = [form.chat.answer(form.write(word)) for word in words_left(guesses[:turn], grammar)]
        choices = [
            np.array(sorted({text[i] for text in texts if text[:i] == ids[:i]}))
            for i in range(len(ids))
        ]
        talk.answer(ids, turn, choices=choices)
        game.play(guess)
    assert talk is not None
    return talk


def talk_logprob(hf_model: Any, talk: Talk, *, free: bool = False) -> Any:
    """Log-probability of a game's answers in float64: the plain model's over the choices alone.

    free: over the whole vocabulary.
    """
    logits = hf_model(input_ids=torch.tensor([talk.ids])).logits[0].double() / TEMPERATURE
    total = torch.zeros((), dtype=torch.float64)
    for place, (token, choices) in enumerate(zip(talk.ids, talk.choices, strict=True)):
        if choices is not None:
            choices = np.arange(logits.shape[1]) if free else choices
            shares = logits[place - 1, torch.from_numpy(choices)].log_softmax(-1)
            total = total + shares[choices.tolist().index(token)]
    return total


def model_and_form() -> tuple[Any, HFTokenizer, Form]:
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    form = build_form("conversation", Chat(tokenizer), Symbols())
    return qwen(len(tokenizer.inner), factor=3.0), tokenizer, form


@pytest.mark.parametrize("semantic", [0.0, 0.5])
def test_the_gradient_of_a_masked_policy_is_that_of_the_expected_reward(semantic, backend):
    """row 31. The semantic loss is the KL divergence of free play from the drawn answers."""
    model, tokenizer, form = model_and_form()
    grammar, hf_model = GRAMMARS["clues"], plain_copy(model)
    talks = [talk_of(form, game, grammar) for game in all_games(grammar)]
    rewards = np.random.default_rng(0).normal(size=len(talks))
    logprobs = torch.stack([talk_logprob(hf_model, talk) for talk in talks])
    assert logprobs.exp().sum().item() == pytest.approx(1.0)  # no other game can be played
    loss, shares = -(logprobs.exp() * torch.from_numpy(rewards)).sum(), logprobs.exp().detach()
    if semantic:
        free_logprobs = torch.stack([talk_logprob(hf_model, talk, free=True) for talk in talks])
        loss = loss + semantic * (shares * (logprobs - free_logprobs)).sum()
        for talk in talks:
            talk.train_forced()
    loss.backward()
    expected = {n: p.grad for n, p in hf_model.named_parameters() if p.grad is not None}
    values = {
        "advantages": [
            [r * t for t in talk.trained] for r, talk in zip(rewards, talks, strict=True)
        ],
        "weights": [
            [p * t for t in talk.trained] for p, talk in zip(shares.numpy(), talks, strict=True)
        ],
    }
    policy = backend.policy_of(model, tokenizer, temperature=TEMPERATURE)
    grads = backend.gradients(policy, pad(talks, 0, values), Grpo(beta=0.0, semantic=semantic))
    scale = max(float(slope.abs().max()) for slope in expected.values())
    for weight, slope in expected.items():
        assert torch.allclose(grads[weight], slope, atol=1e-5 * scale, rtol=1e-4), weight


@pytest.mark.parametrize("name", GRAMMARS)
def test_draws_follow_the_masked_distribution_and_the_trainer_scores_them_alike(name, backend):
    model, tokenizer, form = model_and_form()
    policy = backend.policy_of(model, tokenizer, temperature=TEMPERATURE, max_context=2048)
    grammar, count = GRAMMARS[name], 300
    sampling = Sampling(temperature=TEMPERATURE, max_tokens=40, **grammar)
    player = ModelPlayer(
        engine=policy.engine(),
        form=form,
        sampling=sampling,
        draws=Draws(seed=1),
        knowledge=Knowledge(WORDS, build_table(WORDS)),
    )
    games = play(player, new_games([SECRET] * count, WORDS, RULES))
    samples = [tuple(turn.guess for turn in game.turns) for game in games]
    by_game, hf_model = {}, plain_copy(model)
    for game in all_games(grammar):
        talk = talk_of(form, game, grammar)
        with torch.no_grad():
            by_game[game] = talk, talk_logprob(hf_model, talk).item()
    chances = np.exp([logprob for _, logprob in by_game.values()])
    assert chances.sum() == pytest.approx(1.0)
    hits = np.array([samples.count(game) for game in by_game])
    assert hits.sum() == count
    spread = np.sqrt(count * chances * (1 - chances))
    assert (np.abs(hits - count * chances) < 4.5 * spread + 1).all()

    talks = [talk for [talk] in player.all_talks(games[:40])]
    scores = policy.score(pad(talks, 0))
    for row, talk, game in zip(scores, talks, samples, strict=False):
        target, logprob = by_game[game]
        assert talk.ids == target.ids and talk.trained == target.trained
        for a, b in zip(talk.choices, target.choices, strict=True):
            assert (a is None) == (b is None) and (a is None or (a == b).all())
        logprobs = np.array(talk.logprobs)
        assert np.abs(row[: len(logprobs)] - logprobs).max() < 1e-5
        assert not logprobs[~np.array(talk.trained)].any()  # forced tokens have 0 in both
        assert row.sum() == pytest.approx(logprob, abs=1e-4)


@pytest.mark.parametrize(
    ("style", "count"), [(Symbols(), 60), (Spelled(), 15)], ids=["words", "spelled"]
)
def test_an_untrained_model_guesses_an_allowed_word_each_turn_none_twice(style, count, original):
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    policy = policy_of(qwen(len(tokenizer.inner)), tokenizer, max_context=2048)
    form = build_form("conversation", Chat(tokenizer), style)
    sampling = Sampling(max_tokens=40, grammar="words", repeats=False)
    words = original.words
    check_grammar(form, sampling, words.allowed_set)
    player = ModelPlayer(
        engine=policy.engine(),
        form=form,
        sampling=sampling,
        draws=Draws(seed=0),
        knowledge=original,
    )
    games = play(player, new_games(words.answers[:count], words, Rules()))
    guesses = [[turn.guess for turn in game.turns] for game in games]
    assert sum(map(len, guesses)) > 5.9 * count
    assert words.allowed_set.issuperset(guess for row in guesses for guess in row)
    assert all(len(set(row)) == len(row) for row in guesses)
    assert all(turn.kind is TurnKind.ACCEPTED for game in games for turn in game.turns)
