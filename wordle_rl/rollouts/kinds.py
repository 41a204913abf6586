"""Kinds of rollouts (`rollout=`): how the policy plays the secrets of a step.

A kind is a function that plays from some starts and returns rollouts group by group,
num_generations in each. The groups of start number p of a step have the numbers p, p + groups, p +
2 groups and so on. Processes share the starts, so a group never spans two processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.policy.sampling import Draws
from wordle_rl.rollouts.play import ModelPlayer, Start, begin_games, hear, play
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.rollouts.teacher import ScriptedPlayer, scripted_talks


def play_games(step: Step, starts: Sequence[Start], *, answers: int | None = None) -> list[Rollout]:
    """rollout=game: whole games. A group is the games on one secret, from the same state.

    rollout=turn stops them after one answer, so that a group is several guesses in one state. A
    teacher, if there is one, plays the groups that it does not leave to the policy.
    """
    recipe, teacher, size = step.recipe, step.recipe.teacher, step.recipe.rollout.num_generations
    # The start of each game, by the game's number within the step.
    deal = {start.group * size + i: start for start in starts for i in range(size)}
    teacher_numbers = [
        number
        for number, start in deal.items()
        if teacher is not None and not teacher.leaves(start.group)
    ]
    policy_numbers = sorted({*deal} - {*teacher_numbers})
    player = build_player(step) if policy_numbers else None
    games = dict(zip(deal, begin_games(deal.values(), recipe.words, recipe.rules), strict=True))
    play_some = partial(play, answers=answers, watch=lambda _: step.check())
    talks: dict[int, list[Talk]] = {}
    if player is not None:
        with step.policy.timers("game"):
            play_some(player, [games[number] for number in policy_numbers], policy_numbers)
        talks = player.talks
    if teacher is not None:
        actor = ScriptedPlayer(**vars(teacher), draws=Draws(seed=recipe.seed, step=step.number))
        with step.policy.timers("teacher"):
            play_some(actor, [games[number] for number in teacher_numbers], teacher_numbers)
        # A lesson has every token of an answer, also where a grammar left no choice.
        for number in games if recipe.sampling.grammar else teacher_numbers:
            talks[number] = scripted_talks(games[number], step.form, actor.slipped[number])
    return [
        Rollout(game=game, group=deal[number].group, talks=talks.get(number, []))
        for number, game in games.items()
    ]


def build_player(step: Step) -> ModelPlayer:
    """The policy as the player of a step's games."""
    return ModelPlayer(
        engine=step.policy.engine(),
        form=step.form,
        sampling=step.recipe.sampling,
        draws=Draws(seed=step.recipe.seed, step=step.number),
        knowledge=step.recipe.knowledge,
    )


def play_best_of(step: Step, starts: Sequence[Start]) -> list[Rollout]:
    """rollout=best_of: whole games in which every turn draws several guesses and takes one.

    rollout.advance says which: the best by its reward; the first, so that the boards are those that
    the policy meets when it draws its guesses, refused words included; or the likeliest, so that
    they are those of greedy play, which repeats a refused word where draws seldom do.

    A group is the guesses drawn in one state, each with its own reward. All of them are trained,
    also those that the game does not take. Each is a conversation of its own that repeats what was
    said before it.
    """
    recipe, size = step.recipe, step.recipe.rollout.num_generations
    player, games = build_player(step), begin_games(starts, recipe.words, recipe.rules)
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
                numbers = range(starts[i].group * size, (starts[i].group + 1) * size)
                groups[i] = {number: replace(games[i], turns=[]) for number in numbers}
                player.talks.update({number: [talk.as_prompt()] for number in numbers})
            player.answer({n: game for batch in groups.values() for n, game in batch.items()}, turn)
            for i, candidates in groups.items():
                choice = choose_guess(recipe, candidates, player.talks)
                play_drawn(games[i], candidates[choice])
                talks[i] = player.talks[choice][-1].as_prompt()
                group = starts[i].group + turn * recipe.rollout.groups
                rollouts[i] += [
                    Rollout(
                        game=candidate,
                        group=group,
                        talks=list(player.talks[number]),
                        within=games[i],
                        taken=number == choice,
                    )
                    for number, candidate in candidates.items()
                ]
    return [rollout for part in rollouts for rollout in part]


def play_drawn(game: Game, drawn: Game) -> None:
    """Play the one guess of another game, which began in the same state."""
    [turn] = drawn.turns
    game.play(
        turn.guess, text=turn.text, thought=turn.thought, reason=turn.reason, tokens=turn.tokens
    )
    game.context_full = drawn.context_full


def choose_guess(
    recipe: Recipe, drawn: Mapping[int, Game], talks: Mapping[int, Sequence[Talk]]
) -> int:
    """The number of the guess that a game continues with, by rollout.advance; the first of equals.

    drawn: by number, a game per guess that was drawn in one state. talks: the last one of each
    number holds its answer.
    """
    worth = {
        "best": lambda number: recipe.rewards.reward(drawn[number]).total,
        "first": lambda number: -number,
        "likeliest": lambda number: math.fsum(talks[number][-1].logprobs),
    }[recipe.rollout.advance]
    return max(drawn, key=worth)


KINDS: dict[str, Callable[[Step, Sequence[Start]], list[Rollout]]] = {
    "game": play_games,
    "turn": partial(play_games, answers=1),
    "best_of": play_best_of,
}
