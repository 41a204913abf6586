"""Kinds of rollouts (`rollout=`): how the policy plays the secrets of a step.

A kind is a function that plays a task and returns rollouts group by group, num_generations in each.
The groups of a step's secret p have the numbers p, p + groups, p + 2 groups and so on. Processes
share the secrets, so a group never spans two processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from wordle_rl.game.rules import Game, GameStatus, State
from wordle_rl.policy.sampling import Draws
from wordle_rl.rollouts.play import ModelPlayer, hear, new_games, play
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.rollouts.teacher import ScriptedPlayer, scripted_talks


@dataclass(frozen=True, kw_only=True)
class RolloutTask:
    """The secrets of a step that this process plays."""

    step: Step
    places: range  # numbers of the secrets within the step
    secrets: list[str]
    starts: list[State]  # for each secret the state where its games begin

    @property
    def size(self) -> int:
        """Rollouts in a group."""
        return self.step.recipe.rollout.num_generations

    @property
    def draws(self) -> Draws:
        """The uniforms of num_generations games of each secret."""
        first = self.places.start * self.size
        return Draws(seed=self.step.recipe.seed, step=self.step.number, first_rollout=first)

    def player(self) -> ModelPlayer:
        """The policy, for num_generations games of each secret."""
        return ModelPlayer(
            engine=self.step.policy.engine(),
            form=self.step.form,
            sampling=self.step.recipe.sampling,
            draws=self.draws,
            knowledge=self.step.recipe.knowledge,
        )

    def games(self, size: int = 1) -> list[Game]:
        """Make `size` new games of each secret. Games with the same secret are adjacent."""
        recipe = self.step.recipe
        secrets = [secret for secret in self.secrets for _ in range(size)]
        starts = [state for state in self.starts for _ in range(size)]
        return new_games(secrets, recipe.words, recipe.rules, starts)

    def part(self, part: slice) -> RolloutTask:
        """This task with some of its secrets."""
        return replace(
            self, places=self.places[part], secrets=self.secrets[part], starts=self.starts[part]
        )


def play_task(task: RolloutTask) -> list[Rollout]:
    """Play a task in the way that rollout= chose, at most games_at_once games at a time.

    There are fewer if memory runs out. Draws depend on game and turn alone, so the games are the
    same as all at once.
    """
    step, settings = task.step, task.step.recipe.rollout
    return step.portions.play(
        len(task.secrets),
        task.size,
        settings.games_at_once,
        lambda part: KINDS[settings.kind](task.part(part)),
    )


def play_games(task: RolloutTask, *, answers: int | None = None) -> list[Rollout]:
    """rollout=game: whole games. A group is the games on one secret, from the same state.

    rollout=turn stops them after one answer, so that a group is several guesses in one state. A
    teacher, if there is one, plays the groups that it does not leave to the policy.
    """
    step, teacher = task.step, task.step.recipe.teacher
    games = task.games(task.size)
    groups = [place for place in task.places for _ in range(task.size)]
    own = [teacher is None or teacher.leaves(group) for group in groups]
    player = task.player() if any(own) else None
    scripted = ScriptedPlayer(**vars(teacher), draws=task.draws) if teacher else None

    def answer(live: Mapping[int, Game], turn: int) -> None:
        for name, actor, mine in ("game", player, True), ("teacher", scripted, False):
            theirs = {number: game for number, game in live.items() if own[number] is mine}
            if theirs and actor is not None:
                with step.policy.timers(name):
                    actor(theirs, turn)

    play(answer, games, answers=answers, watch=lambda _: step.check())
    rollouts: list[Rollout] = []
    for number, (game, group) in enumerate(zip(games, groups, strict=True)):
        # A teacher's lesson has every token of an answer, also where a grammar left no choice.
        if player and own[number] and not (scripted and step.recipe.sampling.grammar):
            talks = player.talks.get(number, [])
        else:
            talks = scripted_talks(game, step.form, scripted.slipped[number] if scripted else ())
        rollouts.append(Rollout(game=game, group=group, talks=talks))
    return rollouts


def play_best_of(task: RolloutTask) -> list[Rollout]:
    """rollout=best_of: whole games in which every turn draws several guesses and takes one.

    rollout.advance says which: the best by its reward; the first, so that the boards are those that
    the policy meets when it draws its guesses, refused words included; or the likeliest, so that
    they are those of greedy play, which repeats a refused word where draws seldom do.

    A group is the guesses drawn in one state, each with its own reward. All of them are trained,
    also those that the game does not take. Each is a conversation of its own that repeats what was
    said before it.
    """
    step, size = task.step, task.size
    games, player = task.games(), task.player()
    rollouts: list[list[Rollout]] = [[] for _ in games]
    talks: list[Talk | None] = [None] * len(games)  # of each game, with the answers it took
    with step.policy.timers("game"):
        for turn in itertools.count():
            live = [i for i, game in enumerate(games) if game.status is GameStatus.PLAYING]
            if not live:
                break
            step.check()
            groups: dict[int, dict[int, Game]] = {}  # by game: its candidates by their numbers
            for i in live:
                talk = hear(step.form, games[i], talks[i], player.engine.max_context)
                if talk is None:
                    games[i].forfeit(context_full=True)
                    continue
                numbers = range(i * size, (i + 1) * size)
                groups[i] = {number: replace(games[i], turns=[]) for number in numbers}
                player.talks.update({number: [talk.as_prompt()] for number in numbers})
            player.answer({n: game for drawn in groups.values() for n, game in drawn.items()}, turn)
            for i, drawn in groups.items():
                chosen = choose_guess(task, drawn, player.talks)
                play_drawn(games[i], drawn[chosen])
                talks[i] = player.talks[chosen][-1].as_prompt()
                group = task.places[i] + turn * step.recipe.rollout.groups
                rollouts[i] += [
                    Rollout(
                        game=candidate,
                        group=group,
                        talks=list(player.talks[number]),
                        within=games[i],
                        taken=number == chosen,
                    )
                    for number, candidate in drawn.items()
                ]
    return [rollout for mine in rollouts for rollout in mine]


def play_drawn(game: Game, drawn: Game) -> None:
    """Play the one guess of another game, which began in the same state."""
    [said] = drawn.turns
    game.play(
        said.guess, text=said.text, thought=said.thought, reason=said.reason, tokens=said.tokens
    )
    game.context_full = drawn.context_full


def choose_guess(
    task: RolloutTask, drawn: Mapping[int, Game], talks: Mapping[int, Sequence[Talk]]
) -> int:
    """The number of the guess that a game continues with, by rollout.advance; the first of equals.

    drawn: by number, a game per guess that was drawn in one state. talks: the last one of each
    number holds its answer.
    """
    recipe = task.step.recipe
    worth = {
        "best": lambda number: recipe.rewards.reward(drawn[number]).total,
        "first": lambda number: -number,
        "likeliest": lambda number: math.fsum(talks[number][-1].logprobs),
    }[recipe.rollout.advance]
    return max(drawn, key=worth)


KINDS: dict[str, Callable[[RolloutTask], list[Rollout]]] = {
    "game": play_games,
    "turn": partial(play_games, answers=1),
    "best_of": play_best_of,
}
