"""Another model as the reference, and on-policy distillation from it."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import runs
from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, run, settings, without_clock
from tests.helpers.tiny import batch_of, full_forward, gemma_like_tokenizer, qwen
from wordle_rl.algorithms.base import LossInputs
from wordle_rl.algorithms.opd import Opd
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.files import read_object, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.lineage import RECORD


def test_advantages_are_log_ratios_whose_mean_gradient_is_that_of_the_reverse_kl(backend):
    def loss(xp, logprobs, old, ref, reward, weight=0.0):
        terms = LossInputs(
            logprobs=logprobs, old_logprobs=old, ref_logprobs=ref, advantages=reward, trained=True
        )
        return Opd(reward_weight=weight).loss(xp, terms)[0]

    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    inputs = [*map(np.log, (policy, policy, reference)), np.array([2.0, -1.0, 0.0])]
    # log 0.4, log 2/3 and log 3, then with half the rewards' advantages.
    assert -loss(np, *inputs) == pytest.approx([-0.9162907, -0.4054651, 1.0986123])
    assert -loss(np, *inputs, 0.5) == pytest.approx([0.0837093, -0.9054651, 1.0986123])
    # Where the policy has moved, it is still what the drawn token was worth before.
    losses = loss(np, inputs[0] + 0.1, *inputs[1:])
    assert -losses == pytest.approx(np.exp(0.1) * np.log(reference / policy))
    _, slope = backend.value_and_slope(loss, *inputs)
    # The mean over all tokens, by their logits, against the derivative of sum p log p/q by hand.
    estimate, gap = (policy * slope) @ (np.eye(3) - policy), np.log(policy / reference)
    assert estimate == pytest.approx(policy * (gap - policy @ gap), abs=1e-6)


def test_a_reference_scores_as_its_own_model_over_the_choices_of_a_grammar_too(backend):
    model, ids, places = qwen(seed=1), [3, 9, 4, 11, 12, 20], [3, 5]
    policy = backend.policy_of(qwen(), temperature=0.7)
    batch = batch_of([(ids, [0, 0, 0, 1, 0, 1])], [1.0])
    policy.set_reference(backend.policy_of(model, temperature=0.7), "other")
    expected = full_forward(model, ids, temperature=0.7).detach().numpy()[places]
    assert policy.score(batch, reference=True)[0, places] == pytest.approx(expected, abs=1e-4)
    choices = [np.array([7, 11, 30]), np.array([20, 21])]
    scores = policy.score(replace(batch, choices=[choices]), reference=True)
    for place, pool in zip(places, choices, strict=True):
        logps = [full_forward(model, [*ids[:place], i], temperature=0.7)[-1].item() for i in pool]
        share = np.exp(logps)[pool == ids[place]] / np.exp(logps).sum()
        assert scores[0, place] == pytest.approx(np.log(share.item()), abs=1e-4)
    with pytest.raises(ConfigError, match=r"^algorithm\.reference=far has another tokenizer"):
        policy.set_reference(backend.policy_of(model, HFTokenizer(gemma_like_tokenizer())), "far")


def test_a_reference_whose_games_could_have_test_secrets_is_refused(tmp_path):  # row 38
    def build(*overrides: str) -> Experiment:
        path = f"algorithm.reference={tmp_path / 'model'}"
        return build_experiment(resolve(composed("algorithm=opd", path, *overrides)))

    folder = shutil.copytree(ROOT / "wordle_rl/embedded/mini", tmp_path / "model")
    assert build().reference is not None
    [*stages, stage] = read_object(folder / RECORD)["stages"]
    bad_stage = {**stage, "protocol": "all", "held_out": 0, "run": "knows_all"}
    write_json(folder / RECORD, {"stages": [*stages, bad_stage]})
    with pytest.raises(ConfigError, match="comes from the run knows_all, which may have trained"):
        build()
    assert build("words.protocol=all", "experiment=none").reference is not None


@pytest.mark.usefixtures("quiet")
def test_a_copy_of_the_start_as_reference_changes_no_number(tmp_path, root, refused):  # row 17
    overrides = [*settings(tmp_path, "grammar"), "trainer.steps=3", "trainer.report=false"]
    _, base_run = run(root, *overrides)
    copy = shutil.copytree(tmp_path / "base", tmp_path / "copy")
    _, copy_run = run(root, *overrides, f"algorithm.reference={copy}")
    numbers, copy_numbers = (without_clock(metrics_of(folder)) for folder in (base_run, copy_run))
    assert numbers == copy_numbers and numbers[-1]["policy/kl"] > 0.0
    assert numbers[1]["policy/semantic"] > numbers[-1]["policy/semantic"] > 0.0
    (copy / "config.json").write_text((copy / "config.json").read_text() + "\n")
    assert "copy has changed since" in refused(lambda: runs.resume(copy_run, "trainer.steps=6"))
