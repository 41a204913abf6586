"""rollout=best_of: whole games in which every turn draws several guesses and takes one of them.

A group is the guesses that were drawn in one state; each is judged by its own reward. All of them
are trained, whichever the game goes on with. Each is a training sequence with the whole
conversation before it, which costs as many forward passes as there are turns; groups are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.rollouts.base import RolloutKind, RolloutTask
from wordle_rl.rollouts.play import Reply, take
from wordle_rl.rollouts.policy_actor import PolicyActor
from wordle_rl.rollouts.records import Rollout, isolate_last_turn
from wordle_rl.runs.checks import check_choice


@dataclass(frozen=True, kw_only=True)
class BestOf(RolloutKind):
    """`advance` says which guess a game goes on with: the one of the highest reward, of equal ones
    the first drawn, or the first drawn, which is the policy's own way to play.
    """

    advance: Literal["best", "sampled"] = "best"
    candidates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        RolloutKind.__post_init__(self)
        check_choice("rollout.advance", self.advance, ("best", "sampled"))

    def play(self, task: RolloutTask) -> list[Rollout]:
        with task.step.policy.timers("game"):
            return _Games(task, self.advance).played()


class _Games:
    """The games of a task. A secret has num_generations seats at the actor, one per candidate."""

    def __init__(self, task: RolloutTask, advance: str) -> None:
        self._task, self._advance = task, advance
        self._size = task.step.recipe.rollout.num_generations
        self._actor: PolicyActor = task.actor()
        self._games = task.games()
        self._rollouts: list[list[Rollout]] = [[] for _ in self._games]

    def played(self) -> list[Rollout]:
        """All candidates: game by game, turn by turn."""
        states = [game.state for game in self._games for _ in range(self._size)]
        begun = self._actor.start(states)[:: self._size]
        live = [i for i, fits in enumerate(begun) if fits]
        for i in set(range(len(self._games))) - set(live):
            self._games[i].forfeit()
        turn = 0
        while live:
            self._task.step.check()
            live = self._next(live, turn)
            turn += 1
        return [rollout for rollouts in self._rollouts for rollout in rollouts]

    def _seats(self, game: int) -> list[int]:
        return list(range(game * self._size, (game + 1) * self._size))

    def _next(self, live: list[int], turn: int) -> list[int]:
        """One turn of these games. Returns those that go on."""
        seats = [seat for i in live for seat in self._seats(i)]
        states = [self._games[i].state for i in live for _ in range(self._size)]
        replies = iter(self._actor.answer(seats, states, turn))
        waiting: dict[int, int] = {}  # seat of the answer that was taken -> game
        for i in live:
            taken = self._seats(i)[self._take(i, [next(replies) for _ in range(self._size)], turn)]
            over = self._games[i].status is not GameStatus.PLAYING
            self._actor.leave([s for s in self._seats(i) if over or s != taken])
            if not over:
                waiting[taken] = i
        games = [self._games[i] for i in waiting.values()]
        turns, states = [game.turns[-1] for game in games], [game.state for game in games]
        heard = self._actor.hear(list(waiting), turns, states)
        for (taken, i), fits in zip(waiting.items(), heard, strict=True):
            if fits:
                self._actor.copy(taken, [s for s in self._seats(i) if s != taken])
            else:
                self._games[i].forfeit()
                self._actor.leave([taken])
        return [i for i in waiting.values() if self._games[i].status is GameStatus.PLAYING]

    def _take(self, number: int, replies: list[Reply], turn: int) -> int:
        """Keep all answers of a game's turn, and go on with one of them; returns which."""
        game, recipe = self._games[number], self._task.step.recipe
        candidates = []
        for reply in replies:
            candidate = Game(
                game.secret, game.allowed, game.rules, state=game.state, retries=game.retries
            )
            take(candidate, reply)
            candidates.append(candidate)
        chosen = 0
        if self._advance == "best":
            rewards = [recipe.rewards.score(candidate).total for candidate in candidates]
            chosen = rewards.index(max(rewards))
        take(game, replies[chosen])
        self._rollouts[number] += [
            Rollout(
                game=candidate,
                group=self._task.places[number] + turn * recipe.rollout.groups,
                turns=[isolate_last_turn(self._actor.turns[seat])],
                within=game,
                taken=place == chosen,
            )
            for place, (seat, candidate) in enumerate(
                zip(self._seats(number), candidates, strict=True)
            )
        ]
        return chosen
