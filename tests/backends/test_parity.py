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
        plain = instantiate(
            "algorithm", resolve(composed(f"algorithm={name}"))["algorithm"], Algorithm, budget=60
        )
        plain = replace(plain, minibatches=1)
        if isinstance(plain, Gspo):  # as published, the first update here takes all ratios outside
            plain = replace(plain, clip_low=0.05, clip_high=0.05)
        if name == "opd":
            plain = replace(plain, reward_weight=1.0)
        for epochs in (1, 2):
            out[f"{name} epochs={epochs}"] = replace(plain, epochs=epochs)
        if isinstance(plain, PolicyGradient):
            more = {"beta": 0.05, "kl": "loss", "entropy": 0.03}
            out[f"{name} with KL and entropy"] = replace(plain, epochs=2, **more)
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
        new = {}
        for name in sorted(self.mlx.machine.weights):
            weight = self.mlx.machine.weights[name]
            new[name] = mx.array(random.normal(size=weight.shape).astype(np.float32) * size)
        self.mlx.machine.weights = new
        self.mlx.machine.refresh_copy()
        with torch.no_grad():
            for name, parameter in self.trained():
                parameter.copy_(torch.from_numpy(np.array(new[name]).T))
        self.torch.machine.refresh_copy()

    def trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        """torch's adapter matrices, by the name of mlx-lm's, which are their transposes."""
        found = []
        for name, weight in self.torch.machine.model.named_parameters():
            if weight.requires_grad:
                name = name.removeprefix("base_model.model.").removesuffix(".default.weight")
                found.append((name.replace("lora_A", "lora_a").replace("lora_B", "lora_b"), weight))
        if self.torch.machine.lm.value_head is not None:
            head = self.torch.machine.lm.value_head.named_parameters()
            found += [(f"value_head.{name}", parameter) for name, parameter in head]
        return found


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
    plain, more = batch(), {}
    if isinstance(algorithm, Dpo):  # sequences 0 and 2 are a pair, and so are 1 and 3
        more["units"] = np.array([5, 2, 5, 2])
    if algorithm.needs.values:
        random = np.random.default_rng(4)
        for name in ("old_values", "targets"):
            more[name] = (random.normal(size=plain.ids.shape) * plain.trained).astype(np.float32)
        more["target_scale"] = 1.7
    if getattr(algorithm, "targets", "sampled") == "distribution":
        more["distributions"] = [distribution(row) for row in plain.trained]
    return replace(plain, **more)


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


def caught(policy: Any) -> list[dict[str, np.ndarray]]:
    """Fills with the gradients of each update to come, which are applied all the same."""
    seen: list[dict[str, np.ndarray]] = []
    if hasattr(policy.machine, "model"):
        apply = policy.machine.apply_gradients

        def catch() -> None:
            trained = Pair(policy, None).trained()
            seen.append({n: p.grad.numpy().T.copy() for n, p in trained if p.grad is not None})

        policy.machine.apply_gradients = [catch, *apply]
    else:
        real = policy.machine.apply_gradients

        def both(gradients: dict[str, mx.array]) -> None:
            seen.append({name: np.array(value) for name, value in gradients.items()})
            real(gradients)

        policy.machine.apply_gradients = both
    return seen


def both_kinds() -> list[Any]:
    """Every algorithm on one kind of model or the other; on both, or with one pass, is slow."""
    cases = []
    for number, name in enumerate(ALGORITHMS):
        for other, kind in enumerate(BUILD):
            slow = (number + other) % 2 or (name.endswith("=1") and name != "grpo epochs=1")
            cases.append(pytest.param(kind, name, marks=[pytest.mark.slow] if slow else []))
    return cases


@pytest.mark.parametrize(("kind", "name"), both_kinds())
def test_the_same_batch_gives_the_same_metrics_and_gradients(kind, name):
    # rows 3, 5, 7, 8, 12, 14 and 15: what holds of torch's loss holds of MLX's
    algorithm = ALGORITHMS[name]
    pair, given = pair_of(kind, micro_batch_tokens=20), batch_for(algorithm)
    for policy in (pair.torch, pair.mlx):
        policy.keep_reference()
        if algorithm.needs.values:
            policy.machine.add_value_head()
    pair.move(2)
    results = []
    for policy in (pair.torch, pair.mlx):
        gradients = caught(policy)
        metrics = update_in_minibatches(policy, algorithm, given, all_rows(given))
        values = policy.values(given) if algorithm.needs.values else np.zeros(1)
        results.append((metrics, gradients, policy.score(given), values))
    (torchs, ours, scores, values), (mlxs, theirs, their_scores, their_values) = results
    assert torchs.keys() == mlxs.keys()
    for metric in torchs:
        assert mlxs[metric] == pytest.approx(torchs[metric], abs=CLOSE, rel=CLOSE), metric
    assert len(ours) == len(theirs) == algorithm.epochs
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for weight in one:
            assert np.abs(one[weight] - other[weight]).max() < CLOSE, weight
        a, b = (np.concatenate([g[n].ravel() for n in sorted(one)]) for g in (one, other))
        assert np.abs(a).max() > 0.01
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9999
    assert np.abs(scores - their_scores).max() < 10 * CLOSE  # after the updates
    assert np.abs(values - their_values).max() < 10 * CLOSE


