"""A scripted player in the place of a policy, and its games as token records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from wordle_rl.game.players.base import Player
from wordle_rl.game.rules import Game, PlayedTurn, State
from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.sampling import Stream, uniforms
from wordle_rl.prompts.parser import parse, thought_of
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Reply
from wordle_rl.rollouts.records import TokenTurn


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


def scripted_turns(game: Game, form: Form, slipped: Collection[int] = ()) -> list[TokenTurn]:
    """A scripted player's game as a policy would have seen it, its guesses written as in the form.

    slipped: turns that were mistakes, which nobody is to learn.
    """
    chat = form.chat
    turns: list[TokenTurn] = []
    for i, turn in enumerate(game.turns):
        if i == 0:
            prompt = form.opening(turn.state)
        else:
            prompt = form.reply(game.turns[i - 1], turn.state, last_id=chat.turn_end_id)
        text = form.written(turn)
        # On its own, so that the tokens of the guess do not depend on the thought before it.
        thought = thought_of(text)
        guess = chat.answer(text.removeprefix(thought), begins=not thought)
        ids = [*(chat.thought(thought) if thought else []), *guess]
        drawn = Completion(ids=ids, logprobs=[0.0] * len(ids), stop=StopReason.STOP_TOKEN)
        fresh = form.fresh or i == 0
        turns.append(
            TokenTurn(prompt_ids=prompt, completion=drawn, trained=i not in slipped, fresh=fresh)
        )
    return turns
