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
    _rows: dict[int, int] = field(default_factory=dict)  # game -> engine row
    _fed: dict[int, list[int]] = field(default_factory=dict)  # game -> ids since its last answer

    def start(self, states: Sequence[State]) -> list[bool]:
        self.turns = [[] for _ in states]
        return self._begin(range(len(states)), [self.form.opening(state) for state in states])

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        numbers = self.draws.uniforms(games, turn, self.sampling.max_tokens)
        drawn = self.engine.decode([self._rows[g] for g in games], self.sampling, numbers)
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
        ids = [
            self.form.reply(turn, state, last_id=self.turns[game][-1].completion.ids[-1])
            for game, turn, state in zip(games, turns, states, strict=True)
        ]
        if self.form.fresh:
            self.leave(games)
            return self._begin(games, ids)
        self._fed |= dict(zip(games, ids, strict=True))
        return self.engine.extend([self._rows[g] for g in games], ids)

    def leave(self, games: Sequence[int]) -> None:
        self.engine.release([self._rows.pop(g) for g in games if g in self._rows])

    def copy(self, game: int, others: Sequence[int]) -> None:
        """Let other games, which were left, continue as copies of a game that is to answer next."""
        rows = self.engine.fork(self._rows[game], len(others))
        for other, row in zip(others, rows, strict=True):
            self._rows[other], self._fed[other] = row, self._fed[game]
            self.turns[other] = list(self.turns[game])

    def _begin(self, games: Sequence[int], prompts: Sequence[list[int]]) -> list[bool]:
        """Give each game a row with its prompt. Returns for which games it fitted."""
        sharing: dict[tuple[int, ...], list[int]] = {}
        for game, ids in zip(games, prompts, strict=True):
            sharing.setdefault(tuple(ids), []).append(game)
            self._fed[game] = ids
        for (row, fits), same in zip(self._prefill(list(sharing)), sharing.values(), strict=True):
            if fits:
                rows = [row, *self.engine.fork(row, len(same) - 1)]
                self._rows |= dict(zip(same, rows, strict=True))
            else:
                self.engine.release([row])
        return [game in self._rows for game in games]

    def _prefill(self, prompts: list[tuple[int, ...]]) -> list[tuple[int, bool]]:
        """Open a row for each of several different prompts. Returns rows and whether they fitted.

        The beginning that all prompts share is computed once.
        """
        if not prompts:
            return []
        shared = 0
        if len(prompts) > 1:
            ends = min(prompts), max(prompts)  # no two prompts have less in common
            shared = next((i for i, (a, b) in enumerate(zip(*ends)) if a != b), 0)  # noqa: B905
        [base] = self.engine.open(1)
        if shared and not self.engine.extend([base], [prompts[0][:shared]])[0]:
            shared = 0
        rows = [base, *self.engine.fork(base, len(prompts) - 1)]
        return list(
            zip(rows, self.engine.extend(rows, [ids[shared:] for ids in prompts]), strict=True)
        )


def build_actor(policy: Policy, form: Form, sampling: Sampling, draws: Draws) -> PolicyActor:
    """An actor that plays as a policy does, with an engine of its own."""
    return PolicyActor(engine=policy.engine(), form=form, sampling=sampling, draws=draws)
