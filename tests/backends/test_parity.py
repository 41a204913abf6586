"""One set of weights on both backends: the same scores, losses, metrics, gradients and games.

Every algorithm of conf/algorithm is tested, so a new one is as soon as it has its file.
"""

from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

from tests.helpers.configs import OPTIONS, composed
from tests.helpers.mlx_tiny import mlx_policy_of, settings_of
from tests.helpers.tiny import batch_of, gemma, many_stops, policy_of, qwen, qwen_like_tokenizer
from wordle_rl.algorithms.base import Algorithm
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.backends.mlx.optimizers import Optimizers
from wordle_rl.backends.torch.load import add_lora, load_model
from wordle_rl.commands.build import resolve
from wordle_rl.game.rules import Rules
from wordle_rl.policy.batch import Batch, TokenTargets
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.training.update import update_in_minibatches
from wordle_rl.words.lists import load_words

CLOSE = 1e-4
ROWS = [
    ([3, 9, 4, 11, 12, 5, 6, 20, 21, 22], [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]),
    ([3, 50], [0, 1]),
    ([3, 9, 30, 31, 7, 8, 40], [0, 0, 1, 1, 0, 0, 1]),
    ([7, 8, 9, 10, 11, 12, 13, 14], [0, 0, 0, 0, 0, 1, 1, 1]),
]
BUILD = {"qwen2": qwen, "gemma3": gemma}


def algorithms() -> dict[str, Algorithm]:
    """Each algorithm as shipped with one pass over a batch and with two; also with KL, entropy."""
    out = {}
    for name in OPTIONS["algorithm"]:
        method = instantiate(
            "algorithm", resolve(composed(f"algorithm={name}"))["algorithm"], Algorithm, budget=60
        )
        method = replace(method, minibatches=1)
        if isinstance(method, Gspo):  # as published, the first update here takes all ratios outside
            method = replace(method, clip_low=0.05, clip_high=0.05)
        if name == "opd":
            method = replace(method, reward_weight=1.0)
        for epochs in (1, 2):
            out[f"{name} epochs={epochs}"] = replace(method, epochs=epochs)
        if isinstance(method, PolicyGradient):
            fields = {"beta": 0.05, "kl": "loss", "entropy": 0.03}
            out[f"{name} with KL and entropy"] = replace(method, epochs=2, **fields)
    return out


ALGORITHMS = algorithms()


@dataclass
class Pair:
    torch: Any  # Policy
    mlx: Any  # Policy

    def move(self, seed: int, size: float = 0.2) -> None:
        """Both adapters to the same new place, where no gradient is zero by construction.

        size: standard deviation of the new weights.
        """
        random = np.random.default_rng(seed)
        weights = {}
        for name in sorted(self.mlx.machine.weights):
            weight = self.mlx.machine.weights[name]
            weights[name] = mx.array(random.normal(size=weight.shape).astype(np.float32) * size)
        self.mlx.machine.weights = weights
        self.mlx.machine.refresh_copy()
        with torch.no_grad():
            for name, parameter in self.parameters():
                parameter.copy_(torch.from_numpy(np.array(weights[name]).T))
        self.torch.machine.refresh_copy()

    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """torch's adapter matrices, by the name of mlx-lm's, which are their transposes."""
        pairs = []
        for name, weight in self.torch.machine.model.named_parameters():
            if weight.requires_grad:
                name = name.removeprefix("base_model.model.").removesuffix(".default.weight")
                pairs.append((name.replace("lora_A", "lora_a").replace("lora_B", "lora_b"), weight))
        if self.torch.machine.lm.value_head is not None:
            head = self.torch.machine.lm.value_head.named_parameters()
            pairs += [(f"value_head.{name}", parameter) for name, parameter in head]
        return pairs


def pair_of(kind: str, **settings: Any) -> Pair:
    settings = {"lr": 1e-3, **settings}
    lora = LoraSettings(rank=4, alpha=8.0)
    model = add_lora(BUILD[kind](), lora, seed=0)
    pair = Pair(policy_of(model, **settings), mlx_policy_of(model, **settings))
    pair.move(1)
    return pair


def batch() -> Batch:
    sampler = [[-0.5 * m for m in marks] for _, marks in ROWS]
    return batch_of(ROWS, [0.7, -1.3, 0.4, 0.9], weights=[0.1, 0.05, 0.3, 0.2], sampler=sampler)


def batch_for(algorithm: Algorithm) -> Batch:
    """The batch with all that an algorithm asks of one."""
    base, fields = batch(), {}
    if isinstance(algorithm, Dpo):  # sequences 0 and 2 are a pair, and so are 1 and 3
        fields["units"] = np.array([5, 2, 5, 2])
    if algorithm.needs.values:
        random = np.random.default_rng(4)
        for name in ("old_values", "targets"):
            fields[name] = (random.normal(size=base.ids.shape) * base.trained).astype(np.float32)
        fields["target_scale"] = 1.7
    if getattr(algorithm, "targets", "sampled") == "distribution":
        fields["distributions"] = [distribution(row) for row in base.trained]
    return replace(base, **fields)


