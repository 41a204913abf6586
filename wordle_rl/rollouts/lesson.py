"""How a scripted player teaches: which player, its mistakes, its thoughts."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.game.players import Player
from wordle_rl.policy.sampling import Sampling
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.rollouts.forms import Form


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """How a scripted player's games are made to learn from."""

    player: Player
    mistakes: Player | None = None  # answers in its place, never to be learnt
    slips: float = 0.0  # how often
    careless: float = 0.0  # how often the player guesses any word of its pool; this is learnt
    distribution: bool = False  # learn all the player might have answered; it must be a Teacher
    reasoning: Reasoning | None = None  # writes the thought before each guess


def check_thoughts(lesson: TeacherSettings, form: Form, sampling: Sampling) -> None:
    """Raise ValueError unless any thought and the guess behind it fit into an answer."""
    if lesson.reasoning is None:
        return
    thought = max(len(form.chat.thought(text)) for text in lesson.reasoning.longest())
    guess = max(
        len(form.chat.answer(form.write(word), begins=False)) for word in lesson.reasoning.words
    )
    if thought + guess > sampling.max_tokens:
        raise ValueError(
            f"sampling.max_tokens must be {thought + guess} or more with algorithm.reasoning="
            f"{lesson.reasoning.length}, whose longest thought has {thought} of this model's "
            f"tokens, not {sampling.max_tokens}"
        )
