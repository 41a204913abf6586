"""A step on given dialogues: their answers are learnt as they are, and no game is played."""

from __future__ import annotations

import numpy as np

from wordle_rl.algorithms.base import Advantages
from wordle_rl.game.rules import Game
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.given import GivenDialogues, dialogue_talk
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.processes import share
from wordle_rl.training.metrics import group_metrics, token_metrics
from wordle_rl.training.step import StepResult, planned
from wordle_rl.training.update import run_updates

_MARKUP = 64  # bytes around a message, more than any usual chat template has
_NAMED = 3  # rows in a message


def learn_answers(step: Step, dialogues: GivenDialogues) -> StepResult:
    """Improve the policy on as many dialogues as a step has groups.

    Each process prepares and trains its own dialogues. The result has no rollouts, since no game
    was played.
    """
    recipe, processes = step.recipe, step.policy.processes
    groups = recipe.rollout.groups
    places = range(step.number * groups, (step.number + 1) * groups)
    chosen = planned(range(len(dialogues)), recipe.seed, places)
    with step.policy.timers("data"):
        mine = [
            Rollout(
                game=Game("", ()),  # a stand-in that is never played
                group=group,
                talks=[dialogue_talk(dialogues[chosen[group]], step.form.chat)],
            )
            for group in share(groups, processes)
        ]
    rollouts = [rollout for part in processes.gather(mine) for rollout in part]
    step.check()
    each = [np.ones(len(rollout.answer_lengths)) for rollout in rollouts]
    metrics = {
        "train/games": 0.0,
        "train/wins": 0.0,
        "train/extra_games": 0.0,
        "train/rows": float(groups),
        **group_metrics(groups=groups, idle=0, replaced=0, skips=False),
        **token_metrics(rollouts),
        **run_updates(step, rollouts, Advantages(per_turn=each)),
    }
    return StepResult(rollouts=[], advantages=[], metrics=metrics)


def check_lengths(dialogues: GivenDialogues, chat: Chat, max_context: int) -> None:
    """Raise ValueError unless every dialogue fits into the context."""
    rows, longest = [], 0
    for place in range(len(dialogues)):
        dialogue = dialogues[place]
        if dialogue.bytes + _MARKUP * (2 * len(dialogue.exchanges) + 1) <= max_context:
            continue  # a token has one byte or more
        tokens = len(dialogue_talk(dialogue, chat).ids)
        if tokens > max_context:
            rows.append(dialogue.row)
            longest = max(longest, tokens)
    if rows:
        more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        named = ", ".join(map(str, rows[:_NAMED])) + more
        raise ValueError(
            f"model.max_context must be {longest} or more for row{'s' * (len(rows) > 1)} {named} "
            f"of {dialogues.name}, not {max_context}; data.split can leave rows out"
        )
