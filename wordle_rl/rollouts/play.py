"""Plays many games at once, turn by turn, with a policy or a scripted player.

Training, validation and evaluation use the same loop. Only the actor differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Game, GameStatus, PlayedTurn, Rules, State
from wordle_rl.prompts.parser import Parsed
from wordle_rl.rollouts.records import Rollout, TokenTurn
from wordle_rl.words.lists import WordLists


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An actor's answer in one game."""

    text: str
    parsed: Parsed  # what the text says
    tokens: int = 0  # sampled, 0 for scripted players
    complete: bool = True  # False if a limit cut the answer off

    @classmethod
    def of_guess(cls, word: str, thought: str = "") -> Reply:
        """The answer that guesses a word, behind a thought if there is one."""
        parsed = Parsed(guess=word, reason=None, thought=thought)
        return cls(text=thought + guess_text(word), parsed=parsed)


class Actor(Protocol):
    """Answers in many games at once. Games are numbered from 0."""

    def start(self, states: Sequence[State]) -> list[bool]:
        """Begin one game per state. Returns which ones could begin."""
        ...

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        """Answer once in each of these games. turn: how many answers came before."""
        ...

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        """Hear the outcome of the answers. Returns which games can continue."""
        ...

    def leave(self, games: Sequence[int]) -> None:
        """Forget these games, which are over."""
        ...


def new_games(
    secrets: Sequence[str], words: WordLists, rules: Rules, starts: Sequence[State] | None = None
) -> list[Game]:
    """Make one game per secret. starts: the state each one begins in, None for empty boards."""
    states = [State()] * len(secrets) if starts is None else starts
    return [
        Game(secret, words.allowed_set, rules, state=state)
        for secret, state in zip(secrets, states, strict=True)
    ]


def play(
    actor: Actor,
    games: list[Game],
    *,
    answers: int | None = None,
    time_limit: float = float("inf"),
    watch: Callable[[Sequence[Game]], None] | None = None,
) -> list[Game]:
    """Play games to their ends. Returns the same games.

    answers: leave each game after this many, finished or not. time_limit: seconds after which
    unfinished games are out of time, checked between turns. watch: called with all games before
    each turn and after the last one. It may raise to abandon all games.
    """
    begin = time.monotonic()
    started = actor.start([game.state for game in games])
    live = _drop_finished(actor, games, list(range(len(games))), started)
    turn = 0
    while live:
        if watch is not None:
            watch(games)
        replies = actor.answer(live, [games[i].state for i in live], turn)
        for i, reply in zip(live, replies, strict=True):
            take(games[i], reply)
        if time.monotonic() - begin >= time_limit:
            for i in live:
                if games[i].status is GameStatus.PLAYING:
                    games[i].forfeit(GameStatus.OUT_OF_TIME)
        live = _drop_finished(actor, games, live, [True] * len(live))
        turn += 1
        if turn == answers:
            break
        turns, states = [games[i].turns[-1] for i in live], [games[i].state for i in live]
        live = _drop_finished(actor, games, live, actor.hear(live, turns, states))
    actor.leave(live)
    if watch is not None:
        watch(games)
    return games


def take(game: Game, reply: Reply) -> PlayedTurn:
    """Play an answer in a game. An answer that was cut off never counts as a guess."""
    parsed = reply.parsed if reply.complete else reply.parsed.truncated()
    return game.play(
        parsed.guess, text=reply.text, thought=parsed.thought, reason=parsed.reason,
        tokens=reply.tokens,
    )  # fmt: skip


def _drop_finished(actor: Actor, games: list[Game], live: list[int], fits: list[bool]) -> list[int]:
    """Forfeit games that do not fit and leave games that are over. Returns the rest."""
    for i, fit in zip(live, fits, strict=True):
        if not fit:
            games[i].forfeit()
    over = [i for i in live if games[i].status is not GameStatus.PLAYING]
    actor.leave(over)
    return [i for i in live if games[i].status is GameStatus.PLAYING]


def record_rollouts(
    games: Sequence[Game], turns: Sequence[list[TokenTurn]], size: int, *, first_group: int = 0
) -> list[Rollout]:
    """Make a record of each game. Each `size` adjacent games are a group."""
    return [
        Rollout(game=game, group=first_group + i // size, turns=tokens)
        for i, (game, tokens) in enumerate(zip(games, turns, strict=True))
    ]
