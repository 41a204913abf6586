"""trainer.lag: a sample waits, and the policy that learns it is ahead of the one that played it."""

import pytest

from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, run, settings
from tests.helpers.tiny import step_of
from wordle_rl.backends import load_backend
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.training.step import learn_step, sample_step


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("backend", ["lightning", "mlx"])
def test_behind_by_one_a_run_plays_a_step_before_it_learns_the_last(backend, tmp_path, root):
    given = [*settings(tmp_path, "grpo with a reference"), "trainer.lag=1", "trainer.report=false"]
    given = [s for s in given if backend == "lightning" or not s.startswith("backend.")]
    _, folder = run(root, f"backend={backend}", *given)
    setup = build_experiment(resolve(composed(f"backend={backend}", *given)))
    build = load_backend(setup.backend).build_policy
    policy = build(setup.model, setup.backend, temperature=1.0, optim=setup.optim)
    policy.keep_reference()
    steps = [step_of(policy, setup.recipe, number) for number in range(6)]
    waiting = [sample_step(steps[0])]
    for number, step in enumerate(steps):
        policy.set_learning_rate(setup.optim.lr_at(number, len(steps)))
        waiting += map(sample_step, steps[number + 1 : number + 2])
        learn_step(step, waiting.pop(0))
    policy.save(tmp_path)
    places = (tmp_path, *(folder / "checkpoints" / f"step_{n:06d}" for n in (6, 4)))
    by_hand, last, earlier = ((p / "model" / "model.safetensors").read_bytes() for p in places)
    assert by_hand == last != earlier
    told = metrics_of(folder)
    assert [m.get("staleness") for m in told] == [None, 0, 1, 1, 1, 1, 1]
    assert [abs(m["policy/importance"] - 1) > 1e-3 for m in told[1:]] == [False, *[True] * 5]
