"""The group that a report tells: rewards and advantages by hand, probabilities by transformers."""

import statistics
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.helpers.backends import Backend
from tests.helpers.talks import turns_of
from tests.helpers.tiny import (
    full_logprobs,
    guessing_tokenizer,
    policy_of,
    qwen,
    recipe_of,
    step_of,
)
from tests.training.whole_step import Moment
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.training.checkpoint import RunState
from wordle_rl.training.curricula import Curriculum
from wordle_rl.training.example_group import choose_example
from wordle_rl.training.experiment import TrainerSettings
from wordle_rl.training.pipeline import Pipeline
from wordle_rl.training.step import sample_step

TEMPERATURE = 0.8
KINDS = {
    "by turn": {"credit": "turn", "discount": 0.5},
    "by game": {"credit": "game"},
    "guesses of a state": {"credit": "turn", "kind": "best_of"},
    "behind by one": {"credit": "turn", "discount": 0.0, "lag": 1},
}


def reward(turn: Any) -> float:
    return 2.0 * turn.won + 0.1 * turn.tokens


class Run:
    """Two steps of a small policy, of which the second is validated."""

    def __init__(self, backend: Backend, settings: dict[str, Any], *, report: bool = True) -> None:
        self.fields = dict(settings)
        trainer = TrainerSettings(
            steps=2, validate_every=2, lag=self.fields.pop("lag", 0), report=report
        )
        sampling = Sampling(temperature=TEMPERATURE, max_tokens=8)
        recipe = recipe_of(
            Grpo(beta=0.0), reward, groups=3, num_generations=4, sampling=sampling, **self.fields
        )
        self.policy = backend.policy_of(
            qwen(340), guessing_tokenizer(), temperature=TEMPERATURE, lr=3e-2, max_context=900
        )
        curriculum = Curriculum(rewards=recipe.rewards)
        setup: Any = SimpleNamespace(recipe=recipe, trainer=trainer, curriculum=curriculum)
        pipeline = Pipeline(setup, step_of(self.policy, recipe))
        state, self.fed, update = RunState(), [], self.policy.update

        def watch(batch: Any, algorithm: Any) -> Any:
            self.fed.append((batch, Moment.of(qwen(340), backend.weights_of(self.policy))))
            return update(batch, algorithm)

        self.policy.update = watch
        self.results = [pipeline.advance(state, lambda: None)[1] for _ in range(2)]
        self.end = Moment.of(qwen(340), backend.weights_of(self.policy))

    def earned(self, rollout: Rollout) -> list[float]:
        """What each guess is compared by."""
        pay = [reward(turn) for turn in rollout.game.turns]
        if self.fields["credit"] == "game":
            return [sum(pay)] * len(pay)
        d = self.fields.get("discount", 1.0)
        return [sum(d ** (j - i) * pay[j] for j in range(i, len(pay))) for i in range(len(pay))]

    def first_that_teaches(self) -> list[Rollout]:
        for _, members in groupby(self.results[1].rollouts, lambda rollout: rollout.group):
            group = [*members]
            turns = max(len(rollout.game.turns) for rollout in group)
            values = [{round(v, 6) for v in self.at(group, k)} for k in range(turns)]
            if any(len(numbers) > 1 for numbers in values):
                return group
        raise AssertionError("no group teaches")

    def at(self, group: list[Rollout], turn: int) -> list[float]:
        """What is compared at a turn: a game is whole, whenever it ended."""
        if self.fields["credit"] == "game":
            return [self.earned(rollout)[0] for rollout in group]
        return [self.earned(r)[turn] for r in group if len(r.game.turns) > turn]


def answers(rollout: Rollout) -> list[tuple[list[int], range]]:
    """Of each answer the ids of its conversation, and where it is."""
    return [(talk.ids, part) for talk in rollout.talks for part in talk.answers.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_of_the_group_is_that_of_the_step(kind: str, backend: Backend) -> None:
    run = Run(backend, KINDS[kind])
    example = run.results[1].example
    assert example is not None and run.results[0].example is None
    record, group = example.after_update(run.policy), run.first_that_teaches()
    assert record["secret"] == group[0].game.secret
    records = iter(record["guesses"])
    batch, before = run.fed[-1]
    for number, rollout in enumerate(group, 1):
        for k, (ids, part) in enumerate(answers(rollout)):
            entry, turn = next(records), rollout.game.turns[k]
            rewards = run.at(group, k)
            mean = statistics.mean(rewards)
            spread = statistics.stdev(rewards) if max(rewards) - min(rewards) > 1e-9 else 0.0
            advantage = (run.earned(rollout)[k] - mean) / spread if spread else 0.0
            assert (entry["game"], entry["turn"], entry["guess"]) == (number, k, turn.guess)
            assert entry["clues"] == [[clue.guess, clue.marks] for clue in turn.state.clues]
            assert entry["tokens"] == len(part) == len(turns_of(rollout.talks)[k].ids)
            assert record["means"][k] == pytest.approx(mean)
            assert entry["reward"] == pytest.approx(run.earned(rollout)[k])
            assert sum(entry["parts"].values()) == pytest.approx(entry["reward"])
            assert entry["advantage"] == pytest.approx(advantage, abs=1e-9)
            row = next(i for i, n in enumerate(batch.lengths) if [*batch.ids[i, :n]] == ids[:n])
            assert batch.advantages[row, part] == pytest.approx(entry["advantage"], abs=1e-5)
            for moment, name in (before, "before"), (run.end, "after"):
                logprobs = full_logprobs(moment.model, ids, temperature=TEMPERATURE)
                assert entry[name] == pytest.approx(logprobs[part].sum(), abs=2e-3), name
    assert next(records, None) is None
    shifts = [abs(guess["after"] - guess["before"]) for guess in record["guesses"]]
    assert max(shifts) > 0.1  # far above what rounding does


def test_telling_a_group_changes_no_draw_and_no_weight(backend: Backend) -> None:
    run, control = (Run(backend, KINDS["by turn"], report=report) for report in (True, False))
    assert run.results[1].example is not None and control.results[1].example is None
    for result, expected in zip(run.results, control.results, strict=True):
        assert [r.talks for r in result.rollouts] == [r.talks for r in expected.rollouts]
        assert result.metrics == expected.metrics
    for name, weight in run.end.weights.items():
        assert torch.equal(weight, control.end.weights[name]), name


def test_where_no_group_has_spread_the_first_is_told_and_an_imitation_has_none() -> None:
    recipe = recipe_of(Grpo(beta=0.0), lambda turn: 1.0, credit="turn", discount=0.0)
    sample = sample_step(step_of(policy_of(qwen(340), guessing_tokenizer()), recipe, 0))
    example = choose_example(recipe, sample.rollouts, sample.advantages)
    assert example is not None
    assert not any(entry["advantage"] for entry in example.record["guesses"])
    assert example.rollouts == [rollout for rollout in sample.rollouts if rollout.group == 0]
    imitation = replace(recipe, algorithm=Sft())
    assert choose_example(imitation, sample.rollouts, sample.advantages) is None
