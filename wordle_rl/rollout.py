"""Plays many games at once, turn by turn, with any player: a policy or a scripted one.

The loop is the same in training, validation and evaluation; only the actor differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from wordle_rl.chat import Chat
from wordle_rl.engine import Engine
from wordle_rl.game import Game, GameStatus, PlayedTurn, Rules, State
from wordle_rl.parser import ParseFailure, parse
from wordle_rl.players import Player
from wordle_rl.prompts import PromptStyle
from wordle_rl.records import Completion, Rollout, StopReason, TokenTurn
from wordle_rl.sampling import Sampling, uniforms
from wordle_rl.words import WordLists


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An actor's answer in one game."""

    text: str
    tokens: int = 0  # sampled, 0 for scripted players
    complete: bool = True  # False when a limit cut it off


class Actor(Protocol):
    """Answers in many games at once; games are numbered from 0."""

    def start(self, states: Sequence[State]) -> list[bool]:
        """Begin one game per state. Returns which of them could be begun."""
        ...

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        """One answer in each of these games. turn counts the answers given so far."""
        ...

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        """What came of the answers. Returns which games can go on."""
        ...

    def leave(self, games: Sequence[int]) -> None:
        """These games are over."""
        ...


def play(
    actor: Actor,
    secrets: Sequence[str],
    *,
    words: WordLists,
    rules: Rules,
    time_limit: float = float("inf"),
    check: Callable[[], None] | None = None,
) -> list[Game]:
    """Play one game per secret to its end.

    time_limit: seconds after which a game still going is lost, looked at between turns. check:
    called before each turn; raises to give all games up.
    """
    games = [Game(secret, words.allowed_set, rules) for secret in secrets]
    begin = time.monotonic()
    started = actor.start([game.state for game in games])
    live = _keep(actor, games, list(range(len(games))), started)
    turn = 0
    while live:
        if check is not None:
            check()
        replies = actor.answer(live, [games[i].state for i in live], turn)
        for i, reply in zip(live, replies, strict=True):
            parsed = parse(reply.text)
            cut = not reply.complete
            games[i].play(
                None if cut else parsed.guess,
                text=reply.text,
                reason=ParseFailure.TRUNCATED if cut else parsed.reason,
                tokens=reply.tokens,
            )
        in_time = time.monotonic() - begin < time_limit
        live = _keep(
            actor, games, live, [in_time or games[i].status is not GameStatus.PLAYING for i in live]
        )
        turns, states = [games[i].turns[-1] for i in live], [games[i].state for i in live]
        live = _keep(actor, games, live, actor.hear(live, turns, states))
        turn += 1
    return games


def _keep(actor: Actor, games: list[Game], live: list[int], fits: list[bool]) -> list[int]:
    """The games that go on; those that cannot are forfeited, those that are over are left."""
    for i, fit in zip(live, fits, strict=True):
        if not fit:
            games[i].forfeit()
    over = [i for i in live if games[i].status is not GameStatus.PLAYING]
    actor.leave(over)
    return [i for i in live if games[i].status is GameStatus.PLAYING]


@dataclass(kw_only=True)
class ScriptedActor:
    """A scripted player; what it draws depends on (seed, step, game, turn) alone.

    slips: how often mistakes answers in the player's place.
    """

    player: Player
    seed: int
    step: int = 0
    first_rollout: int = 0  # number of game 0 within the step
    mistakes: Player | None = None
    slips: float = 0.0
    slipped: list[set[int]] = field(default_factory=list)  # by game: turns that were mistakes

    def start(self, states: Sequence[State]) -> list[bool]:
        self.slipped = [set() for _ in states]
        return [True] * len(states)

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        numbers = uniforms(
            seed=self.seed,
            step=self.step,
            rollouts=np.array(games) + self.first_rollout,
            turn=turn,
            tokens=2,
        )
        texts = self.player.answer(states, numbers[:, 0])
        if self.mistakes is not None:
            instead = self.mistakes.answer(states, numbers[:, 0])
            for i, slip in enumerate(numbers[:, 1] < self.slips):
                if slip:
                    texts[i] = instead[i]
                    self.slipped[games[i]].add(turn)
        return [Reply(text=text) for text in texts]

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        return [True] * len(games)

    def leave(self, games: Sequence[int]) -> None:
        pass


