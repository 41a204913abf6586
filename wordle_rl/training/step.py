"""One training step: play, score, weigh, update. The same for every algorithm and backend.

sample_step makes what is learnt and leaves the policy as it was, learn_step changes the policy.
Each process plays and trains its own groups. Advantages, weights and metrics cover the whole step.

By default (algorithm=grpo, rollout=game) a step has no KL divergence and no entropy bonus. It makes
one update with all rollouts, so each ratio is 1 and the clip has no effect. Credit is by turn: what
the games of a group earn from one turn on is compared, and divided by its deviation (scale=std).
Each rollout weighs the same, and so do its tokens. Groups without spread stay, and teach nothing.
Tokens are drawn from the whole vocabulary at sampling.temperature, at which they are scored, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from wordle_rl.algorithms.base import Advantages, Array
from wordle_rl.game.rules import Game
from wordle_rl.policy.sampling import planned
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.given import GivenDialogue, dialogue_talk
from wordle_rl.rollouts.kinds import KINDS
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.processes import share
from wordle_rl.training.advantages import (
    credit_rollouts,
    groups_without_spread,
    reward_rollouts,
    share_of_idle_turns,
)
from wordle_rl.training.example_group import ExampleGroup
from wordle_rl.training.metrics import game_metrics, group_metrics, reward_metrics, token_metrics
from wordle_rl.training.secrets import deal_starts
from wordle_rl.training.update import run_updates

_MARKUP = 64  # bytes around a message, more than any usual chat template has


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The rollouts of a step from all processes, not learnt yet, and how they came about."""

    step: int  # counted from 0
    learnt: int  # steps that the policy had learnt when it played
    rollouts: list[Rollout]
    advantages: Advantages
    replaced: list[Rollout] = field(default_factory=list)  # of groups that taught nothing
    course: Mapping[str, float] = field(default_factory=dict)  # the curriculum's metrics after it
    switch: str | None = None  # the stages between which the curriculum then switched
    example: ExampleGroup | None = None  # of a step that is validated, for its report


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The rollouts of a step, from all processes, and how they went."""

    rollouts: list[Rollout]
    advantages: list[Array]  # for each rollout [K], one per turn
    metrics: dict[str, float]
    example: ExampleGroup | None = None  # the sample's, scored before the update

    @property
    def rewards(self) -> list[GameReward]:
        return [rollout.reward for rollout in self.rollouts]


def train_step(step: Step) -> StepResult:
    """Play the games of a step and improve the policy on them."""
    return learn_step(step, sample_step(step))


def sample_step(step: Step) -> Sample:
    """Play the groups of a step, or with data= read as many dialogues. Changes no weight.

    Groups that teach nothing are replaced. A replacement has another secret and takes over the
    group's number. The algorithm's resample limits how often this repeats.
    """
    recipe = step.recipe
    if recipe.dialogues is not None:
        return _read_dialogues(step, recipe.dialogues)
    count = recipe.rollout.groups
    rollouts = play_groups(step, range(count))
    advantages = credit_rollouts(step, rollouts)
    replaced: list[Rollout] = []
    for _ in range(recipe.algorithm.resample):
        idle_groups = groups_without_spread(rollouts, advantages).tolist()
        if not idle_groups:
            break
        spares = range(count, count + len(idle_groups))
        numbers = dict(zip(spares, idle_groups, strict=True))
        count = spares.stop
        replacements = play_groups(step, spares)
        replaced += [rollout for rollout in rollouts if rollout.group in idle_groups]
        rollouts = [rollout for rollout in rollouts if rollout.group not in idle_groups]
        rollouts += [replace(rollout, group=numbers[rollout.group]) for rollout in replacements]
        rollouts.sort(key=lambda rollout: rollout.group)
        advantages = credit_rollouts(step, rollouts)
    return Sample(
        step=step.number,
        learnt=step.number,
        rollouts=rollouts,
        advantages=advantages,
        replaced=replaced,
    )


def learn_step(step: Step, sample: Sample) -> StepResult:
    """Improve the policy on a sample.

    The result has no rollouts if they are dialogues, since no game was played.
    """
    rollouts, groups = sample.rollouts, step.recipe.rollout.groups
    if sample.learnt < sample.step:
        rollouts = [_without_own_scores(rollout) for rollout in rollouts]
    if step.recipe.dialogues is not None:
        metrics = {
            **dict.fromkeys(("train/games", "train/wins", "train/extra_games"), 0.0),
            "train/rows": float(groups),
            **group_metrics(groups=groups, idle=0, replaced=0, skipped=0),
            **token_metrics(rollouts),
            **run_updates(step, rollouts, sample.advantages),
        }
        return StepResult(rollouts=[], advantages=[], metrics=metrics)
    all_rollouts = rollouts + sample.replaced
    idle_turns = share_of_idle_turns(rollouts, sample.advantages)
    num_idle = len(groups_without_spread(rollouts, sample.advantages))
    metrics = {
        **game_metrics(all_rollouts, step.recipe.words),
        **reward_metrics([rollout.reward for rollout in all_rollouts]),
        **group_metrics(
            groups=len({rollout.group for rollout in rollouts}),
            idle=num_idle,
            replaced=len(sample.replaced) // step.recipe.rollout.num_generations,
            skipped=0 if step.recipe.algorithm.needs.zero_advantages else num_idle,
        ),
        "turns/zero_spread": idle_turns,
        "train/extra_games": float(len(sample.replaced)),
        **token_metrics(all_rollouts),
        **run_updates(step, rollouts, sample.advantages),
    }
    advantages = sample.advantages.per_turn
    return StepResult(rollouts=rollouts, advantages=advantages, metrics=metrics)


def _without_own_scores(rollout: Rollout) -> Rollout:
    """A rollout without the scores of an earlier policy, so that the update makes new ones.

    The clip then lies around the policy before the update, as without trainer.lag.
    """
    if rollout.scores is None:
        return rollout
    scores = [{k: v for k, v in score.items() if k == "ref_logprobs"} for score in rollout.scores]
    return replace(rollout, scores=scores)


def play_groups(step: Step, numbers: range) -> list[Rollout]:
    """Play and score the groups with these numbers, shared among all processes.

    Numbers from rollout.groups on belong to replacement groups. A kind of rollouts may add groups
    with the same secrets, see wordle_rl.rollouts.kinds. At most games_at_once games are played at a
    time, and fewer if memory runs out. Draws depend on game and turn alone, so the games are the
    same as all at once.
    """
    settings, processes = step.recipe.rollout, step.policy.processes
    portion = share(len(numbers), processes)
    starts = deal_starts(step.recipe, step.number, numbers[portion.start : portion.stop])
    kind = partial(KINDS[settings.kind], step)
    rollouts = step.portions.play(kind, starts, settings.num_generations, settings.games_at_once)
    return [r for part in processes.gather(reward_rollouts(step, rollouts)) for r in part]


def _read_dialogues(step: Step, dialogues: Sequence[GivenDialogue]) -> Sample:
    """As many dialogues as a step has groups, each as a rollout whose answers all count alike."""
    recipe, processes = step.recipe, step.policy.processes
    groups = recipe.rollout.groups
    positions = range(step.number * groups, (step.number + 1) * groups)
    picks = planned(range(len(dialogues)), recipe.seed, positions)
    with step.policy.timers("data"):
        local_rollouts = [
            Rollout(
                game=Game("", ()),  # a stand-in that is never played
                group=group,
                talks=[dialogue_talk(dialogues[picks[group]], step.form.chat)],
            )
            for group in share(groups, processes)
        ]
    rollouts = [rollout for part in processes.gather(local_rollouts) for rollout in part]
    per_turn = [np.ones(len(rollout.answer_lengths)) for rollout in rollouts]
    advantages = Advantages(per_turn=per_turn)
    return Sample(step=step.number, learnt=step.number, rollouts=rollouts, advantages=advantages)


def check_lengths(dialogues: Sequence[GivenDialogue], chat: Chat, max_context: int) -> None:
    """Raise ValueError unless every dialogue fits into the context."""
    for dialogue in dialogues:
        if dialogue.bytes + _MARKUP * (2 * len(dialogue.exchanges) + 1) > max_context:
            tokens = len(dialogue_talk(dialogue, chat).ids)  # else a token has one byte or more
            if tokens > max_context:
                raise ValueError(
                    f"model.max_context must be {tokens} or more for row {dialogue.row} of data=, "
                    f"not {max_context}; data.split can leave rows out"
                )
