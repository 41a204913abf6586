"""trainer.lag: a sample waits, and the policy that learns it is ahead of the one that played it."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.helpers.configs import composed
from tests.helpers.runs import assert_equal_runs, metrics_of, resume, run, settings, stop
from tests.helpers.tiny import batch_of, full_logprobs, plain_copy, qwen, step_of
from tests.helpers.vllm_server import SmallServer
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends import load_backend
from wordle_rl.backends.torch.load import save_adapter
from wordle_rl.backends.vllm import serve
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.rollouts.settings import Step
from wordle_rl.training import pipeline
from wordle_rl.training.step import learn_step, sample_step


@pytest.mark.usefixtures("quiet")
def test_two_behind_a_run_plays_its_own_steps_and_no_others(tmp_path, root, monkeypatch):
    events = []

    def note(work: Callable[..., Any], label: str, step: Step, *sample: Any) -> Any:
        events.append(f"{label} {step.number}")
        return work(step, *sample)

    for verb, name in ("play", "sample_step"), ("learn", "learn_step"):
        monkeypatch.setattr(pipeline, name, partial(note, getattr(pipeline, name), verb))
    overrides = [*settings(tmp_path, "grpo with a reference"), "trainer.lag=2", "trainer.steps=4"]
    _, folder = run(root, *overrides, "trainer.report=false")
    assert events == [
        "play 0",
        "play 1",
        "play 2",
        "learn 0",
        "play 3",
        "learn 1",
        "learn 2",
        "learn 3",
    ]
    steps = metrics_of(folder)[1:]
    assert [m["staleness"] for m in steps] == [0, 1, 2, 2]
    assert steps[0]["policy/importance"] == pytest.approx(1.0, abs=1e-5)
    assert abs(steps[-1]["policy/importance"] - 1.0) > 1e-3
    assert all(m["policy/ratio_gap"] < 1e-5 for m in steps)  # rows 3 and 15


def meeting(meet: Barrier, solo: int, work: Callable[..., Any], step: Step, *sample: Any) -> Any:
    """Do the work when another thread does, too. solo: the step that needs none."""
    if step.number != solo:
        meet.wait()
    return work(step, *sample)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("how", ["backend=lightning", "backend=mlx", "rollout.engine=vllm"])
def test_one_behind_a_run_plays_a_step_before_it_learns_the_last(how, tmp_path, root, monkeypatch):
    args = [*settings(tmp_path, "grpo with a reference"), "trainer.lag=1", "trainer.steps=4", how]
    args = [s for s in args if how != "backend=mlx" or not s.startswith("backend.")]
    with ExitStack() as stack:
        if served := how == "rollout.engine=vllm":
            server = SmallServer(AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval())
            stack.callback(server.close)
            args += [f"vllm.urls=[{server.url}]", "model.lora={rank: 4, alpha: 8}"]
            meet = Barrier(2, timeout=60)  # breaks if one waits to play until the other has learnt
            for name, solo in ("sample_step", 0), ("learn_step", 3):
                work = partial(meeting, meet, solo, getattr(pipeline, name))
                monkeypatch.setattr(pipeline, name, work)
        _, folder = run(root, *args)
        if served:
            (cut_root := root / "cut").mkdir()
            stop(pipeline, "learn_step", 3, signal.SIGTERM, lambda: run(cut_root, *args))
            resume(rerun := next(cut_root.iterdir()))
            assert_equal_runs(folder, rerun)
        setup = build_experiment(resolve(composed(*args)))
        build = load_backend(setup.backend).build_policy
        policy = build(setup.model, setup.backend, temperature=1.0, optim=setup.optim)
        policy.keep_reference()
        if served:
            save = partial(save_adapter, policy.machine.model)
            stack.enter_context(serve(policy, setup, tmp_path, save=save, vocabulary=340))
        steps = [step_of(policy, setup.recipe, number) for number in range(4)]
        queue = [sample_step(steps[0])]
        for number, step in enumerate(steps):
            policy.machine.set_learning_rate(setup.optim.lr_at(number, len(steps)))
            queue += map(sample_step, steps[number + 1 : number + 2])
            learn_step(step, queue.pop(0))
        policy.save(tmp_path)
    places = (tmp_path, *sorted(folder.glob("checkpoints/step_*"))[:-3:-1])
    by_hand, last, earlier = (next(p.glob("model/*.safetensors")).read_bytes() for p in places)
    assert by_hand == last != earlier
    assert [m.get("staleness") for m in metrics_of(folder)] == [None, 0, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1e6, 2.0])
def test_without_the_cap_an_earlier_policys_draws_have_the_mean_gradient_of_this_one(backend, cap):
    """Over all pairs of one-token answers, each judged against the mean of its pair."""
    begin, rewards = [3, 9, 4], np.random.default_rng(0).normal(size=64)
    model, plain = qwen(factor=9.0), plain_copy(qwen(factor=9.0))
    shares = plain(input_ids=torch.tensor([begin])).logits[0, -1].double().softmax(-1)
    (-0.5 * shares @ torch.from_numpy(rewards)).backward()  # half: the mean has the answer itself
    expected = torch.cat([p.grad.ravel() for p in plain.parameters()])

    algorithm = Grpo(beta=0.0, scale="none", importance_cap=cap)
    rows = [[*begin, token] for token in range(64)]
    old_logprobs = [full_logprobs(qwen(seed=1, factor=9.0), row) for row in rows]
    probabilities = np.exp([logprobs[-1] for logprobs in old_logprobs])
    pairs = np.stack(np.broadcast_arrays(rewards[:, None], rewards), axis=-1).reshape(-1, 2)
    advantages = algorithm.compare(pairs)[:, 0].reshape(64, 64) @ probabilities
    batch = batch_of(
        [(row, [0, 0, 0, 1]) for row in rows],
        advantages.tolist(),
        weights=probabilities.tolist(),
        sampler=[logprobs.tolist() for logprobs in old_logprobs],
    )
    gradients = backend.gradients(backend.policy_of(model), batch, algorithm)
    slope = torch.cat([torch.as_tensor(gradients[n]).ravel() for n, _ in plain.named_parameters()])
    gap = (slope - expected).norm() / expected.norm()
    assert gap < 1e-4 if cap > 2.0 else gap > 0.1