@dataclass(kw_only=True)
class PolicyActor:
    """A language model that sees each game as one growing conversation."""

    engine: Engine
    chat: Chat
    style: PromptStyle
    sampling: Sampling
    seed: int
    step: int = 0
    first_rollout: int = 0  # number of game 0 within the step
    turns: list[list[TokenTurn]] = field(default_factory=list)  # by game
    _rows: dict[int, int] = field(default_factory=dict)  # game -> engine row
    _fed: dict[int, list[int]] = field(default_factory=dict)  # since the last answer

    def start(self, states: Sequence[State]) -> list[bool]:
        self.turns = [[] for _ in states]
        openings: dict[str, list[int]] = {}
        for game, state in enumerate(states):
            openings.setdefault(self.style.opening(state), []).append(game)
        begun = [False] * len(states)
        for message, games in openings.items():
            # Games with the same opening share its computation.
            ids = self.chat.opening(self.style.system, message)
            [row] = self.engine.open(1)
            if not self.engine.extend([row], [ids])[0]:
                self.engine.release([row])
                continue
            rows = [row, *self.engine.fork(row, len(games) - 1)]
            for game, row in zip(games, rows, strict=True):
                self._rows[game], self._fed[game], begun[game] = row, ids, True
        return begun

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        numbers = uniforms(
            seed=self.seed,
            step=self.step,
            rollouts=np.array(games) + self.first_rollout,
            turn=turn,
            tokens=self.sampling.max_tokens,
        )
        drawn = self.engine.decode([self._rows[g] for g in games], self.sampling, numbers)
        for game, completion in zip(games, drawn, strict=True):
            self.turns[game].append(TokenTurn(prompt_ids=self._fed[game], completion=completion))
        return [
            Reply(
                text=self.chat.tokenizer.decode(c.ids),
                tokens=len(c.ids),
                complete=c.stop is StopReason.STOP_TOKEN,
            )
            for c in drawn
        ]

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        for game, turn, state in zip(games, turns, states, strict=True):
            message = self.style.feedback(turn, state)
            last_id = self.turns[game][-1].completion.ids[-1]
            self._fed[game] = self.chat.reply(message, last_id=last_id)
        return self.engine.extend([self._rows[g] for g in games], [self._fed[g] for g in games])

    def leave(self, games: Sequence[int]) -> None:
        self.engine.release([self._rows.pop(g) for g in games if g in self._rows])


def scripted_turns(
    game: Game, chat: Chat, style: PromptStyle, slipped: Collection[int] = ()
) -> list[TokenTurn]:
    """A scripted player's game as the conversation a policy would have had.

    slipped: turns that were mistakes, which nobody is to learn.
    """
    turns: list[TokenTurn] = []
    for i, turn in enumerate(game.turns):
        if i == 0:
            prompt = chat.opening(style.system, style.opening(turn.state))
        else:
            prompt = chat.reply(
                style.feedback(game.turns[i - 1], turn.state), last_id=chat.turn_end_id
            )
        ids = chat.answer(turn.text)
        drawn = Completion(ids=ids, logprobs=[0.0] * len(ids), stop=StopReason.STOP_TOKEN)
        turns.append(TokenTurn(prompt_ids=prompt, completion=drawn, trained=i not in slipped))
    return turns


def rollouts(
    games: Sequence[Game], turns: Sequence[list[TokenTurn]], size: int, *, first_group: int = 0
) -> list[Rollout]:
    """Games in groups of `size` neighbours as records."""
    return [
        Rollout(game=game, group=first_group + i // size, turns=tokens)
        for i, (game, tokens) in enumerate(zip(games, turns, strict=True))
    ]