def distribution(trained: np.ndarray) -> TokenTargets:
    """One to three tokens at each trained place."""
    random = np.random.default_rng(len(trained))
    counts = [1 + int(place) % 3 for place in np.flatnonzero(trained)]
    return TokenTargets(
        places=np.repeat(np.flatnonzero(trained), counts),
        ids=np.concatenate([random.choice(64, count, replace=False) for count in counts]),
        probabilities=np.concatenate([np.full(c, 1 / c, np.float32) for c in counts]),
    )


def all_rows(batch: Batch) -> Any:
    """What updating.update() takes: every epoch is one update on the whole batch."""
    weights = batch.weights.max(axis=1).astype(np.float64)
    return lambda epoch: [(np.arange(len(batch.ids)), weights)]


def catch_gradients(policy: Any) -> list[dict[str, np.ndarray]]:
    """Fills with the gradients of each update to come, which are applied all the same."""
    updates: list[dict[str, np.ndarray]] = []
    if hasattr(policy.machine, "model"):
        apply = policy.machine.apply_gradients

        def catch() -> None:
            params = Pair(policy, None).parameters()
            updates.append({n: p.grad.numpy().T.copy() for n, p in params if p.grad is not None})

        policy.machine.apply_gradients = [catch, *apply]
    else:
        method = policy.machine.apply_gradients

        def record(gradients: dict[str, mx.array]) -> None:
            updates.append({name: np.array(value) for name, value in gradients.items()})
            method(gradients)

        policy.machine.apply_gradients = record
    return updates


def both_kinds() -> list[Any]:
    """Every algorithm on one kind of model or the other; on both, or with one pass, is slow."""
    cases = []
    for number, name in enumerate(ALGORITHMS):
        for index, kind in enumerate(BUILD):
            slow = (number + index) % 2 or (name.endswith("=1") and name != "grpo epochs=1")
            cases.append(pytest.param(kind, name, marks=[pytest.mark.slow] if slow else []))
    return cases


@pytest.mark.parametrize(("kind", "name"), both_kinds())
def test_the_same_batch_gives_the_same_metrics_and_gradients(kind, name):
    # rows 3, 5, 7, 8, 12, 14 and 15: what holds of torch's loss holds of MLX's
    algorithm = ALGORITHMS[name]
    pair, data = pair_of(kind, micro_batch_tokens=20), batch_for(algorithm)
    for policy in (pair.torch, pair.mlx):
        policy.keep_reference()
        if algorithm.needs.values:
            policy.machine.add_value_head()
    pair.move(2)
    results = []
    for policy in (pair.torch, pair.mlx):
        gradients = catch_gradients(policy)
        metrics = update_in_minibatches(policy, algorithm, data, all_rows(data))
        values = policy.values(data) if algorithm.needs.values else np.zeros(1)
        results.append((metrics, gradients, policy.score(data), values))
    (stats, steps, scores, values), (mlx_stats, mlx_steps, mlx_scores, mlx_values) = results
    assert stats.keys() == mlx_stats.keys()
    for metric in stats:
        assert mlx_stats[metric] == pytest.approx(stats[metric], abs=CLOSE, rel=CLOSE), metric
    assert len(steps) == len(mlx_steps) == algorithm.epochs
    for grads, mlx_grads in zip(steps, mlx_steps, strict=True):
        assert grads.keys() == mlx_grads.keys()
        for weight in grads:
            assert np.abs(grads[weight] - mlx_grads[weight]).max() < CLOSE, weight
        a, b = (np.concatenate([g[n].ravel() for n in sorted(grads)]) for g in (grads, mlx_grads))
        assert np.abs(a).max() > 0.01
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9999
    assert np.abs(scores - mlx_scores).max() < 10 * CLOSE  # after the updates
    assert np.abs(values - mlx_values).max() < 10 * CLOSE


def test_fully_trained_models_take_the_same_steps():
    fields = {"lr": 1e-3, "weight_decay": 0.1, "clip_grad_norm": 0.5}
    model = qwen()
    before = {n: p.detach().clone().numpy() for n, p in model.named_parameters()}
    mlx_policy = mlx_policy_of(model, **fields)
    torch_policy = policy_of(model, **fields)
    for _ in range(3):
        for policy in (torch_policy, mlx_policy):
            assert policy.update(batch(), ALGORITHMS["sft epochs=1"])["update/skipped"] == 0.0
    for name, parameter in model.named_parameters():
        step = parameter.detach().numpy() - before[name]
        gap = np.array(mlx_policy.machine.weights[name]) - parameter.detach().numpy()
        assert np.linalg.norm(step) > 0
        assert np.linalg.norm(gap) < 1e-3 * np.linalg.norm(step), name