def test_fully_trained_models_take_the_same_steps():
    fields = {"lr": 1e-3, "weight_decay": 0.1, "clip_grad_norm": 0.5}
    model = qwen()
    before = {n: p.detach().clone().numpy() for n, p in model.named_parameters()}
    mlx = mlx_policy_of(model, **fields)
    torchs = policy_of(model, **fields)
    for _ in range(3):
        for policy in (torchs, mlx):
            assert policy.update(batch(), ALGORITHMS["sft epochs=1"])["update/skipped"] == 0.0
    for name, parameter in model.named_parameters():
        step = parameter.detach().numpy() - before[name]
        apart = np.array(mlx.machine.weights[name]) - parameter.detach().numpy()
        assert np.linalg.norm(step) > 0
        assert np.linalg.norm(apart) < 1e-3 * np.linalg.norm(step), name


@pytest.mark.parametrize("shape", [(8, 64), (64, 8)])
def test_muon_takes_the_steps_of_torchs(shape):
    random = np.random.default_rng(0)
    start, *slopes = random.normal(size=(4, *shape)).astype(np.float32)
    optim = Optim(name="muon", lr=0.1, weight_decay=0.1, momentum=0.9, rest_lr_ratio=0.5)
    weights = {"layer": mx.array(start), "embed_tokens": mx.array(start)}
    ours = Optimizers(weights, optim)
    ours.set_learning_rate(0.1)
    layer, table = (torch.nn.Parameter(torch.from_numpy(start.copy())) for _ in range(2))
    theirs = [
        torch.optim.Muon(
            [layer], lr=0.1, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW([table], lr=0.05, weight_decay=0.1),
    ]
    for slope in slopes:
        weights = ours.apply(weights, {name: mx.array(slope) for name in weights})
        layer.grad, table.grad = torch.from_numpy(slope), torch.from_numpy(slope)
        for optimizer in theirs:
            optimizer.step()
    moved = np.linalg.norm(layer.detach().numpy() - start)
    # Newton-Schulz runs in bfloat16: the steps agree to a few hundredths.
    assert np.linalg.norm(np.array(weights["layer"]) - layer.detach().numpy()) < 0.05 * moved
    assert np.abs(np.array(weights["embed_tokens"]) - table.detach().numpy()).max() < 1e-5


# -- games ----------------------------------------------------------------------------------------


def embedded() -> tuple[Any, Any]:
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
        greedy = Sampling(temperature=0.0, max_tokens=6)
        for talk, answer in zip(
            talks, engine.complete(prompts, greedy, np.zeros((200, 6))), strict=True
        ):
            talk.answer(answer.ids, turn, answer.logprobs)
    return talks


@pytest.mark.parametrize("kind", ["micro", "gemma3"])
def test_200_greedy_games_are_the_same_token_by_token(kind):
    if kind == "micro":  # which really plays
        model, tokenizer = embedded()
    else:  # rows that come round their windows of 4 several times
        model = gemma().eval()
        tokenizer = HFTokenizer(qwen_like_tokenizer(), extra_stop_ids=many_stops(64))
    games = real_games if kind == "micro" else made_up_games
    played = [
        games(policy)
        for policy in (
            policy_of(model, tokenizer, max_context=400),
            mlx_policy_of(model, tokenizer, max_context=400),
        )
    ]
    distinct = {str(talk.ids) for talk in played[0]}
    assert len(distinct) > 50, "the games must differ"
    near = [
        place
        for number, (one, other) in enumerate(zip(*played, strict=True))
        if (place := first_difference(model, number, one, other)) is not None
    ]
    print(f"games that part where two logits are equal within {CLOSE}: {near}")
    assert len(near) <= 2


def first_difference(
    model: Any, number: int, one: Talk, other: Talk
) -> tuple[int, int, float] | None:
    """Game, place and gap of the two best logits where two games part, which must be tiny."""
    for place, (a, b) in enumerate(zip(one.ids, other.ids, strict=False)):
        if a != b:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([one.ids[:place]])).logits[0, -1]
            best = logits.topk(2).values
            gap = float(best[0] - best[1])
            assert gap < CLOSE, (number, place, gap)
            return number, place, gap
    assert len(one.ids) == len(other.ids)
    return None
