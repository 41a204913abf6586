"""One training step: play, score, weigh, update. The same for every algorithm and backend."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wordle_rl.algorithms.base import Advantages
from wordle_rl.game.rules import Game, State
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.given import GivenDialogue, Rows, dialogue_talk
from wordle_rl.rollouts.kinds import RolloutTask, play_task
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout, games_of
from wordle_rl.runs.processes import share
from wordle_rl.training.advantages import (
    groups_without_spread,
    score_rollouts,
    share_of_idle_turns,
    step_advantages,
)
from wordle_rl.training.letters import letter_advantages
from wordle_rl.training.metrics import (
    answer_metrics,
    game_metrics,
    group_metrics,
    reward_metrics,
    token_metrics,
)
from wordle_rl.training.secrets import group_secrets, group_states, planned
from wordle_rl.training.update import run_updates

_MARKUP = 64  # bytes around a message, more than any usual chat template has
_NAMED = 3  # rows in a message


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The rollouts of a step, from all processes, and how they went."""

    rollouts: list[Rollout]
    advantages: list[np.ndarray]  # for each rollout [K], one per turn
    metrics: dict[str, float]

    @property
    def rewards(self) -> list[GameReward]:
        return [rollout.reward for rollout in self.rollouts]


def train_step(step: Step) -> StepResult:
    """Play the games of a step and improve the policy on them.

    Each process plays and trains its own groups. Advantages, weights and metrics cover the whole
    step. step.check is only called before the policy changes.
    """
    recipe = step.recipe
    rollouts, dropped, advantages = sample_groups(step)
    played = rollouts + dropped
    metrics = {
        **game_metrics(games_of(played), [turn for r in played for turn in r.game.turns]),
        **answer_metrics(games_of(played), recipe.words),
        **reward_metrics([rollout.reward for rollout in played]),
        **group_metrics(
            groups=len({rollout.group for rollout in rollouts}),
            idle=len(groups_without_spread(rollouts, advantages)),
            replaced=len(dropped) // recipe.rollout.num_generations,
            skips=recipe.algorithm.skips_zero_advantages,
        ),
        "turns/zero_spread": share_of_idle_turns(rollouts, advantages),
        "train/extra_games": float(len(dropped)),
        **token_metrics(played),
    }
    step.check()
    metrics |= run_updates(step, rollouts, advantages)
    return StepResult(rollouts=rollouts, advantages=advantages.per_turn, metrics=metrics)


def sample_groups(step: Step) -> tuple[list[Rollout], list[Rollout], Advantages]:
    """Play a step's groups, and replace groups that teach nothing.

    A replacement has another secret and takes over the group's number. The algorithm's
    resample limits how often this repeats.
    Returns the rollouts to train on, the replaced ones, and the advantages of the former.
    """
    recipe = step.recipe
    played = recipe.rollout.groups
    rollouts = play_groups(step, range(played))
    advantages = _credit(step, rollouts)
    dropped: list[Rollout] = []
    for _ in range(recipe.algorithm.resample):
        idle = groups_without_spread(rollouts, advantages).tolist()
        if not idle:
            break
        fresh = play_groups(step, range(played, played + len(idle)))
        numbers = dict(zip(range(played, played + len(idle)), idle, strict=True))
        played += len(idle)
        dropped += [rollout for rollout in rollouts if rollout.group in idle]
        rollouts = [rollout for rollout in rollouts if rollout.group not in idle]
        rollouts += [replace(rollout, group=numbers[rollout.group]) for rollout in fresh]
        rollouts.sort(key=lambda rollout: rollout.group)
        advantages = _credit(step, rollouts)
    return rollouts, dropped, advantages


def _credit(step: Step, rollouts: list[Rollout]) -> Advantages:
    """The algorithm's advantages. With rollout.letter_weight, those of letters are added."""
    advantages = step_advantages(rollouts, step.recipe)
    if not step.recipe.rollout.letter_weight:
        return advantages
    tokenizer = step.form.chat.tokenizer
    return replace(advantages, per_token=letter_advantages(rollouts, step.recipe, tokenizer))


def play_groups(step: Step, numbers: range) -> list[Rollout]:
    """Play and score the groups with these numbers, shared among all processes.

    Numbers from rollout.groups on belong to replacement groups.
    """
    processes = step.policy.processes
    mine = share(len(numbers), processes)
    rollouts = score_rollouts(step, collect_rollouts(step, numbers[mine.start : mine.stop]))
    return [rollout for part in processes.gather(rollouts) for rollout in part]


def collect_rollouts(step: Step, numbers: range) -> list[Rollout]:
    """Play the groups with these numbers. Returns their rollouts, group by group.

    A kind of rollouts may add groups with the same secrets, see wordle_rl.rollouts.kinds.
    """
    recipe = step.recipe
    turns = recipe.rules.max_turns
    if recipe.states is not None:
        given = group_states(recipe, recipe.states, step.number, numbers)
        secrets, starts = [g.secret for g in given], [g.state(turns) for g in given]
    else:
        secrets = group_secrets(recipe, step.number, numbers)
        starts = [State(max_turns=turns)] * len(secrets)
    if recipe.history is not None:
        starts = recipe.history.states(
            secrets, numbers, seed=recipe.seed, step=step.number, max_turns=turns
        )
    task = RolloutTask(step=step, places=numbers, secrets=secrets, starts=starts)
    return play_task(task)


def learn_answers(step: Step, dialogues: Rows[GivenDialogue]) -> StepResult:
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


def check_lengths(dialogues: Rows[GivenDialogue], chat: Chat, max_context: int) -> None:
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
