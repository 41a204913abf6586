"""One group of GRPO in numbers: what each guess earned, its advantage, and what one update changed.

    python examples/one_group.py          # a few seconds on a CPU
    python examples/one_group.py --secret crane --seed 3

The embedded model mini plays four games on one secret, with the settings of `make demo`. Then one
update is made from this group alone. It is printed as tables in Markdown. docs/GRPO.md explains
them line by line.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
from hydra import compose, initialize_config_dir

from wordle_rl.backends.torch.backend import build_policy
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import marks_of
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.paths import CONF
from wordle_rl.training.advantages import step_advantages
from wordle_rl.training.step import play_groups
from wordle_rl.training.update import pad, run_updates

GAMES = 4  # games of the group
RATE = 1e-3  # the demo's learning rate


def build_step(seed: int, secret: str | None) -> Step:
    """A step of one group, as `python train.py` would build it."""
    overrides = [
        "words.allowed_share=0", "rollout.groups=1",
        f"rollout.num_generations={GAMES}", f"seed={seed}",
        "backend.precision=fp32", "backend.threads=1",
    ]  # fmt: skip
    with initialize_config_dir(str(CONF), version_base="1.3"):
        setup = build_experiment(resolve(compose("config", overrides)))
    policy = build_policy(
        setup.model, setup.backend, temperature=setup.recipe.sampling.temperature, optim=setup.optim
    )
    recipe = setup.recipe
    if secret is not None:
        recipe = dataclasses.replace(recipe, secrets=(secret,))
    form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
    return Step(policy=policy, form=form, recipe=recipe, number=0)


def answer_probabilities(step: Step, talks: list[Talk]) -> list[list[float]]:
    """For each game the probability of each of its answers, all tokens of an answer together."""
    logprobs = step.policy.score(pad(talks, step.form.chat.tokenizer.pad_id))
    return [
        [float(np.exp(row[part.start : part.stop].sum())) for part in talk.answers.values()]
        for row, talk in zip(logprobs, talks, strict=True)
    ]


def describe_group(step: Step) -> list[str]:
    """Play the group, update once, and describe both: lines of Markdown."""
    rollouts = play_groups(step, range(1))
    talks = [rollout.talks[0] for rollout in rollouts]
    advantages = step_advantages(rollouts, step.recipe)
    before = answer_probabilities(step, talks)
    step.policy.machine.set_learning_rate(RATE)
    run_updates(step, rollouts, advantages)
    after = answer_probabilities(step, talks)
    recipe = step.recipe
    returns = [
        recipe.rewards.to_go(rollout.game, rollout.reward, recipe.rollout.discount)
        for rollout in rollouts
    ]
    lines = [
        f"Secret: {rollouts[0].game.secret.upper()}.",
        "",
        "| turn | game | guess | marks | reward | mean | advantage | tokens | p before | p after |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for turn in range(max(len(talk.answers) for talk in talks)):
        games = [i for i, talk in enumerate(talks) if turn in talk.answers]
        mean = sum(returns[i][turn] for i in games) / len(games)
        for i in games:
            record = rollouts[i].game.turns[turn]
            marks = "refused" if record.feedback is None else marks_of(record.feedback)
            tokens = sum(rollouts[i].answer_lengths)
            lines.append(
                f"| {turn + 1} | {i + 1} | {(record.guess or '?').upper()} | {marks} "
                f"| {returns[i][turn]:.4f} | {mean:.4f} | {advantages.per_turn[i][turn]:+.3f} "
                f"| {tokens} | {before[i][turn]:.3g} | {after[i][turn]:.3g} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--secret", help="a word of the answers; default: one of the training words"
    )
    args = parser.parse_args()
    print("\n".join(describe_group(build_step(args.seed, args.secret))))


if __name__ == "__main__":
    main()
