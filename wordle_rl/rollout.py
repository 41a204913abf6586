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
from wordle_rl.forms import form_of
from wordle_rl.game import Game, GameStatus, PlayedTurn, Rules, State
from wordle_rl.parser import Parsed, parse, thought_of
from wordle_rl.players import Player
from wordle_rl.prompts import PromptStyle
from wordle_rl.reasoning import Reasoning
from wordle_rl.records import Completion, Rollout, StopReason, TokenTurn
from wordle_rl.sampling import Stream, uniforms
from wordle_rl.words import WordLists


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An actor's answer in one game."""

    text: str
    tokens: int = 0  # sampled, 0 for scripted players
    complete: bool = True  # False when a limit cut it off
    parsed: Parsed | None = None  # None reads guess tags out of the text


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
    starts: Sequence[State] | None = None,
    answers: int | None = None,
    time_limit: float = float("inf"),
    check: Callable[[], None] | None = None,
    look: Callable[[Sequence[Game]], None] | None = None,
) -> list[Game]:
    """Play one game per secret to its end.

    starts: the state that each game is taken over in; None for empty boards. answers: leave the
    games after this many, however far they are. time_limit: seconds from the start after which
    games that are still going are out of time, checked between turns. check: called before each
    turn; raises to give all games up. look: called with all games after each turn.
    """
    states = [State()] * len(secrets) if starts is None else starts
    games = [
        Game(secret, words.allowed_set, rules, state=state)
        for secret, state in zip(secrets, states, strict=True)
    ]
    begin = time.monotonic()
    started = actor.start([game.state for game in games])
    live = _keep(actor, games, list(range(len(games))), started)
    turn = 0
    while live:
        if check is not None:
            check()
        replies = actor.answer(live, [games[i].state for i in live], turn)
        for i, reply in zip(live, replies, strict=True):
            take(games[i], reply)
        if time.monotonic() - begin >= time_limit:
            for i in live:
                if games[i].status is GameStatus.PLAYING:
                    games[i].forfeit(GameStatus.OUT_OF_TIME)
        live = _keep(actor, games, live, [True] * len(live))
        if look is not None:
            look(games)
        turn += 1
        if turn == answers:
            break
        turns, states = [games[i].turns[-1] for i in live], [games[i].state for i in live]
        live = _keep(actor, games, live, actor.hear(live, turns, states))
    actor.leave(live)
    return games


def take(game: Game, reply: Reply) -> PlayedTurn:
    """Play an answer in a game; one that was cut off is no guess, whatever it says."""
    parsed = reply.parsed or parse(reply.text)
    if not reply.complete:
        parsed = parsed.truncated()
    return game.play(parsed.guess, text=reply.text, reason=parsed.reason, tokens=reply.tokens)


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
    """A scripted player; what it draws depends on (seed, stream, step, game, turn) alone.

    slips: how often mistakes answers in the player's place. reasoning: writes the thought before
    each guess; before a mistake it gives no reason for it.
    """

    player: Player
    seed: int
    step: int = 0
    stream: Stream = Stream.TRAINING  # what its games are for
    first_rollout: int = 0  # number of game 0 within the step
    mistakes: Player | None = None
    slips: float = 0.0
    reasoning: Reasoning | None = None
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
            tokens=3,
            stream=self.stream,
        )
        texts = self.player.answer(states, numbers[:, 0])
        if self.mistakes is not None:
            instead = self.mistakes.answer(states, numbers[:, 0])
            for i, slip in enumerate(numbers[:, 1] < self.slips):
                if slip:
                    texts[i] = instead[i]
                    self.slipped[games[i]].add(turn)
        if self.reasoning is not None:
            for i, (game, state) in enumerate(zip(games, states, strict=True)):
                reasoned = turn not in self.slipped[game]
                guess = parse(texts[i]).guess if reasoned else None
                texts[i] = self.reasoning(state, guess, numbers[i, 2]) + texts[i]
        return [Reply(text=text) for text in texts]

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        return [True] * len(games)

    def leave(self, games: Sequence[int]) -> None:
        pass


def scripted_turns(
    game: Game,
    chat: Chat,
    style: PromptStyle,
    slipped: Collection[int] = (),
    *,
    form: str = "conversation",
) -> list[TokenTurn]:
    """A scripted player's game as a policy would have seen it, its guesses written as in the form.

    slipped: turns that were mistakes, which nobody is to learn.
    """
    seen = form_of(form, chat, style)
    turns: list[TokenTurn] = []
    for i, turn in enumerate(game.turns):
        if i == 0:
            prompt = seen.opening(turn.state)
        else:
            prompt = seen.reply(game.turns[i - 1], turn.state, last_id=chat.turn_end_id)
        text = seen.written(turn)
        # On its own, so that the tokens of the guess do not depend on the thought before it.
        thought = thought_of(text)
        guess = chat.answer(text.removeprefix(thought), begins=not thought)
        ids = [*(chat.thought(thought) if thought else []), *guess]
        drawn = Completion(ids=ids, logprobs=[0.0] * len(ids), stop=StopReason.STOP_TOKEN)
        fresh = seen.fresh or i == 0
        turns.append(
            TokenTurn(prompt_ids=prompt, completion=drawn, trained=i not in slipped, fresh=fresh)
        )
    return turns


def rollouts(
    games: Sequence[Game], turns: Sequence[list[TokenTurn]], size: int, *, first_group: int = 0
) -> list[Rollout]:
    """Games in groups of `size` neighbours as records."""
    return [
        Rollout(game=game, group=first_group + i // size, turns=tokens)
        for i, (game, tokens) in enumerate(zip(games, turns, strict=True))
    ]
