"""One game with a model behind a server that answers one prompt of token ids at a time.

For trainers with rollout servers of their own. Games, forms and limits are those of PolicyActor, so
equal draws give equal games. The conversation is one sequence: no text is encoded twice, and the
tokens that the server drew are the tokens that are trained on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Reply, take


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


@dataclass(kw_only=True, slots=True)
class Transcript:
    """The tokens of one conversation. All lists but prompt_ids are [T], one entry per token."""

    prompt_ids: list[int]  # up to the first answer
    ids: list[int] = field(default_factory=list)  # answers, and the text between them
    sampled: list[bool] = field(default_factory=list)  # True at tokens that the server drew
    logprobs: list[float] = field(default_factory=list)  # 0 where nothing was drawn

    @property
    def everything(self) -> list[int]:
        """The ids that the server sees next."""
        return self.prompt_ids + self.ids

    def add_answer(self, drawn: Drawn) -> None:
        self.ids += drawn.ids
        self.sampled += [True] * len(drawn.ids)
        self.logprobs += drawn.logprobs

    def add_text(self, ids: list[int]) -> None:
        """Add text of the environment, which is not trained on."""
        self.ids += ids
        self.sampled += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)


async def play_served(game: Game, form: Form, limits: Limits, draw: Draw) -> Transcript:
    """Play a game from its state. Returns its tokens; the game keeps its turns.

    A game whose next prompt does not fit into the context is lost, as in training here. Raises
    ValueError for an answer that is none: without tokens, too long, or without log-probabilities.
    """
    tokenizer = form.chat.tokenizer
    talk = Transcript(prompt_ids=form.opening(game.state))
    while True:
        room = limits.max_context - len(talk.prompt_ids) - len(talk.ids)
        most = min(limits.max_tokens, room)
        drawn = await draw(talk.everything, most)
        check_drawn(drawn, most)
        talk.add_answer(drawn)
        text = tokenizer.decode(drawn.ids)
        reply = Reply(
            text=text,
            tokens=len(drawn.ids),
            complete=drawn.ids[-1] in tokenizer.stop_ids,
            parsed=form.parse(text),
        )
        turn = take(game, reply)
        if game.status is not GameStatus.PLAYING or len(game.turns) == limits.answers:
            return talk
        following = form.reply(turn, game.state, last_id=drawn.ids[-1])
        if len(talk.prompt_ids) + len(talk.ids) + len(following) >= limits.max_context:
            game.forfeit()
            return talk
        talk.add_text(following)


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
