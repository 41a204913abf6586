"""Plays many games with a language model, each as a row of the engine, and keeps the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wordle_rl.game.rules import PlayedTurn, State
from wordle_rl.policy.engine import Completion, Engine, StopReason
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Reply
from wordle_rl.rollouts.records import TokenTurn


@dataclass(kw_only=True)
class PolicyActor:
    """A language model as an actor. It sees games in one form of wordle_rl.rollouts.forms."""

    engine: Engine
    form: Form
    sampling: Sampling
    draws: Draws
    turns: list[list[TokenTurn]] = field(default_factory=list)  # by game
    _prompts: dict[int, list[int]] = field(default_factory=dict)  # game -> everything so far
    _fed: dict[int, list[int]] = field(default_factory=dict)  # game -> ids since its last answer

    def start(self, states: Sequence[State]) -> list[bool]:
        self.turns = [[] for _ in states]
        self._fed = {game: self.form.opening(state) for game, state in enumerate(states)}
        self._prompts = dict(self._fed)
        return [self._fits(game) for game in self._prompts]

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        numbers = self.draws.uniforms(games, turn, self.sampling.max_tokens)
        prompts = [self._prompts[game] for game in games]
        drawn = self.engine.complete(prompts, self.sampling, numbers)
        for game, completion in zip(games, drawn, strict=True):
            fresh = self.form.fresh or not self.turns[game]
            self.turns[game].append(
                TokenTurn(prompt_ids=self._fed[game], completion=completion, fresh=fresh)
            )
        return [self._reply(completion) for completion in drawn]

    def _reply(self, completion: Completion) -> Reply:
        text = self.form.chat.tokenizer.decode(completion.ids)
        return Reply(
            text=text,
            tokens=len(completion.ids),
            complete=completion.stop is StopReason.STOP_TOKEN,
            parsed=self.form.parse(text),
        )

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        for game, turn, state in zip(games, turns, states, strict=True):
            drawn = self.turns[game][-1].completion.ids
            fed = self._fed[game] = self.form.reply(turn, state, last_id=drawn[-1])
            before = [] if self.form.fresh else [*self._prompts[game], *drawn]
            self._prompts[game] = [*before, *fed]
        return [self._fits(game) for game in games]

    def leave(self, games: Sequence[int]) -> None:
        pass

    def copy(self, game: int, others: Sequence[int]) -> None:
        """Let other games, which were left, continue as copies of a game that is to answer next."""
        for other in others:
            self._prompts[other], self._fed[other] = self._prompts[game], self._fed[game]
            self.turns[other] = list(self.turns[game])

    def _fits(self, game: int) -> bool:
        return len(self._prompts[game]) < self.engine.max_context


def build_actor(policy: Policy, form: Form, sampling: Sampling, draws: Draws) -> PolicyActor:
    """An actor that plays as a policy does, with an engine of its own."""
    return PolicyActor(engine=policy.engine(), form=form, sampling=sampling, draws=draws)
