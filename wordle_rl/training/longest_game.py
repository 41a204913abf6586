"""Tokens of the longest game of an experiment, without a tokenizer, and how many it plays."""

from __future__ import annotations

from wordle_rl.game.rules import Clue, PlayedTurn, State, TurnKind
from wordle_rl.policy.memory_plan import GameSize, game_size
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.prompts.tool_calls import TOOL
from wordle_rl.training.experiment import Experiment

# Tokenizers of real models make longer tokens of plain English, and shorter ones of clues.
_CHARACTERS_PER_TOKEN = 3
_TEMPLATE = 8  # tokens that a chat template writes around a message
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


def count_training_games(setup: Experiment) -> int:
    """Games that one process plays side by side in training."""
    rollout = setup.recipe.rollout
    games = rollout.groups // setup.backend.devices * rollout.num_generations
    asked = getattr(rollout, "games_at_once", None)
    if not isinstance(asked, int):
        return games
    return min(games, max(asked // rollout.num_generations, 1) * rollout.num_generations)


def measure_game(setup: Experiment) -> GameSize:
    """Tokens of the longest game that the settings allow, without a tokenizer.

    Prompts are counted in characters. Answers, which are most of a game where the model thinks,
    have the length that sampling.max_tokens allows.
    """
    recipe = setup.recipe
    style, rollout = recipe.style, recipe.rollout
    turns = recipe.rules.max_turns
    fresh = rollout.form == "fresh"
    opening = _count_tokens(style.system + style.opening(State()), messages=2)
    if rollout.form == "tool":
        opening += _count_tokens(str(TOOL), messages=1)
    replies = [_count_reply(style, number, fresh) for number in range(1, turns)]
    given = recipe.history.most if recipe.history else 0
    if given and not fresh:
        opening += sum(replies[:given]) + given * 2 * _TEMPLATE  # and the given guesses
        replies = replies[given:]
    if not rollout.finishes:
        replies = []
    if fresh:
        replies = [opening + reply for reply in replies]
    return game_size(
        opening=opening,
        feeds=replies,
        answer=recipe.sampling.max_tokens,
        trained_answers=min(rollout.answers(recipe.rules, 0), len(replies) + 1),
        fresh=fresh,
        max_context=setup.model.max_context,
    )


def _count_reply(style: PromptStyle, turn: int, fresh: bool) -> int:
    """Tokens between two answers: what the game says after this many guesses."""
    clues = tuple(Clue(guess, code) for guess, code in _GUESSES[:turn])
    before, after = State(clues[:-1], turn - 1), State(clues, turn)
    if fresh:
        return _count_tokens(style.opening(after), messages=0)
    played = PlayedTurn(
        state=before, text="", guess=clues[-1].guess, reason=None, kind=TurnKind.ACCEPTED,
        feedback=clues[-1].feedback,
    )  # fmt: skip
    return _count_tokens(style.feedback(played, after), messages=2)


def _count_tokens(text: str, *, messages: int) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN) + messages * _TEMPLATE
