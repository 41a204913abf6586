"""Lessons: the teacher's whole distribution, and mistakes that nobody is to learn."""

import dataclasses
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers.configs import composed
from tests.helpers.tiny import policy_of, qwen, qwen_like_tokenizer, recipe_of
from tests.helpers.updates import batch_of_games
from wordle_rl.algorithms.distill import Distill
from wordle_rl.algorithms.sft import Sft
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Player, RandomConsistent, guess_text
from wordle_rl.game.rules import Clue, Rules, State, feedback_code
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.sampling import Draws
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.rollouts.teacher import ScriptedPlayer, TeacherSettings, scripted_talks
from wordle_rl.training.targets import ASTRAY, TokenTeacher
from wordle_rl.words.lists import WordLists

WORDS = WordLists(
    answers=("bleed", "crane", "crate", "grate", "slate", "sleep"),
    allowed=("bleed", "crane", "crate", "crept", "grate", "slate", "sleep"),
    name="small",
)
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
CHAT = Chat(HFTokenizer(qwen_like_tokenizer()))
FORM = build_form("conversation", CHAT, Symbols())
LESSON = TeacherSettings(player=RandomConsistent(KNOWLEDGE))


def state_after(*guesses: str, secret: str) -> State:
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return State(clues=clues, turn=len(clues))


def test_a_target_is_the_share_of_the_teachers_answers_that_go_on_with_it():
    state = state_after("sleep", secret="crate")  # crane, crate and grate fit
    words = ["crane", "crate", "grate"]
    answers = [CHAT.answer(guess_text(word)) for word in words]
    ids = answers[1]
    targets = TokenTeacher(LESSON, FORM).targets(state, ids, start=10)
    shares = {
        (int(place), int(token)): float(share)
        for place, token, share in zip(
            targets.places, targets.ids, targets.probabilities, strict=True
        )
    }
    for i in range(len(ids)):
        matches = [answer for answer in answers if answer[:i] == ids[:i]]
        for token in {answer[i] for answer in matches}:
            share = sum(answer[i] == token for answer in matches) / len(matches)
            assert shares.pop((10 + i, token)) == pytest.approx(share)
    assert not shares


@pytest.mark.parametrize("word", [*WORDS.allowed, "crats", "cratesleep", "c"])
def test_a_models_own_answer_is_taught_by_the_best_words_that_begin_like_it(word):
    state = state_after("sleep", secret="crate")
    words = ["crane", "crate", "grate"]
    answers = {key: CHAT.answer(guess_text(key)) for key in WORDS.allowed}
    ids = CHAT.answer(guess_text(word))
    teacher = TokenTeacher(dataclasses.replace(LESSON, guessable=WORDS.allowed), FORM)
    targets = teacher.targets(state, ids, start=0)
    weights = np.ones(len(ids), np.float32)
    for place in range(len(ids)):
        for level in (words, WORDS.answers, WORDS.allowed):
            matches = [answers[key] for key in level if answers[key][:place] == ids[:place]]
            if matches:
                break
        if level is not words:
            weights[place] = ASTRAY if matches else 0.0
        counts = Counter(answer[place] for answer in matches)
        mask = targets.places == place
        pairs = zip(targets.ids[mask].tolist(), targets.probabilities[mask].tolist(), strict=True)
        assert dict(pairs) == pytest.approx({t: n / len(matches) for t, n in counts.items()})
    assert targets.astray.tolist() == np.flatnonzero(weights < 1).tolist()
    [game] = new_games(["crate"], WORDS, Rules(), [state])
    game.play(word if len(word) == 5 else None, text=guess_text(word))
    talk = Talk()
    talk.hear(FORM.opening(state), 0)
    talk.answer(ids, 0)
    rollout = Rollout(game=game, group=0, talks=[talk])
    lesson = dataclasses.replace(LESSON, guessable=WORDS.allowed, distribution=True)
    sizes = {"groups": 1, "num_generations": 1}
    batch = batch_of_games(
        [rollout], recipe_of(Distill(), lambda turn: 0.0, teacher=lesson, **sizes), CHAT
    )
    [part] = rollout.talks[0].answers.values()
    assert (batch.advantages[0, part.start : part.stop] == weights).all()


def games_of(guess: str, *, distribution: bool) -> Batch:
    """A batch of one game: the opening sleep is a mistake, then this guess, which ends it."""
    lesson = TeacherSettings(player=RandomConsistent(KNOWLEDGE), distribution=distribution)
    recipe = recipe_of(
        Sft(), lambda turn: 0.0, words=WORDS, teacher=lesson, groups=1, num_generations=1
    )

    class Reads(Player):
        name = "reads"

        def choose(self, state: State, uniform: float = 0.0) -> str:
            return guess if state.turn else "sleep"

    [game] = play(
        ScriptedPlayer(player=Reads(), draws=Draws(seed=0)),
        new_games(["crate"], WORDS, Rules(max_turns=2)),
    )
    talks = scripted_talks(game, build_form("conversation", CHAT, Symbols()), {0})
    return batch_of_games([Rollout(game=game, group=0, talks=talks)], recipe, CHAT)


def gradients_of(batch: Batch) -> dict[str, torch.Tensor]:
    # A guess's weight must not depend on how many tokens its word has.
    weights = batch.trained.astype(np.float32)
    policy = policy_of(qwen(340), tokenizer=CHAT.tokenizer)
    inputs = replace(batch, weights=weights)
    loss, _ = policy.machine.lm.compute_loss(inputs, Sft(), temperature=1.0)
    loss.backward()
    return {
        n: p.grad.clone() for n, p in policy.machine.model.named_parameters() if p.grad is not None
    }


def test_learning_the_distribution_has_the_mean_gradient_of_learning_each_answer():
    words = ["crane", "crate", "grate"]
    totals: list[dict[str, torch.Tensor]] = []
    for distribution in (False, True):
        parts = [gradients_of(games_of(w, distribution=distribution)) for w in words]
        totals.append({n: torch.stack([part[n] for part in parts]).sum(0) for n in parts[0]})
    answer_grads, soft_grads = totals
    for name, gradient in answer_grads.items():
        assert torch.allclose(gradient, soft_grads[name], atol=1e-5), name
    crate_grads = gradients_of(games_of("crate", distribution=True))
    assert any((crate_grads[n] * 3 - answer_grads[n]).abs().max() > 1e-3 for n in crate_grads)


def test_a_share_of_the_groups_is_the_models_own_and_spread_over_the_step():
    overrides = ["algorithm=distill", "algorithm.on_policy=0.25", "experiment=none"]
    setup = build_experiment(resolve(composed(*overrides)))
    lesson = setup.recipe.teacher
    assert lesson is not None and lesson.guessable == setup.words.allowed
    assert [place for place in range(12) if lesson.leaves(place)] == [3, 7, 11]
    default = build_experiment(resolve(composed("algorithm=distill", "experiment=none")))
    assert default.recipe.teacher is not None and default.recipe.teacher.guessable is None
