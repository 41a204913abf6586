"""rollout=best_of: whole games in which every turn draws several guesses and takes one of them.

A group is the guesses drawn in one state, each with its own reward. All of them are trained, also
the guesses that the game does not take. Each is a separate training sequence that repeats the
conversation before it, so a game is read once per turn. That is affordable because a step has few
groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.rollouts.base import RolloutKind, RolloutTask
from wordle_rl.rollouts.play import Reply, take
from wordle_rl.rollouts.policy_actor import PolicyActor
from wordle_rl.rollouts.records import Rollout, isolate_last_turn
from wordle_rl.runs.instantiate import check_choice


@dataclass(frozen=True, kw_only=True)
class BestOf(RolloutKind):
    """`advance` says which guess a game continues with.

    best: the guess with the highest reward, the first one on a tie. sampled: the first guess drawn,
    as the policy alone would play.
    """

    advance: Literal["best", "sampled"] = "best"
    candidates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        RolloutKind.__post_init__(self)
        check_choice("rollout.advance", self.advance, ("best", "sampled"))

    def play(self, task: RolloutTask) -> list[Rollout]:
        with task.step.policy.timers("game"):
            return _Games(task, self.advance).play()


class _Games:
    """Plays the games of a task.

    For the actor, each game is num_generations games, one per candidate. Their numbers are seats.
    """

    def __init__(self, task: RolloutTask, advance: str) -> None:
        self._task, self._advance = task, advance
        self._size = task.step.recipe.rollout.num_generations
        self._actor: PolicyActor = task.actor()
        self._games = task.games()
        self._rollouts: list[list[Rollout]] = [[] for _ in self._games]

    def play(self) -> list[Rollout]:
        """Play all games. Returns all candidates, game by game and turn by turn."""
        states = [game.state for game in self._games for _ in range(self._size)]
        begun = self._actor.start(states)[:: self._size]
        live = [i for i, fits in enumerate(begun) if fits]
        for i in set(range(len(self._games))) - set(live):
            self._games[i].forfeit()
        turn = 0
        while live:
            self._task.step.check()
            live = self._play_turn(live, turn)
            turn += 1
        return [rollout for rollouts in self._rollouts for rollout in rollouts]

    def _seats(self, game: int) -> list[int]:
        return list(range(game * self._size, (game + 1) * self._size))

    def _play_turn(self, live: list[int], turn: int) -> list[int]:
        """Play one turn of these games. Returns the games that are still being played."""
        seats = [seat for i in live for seat in self._seats(i)]
        states = [self._games[i].state for i in live for _ in range(self._size)]
        replies = iter(self._actor.answer(seats, states, turn))
        waiting: dict[int, int] = {}  # seat of the taken answer -> game
        for i in live:
            drawn = [next(replies) for _ in range(self._size)]
            taken = self._seats(i)[self._take_one(i, drawn, turn)]
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

    def _take_one(self, number: int, replies: list[Reply], turn: int) -> int:
        """Record all answers of a game's turn and play one of them. Returns its index."""
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