@pytest.mark.parametrize("shape", [(8, 64), (64, 8)])
def test_muon_takes_the_steps_of_torchs(shape):
    random = np.random.default_rng(0)
    start, *slopes = random.normal(size=(4, *shape)).astype(np.float32)
    optim = Optim(name="muon", lr=0.1, weight_decay=0.1, momentum=0.9, rest_lr_ratio=0.5)
    weights = {"layer": mx.array(start), "embed_tokens": mx.array(start)}
    optimizers = Optimizers(weights, optim)
    optimizers.set_learning_rate(0.1)
    layer, table = (torch.nn.Parameter(torch.from_numpy(start.copy())) for _ in range(2))
    torch_optimizers = [
        torch.optim.Muon(
            [layer], lr=0.1, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW([table], lr=0.05, weight_decay=0.1),
    ]
    for slope in slopes:
        weights = optimizers.apply(weights, {name: mx.array(slope) for name in weights})
        layer.grad, table.grad = torch.from_numpy(slope), torch.from_numpy(slope)
        for optimizer in torch_optimizers:
            optimizer.step()
    distance = np.linalg.norm(layer.detach().numpy() - start)
    # Newton-Schulz runs in bfloat16: the steps agree to a few hundredths.
    assert np.linalg.norm(np.array(weights["layer"]) - layer.detach().numpy()) < 0.05 * distance
    assert np.abs(np.array(weights["embed_tokens"]) - table.detach().numpy()).max() < 1e-5


# -- games ----------------------------------------------------------------------------------------


def embedded_model() -> tuple[Any, Any]:
    """The embedded model micro, which really plays."""
    settings = settings_of("embedded/micro")
    model, tokenizer = load_model(settings, precision="fp32", device="cpu")
    return model.eval(), tokenizer


def real_games(policy: Any) -> list[Talk]:
    words = load_words()
    player = ModelPlayer(
        engine=policy.engine(),
        form=build_form("conversation", Chat(policy.tokenizer), Symbols()),
        sampling=Sampling(temperature=0.0, max_tokens=12),
        draws=Draws(seed=0),
    )
    secrets = [words.answers[i * 11] for i in range(200)]
    games = play(player, new_games(secrets, words, Rules(max_turns=4)))
    return [talk for [talk] in player.all_talks(games)]


def made_up_games(policy: Any) -> list[Talk]:
    """Any tokens of any number in the place of prompts and feedback."""
    random = np.random.default_rng(0)
    engine, talks = policy.engine(), [Talk() for _ in range(200)]
    for turn in range(3):
        for talk in talks:
            talk.hear(random.integers(0, 64, random.integers(1, 10)).tolist(), turn)
        prompts = [talk.ids for talk in talks]
        sampling = Sampling(temperature=0.0, max_tokens=6)
        for talk, answer in zip(
            talks, engine.complete(prompts, sampling, np.zeros((200, 6))), strict=True
        ):
            talk.answer(answer.ids, turn, answer.logprobs)
    return talks


@pytest.mark.parametrize("kind", ["micro", "gemma3"])
def test_200_greedy_games_are_the_same_token_by_token(kind):
    if kind == "micro":  # which really plays
        model, tokenizer = embedded_model()
    else:  # rows that come round their windows of 4 several times
        model = gemma().eval()
        tokenizer = HFTokenizer(qwen_like_tokenizer(), extra_stop_ids=many_stops(64))
    games = real_games if kind == "micro" else made_up_games
    results = [
        games(policy)
        for policy in (
            policy_of(model, tokenizer, max_context=400),
            mlx_policy_of(model, tokenizer, max_context=400),
        )
    ]
    texts = {str(talk.ids) for talk in results[0]}
    assert len(texts) > 50, "the games must differ"
    differences = [
        place
        for number, (talk_a, talk_b) in enumerate(zip(*results, strict=True))
        if (place := first_difference(model, number, talk_a, talk_b)) is not None
    ]
    print(f"games that part where two logits are equal within {CLOSE}: {differences}")
    assert len(differences) <= 2


def first_difference(
    model: Any, number: int, talk: Talk, twin: Talk
) -> tuple[int, int, float] | None:
    """Game, place and gap of the two best logits where two games part, which must be tiny."""
    for place, (a, b) in enumerate(zip(talk.ids, twin.ids, strict=False)):
        if a != b:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([talk.ids[:place]])).logits[0, -1]
            values = logits.topk(2).values
            gap = float(values[0] - values[1])
            assert gap < CLOSE, (number, place, gap)
            return number, place, gap
    assert len(talk.ids) == len(twin.ids)
    return None
