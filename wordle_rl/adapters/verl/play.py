"""One game with a model behind a server that answers one prompt of token ids at a time.

For trainers with rollout servers of their own. It plays as ModelPlayer in rollouts/play.py does, so
equal draws give equal games. No text is encoded twice, and the tokens that the server drew are the
tokens that are trained on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import hear, say
from wordle_rl.rollouts.talk import Talk


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One answer of a server."""

    ids: list[int]  # sampled token ids, stop token included
    logprobs: list[float]  # natural log at the sampling temperature, one per id


# Draws an answer to the ids so far, of at most so many tokens.
Draw = Callable[[list[int], int], Awaitable[Drawn]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long answers and games may be."""

    max_tokens: int  # of an answer
    max_context: int  # of a whole game, prompts included
    answers: int | None = None  # leave the game after so many; None plays it to its end


async def play_served(game: Game, form: Form, limits: Limits, draw: Draw) -> Talk:
    """Play a game from its state. Returns its tokens; the game keeps its turns.

    A game whose next prompt does not fit into the context is lost, as in training here. Raises
    ValueError for an answer that is none: without tokens, too long, or without log-probabilities.
    """
    talk = None
    while game.status is GameStatus.PLAYING and len(game.turns) != limits.answers:
        following = hear(form, game, talk, limits.max_context)
        if following is None:
            game.forfeit()
            break
        talk = following
        most = min(limits.max_tokens, limits.max_context - len(talk.ids))
        drawn = await draw(talk.ids, most)
        check_drawn(drawn, most)
        talk.answer(drawn.ids, len(game.turns), drawn.logprobs)
        say(form, game, drawn.ids, complete=drawn.ids[-1] in form.chat.tokenizer.stop_ids)
    if talk is None:
        raise ValueError(f"the first prompt must have less than {limits.max_context} tokens")
    return talk


def check_drawn(drawn: Drawn, most: int) -> None:
    """Raise ValueError unless an answer has 1 to `most` tokens, each with its log-probability."""
    if not 1 <= len(drawn.ids) <= most:
        raise ValueError(
            f"an answer of the server must have 1 to {most} tokens, not {len(drawn.ids)}"
        )
    if len(drawn.logprobs) != len(drawn.ids):
        raise ValueError(
            f"an answer of {len(drawn.ids)} tokens must have as many log-probabilities, not "
            f"{len(drawn.logprobs)}"
        )
