"""What the benchmarks share: options, the model, its games, and facts about the machine."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from wordle_rl.backends.torch.devices import DTYPES, choose_computing
from wordle_rl.backends.torch.load import load_model
from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import LightningSettings, ModelSettings
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.training.secrets import planned

ROOT = Path(__file__).resolve().parent.parent
GROUP = 8  # games on the same secret
MODELS = {
    "tiny": (["model=tiny"], 512),
    "smollm2": (["model=smollm2", "prompt=spelled", "model.max_tokens=12"], 32),
    "qwen0.5b-coder": (["model=qwen0.5b-coder", "prompt=spelled", "model.max_tokens=12"], 16),
}
PLAYS = ("tiny",)  # the models whose answers can win
SMOKE_GAMES = 16
TRIED = 4  # the precision is tried on this fraction of the games


def options(description: str | None, *, tries: bool = False) -> argparse.Namespace:
    """Parses the command line that the benchmarks share. tries: whether --untried can be asked."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = ", ".join(f"{name} {games}" for name, (_, games) in MODELS.items())
    parser.add_argument("--model", choices=sorted(MODELS), default="tiny")
    parser.add_argument("--games", type=int, help=f"a multiple of {GROUP} (default: {sizes})")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each contestant")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    if tries:
        parser.add_argument("--untried", action="store_true", help="try no settings, take bf16")
    args = parser.parse_args()
    if args.games is None:
        args.games = SMOKE_GAMES if args.smoke else MODELS[args.model][1]
    if args.smoke:
        args.repeats = 1
    if args.games < 2 * GROUP or args.games % GROUP:
        parser.error(f"--games must be a multiple of {GROUP}, at least {2 * GROUP}")
    return args


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One model and the games it plays."""

    network: Any  # transformers' model, float32
    model: ModelSettings
    tokenizer: HFTokenizer
    form: Form
    recipe: Recipe
    micro_batch_tokens: int
    max_context: int
    games: int

    @property
    def greedy(self) -> Sampling:
        return dataclasses.replace(self.recipe.sampling, temperature=0.0)

    @property
    def smaller(self) -> Scene:
        """The same scene with fewer games, to try choices on of which some are slow."""
        groups = max(self.games // TRIED // GROUP, 2)
        rollout = dataclasses.replace(self.recipe.rollout, groups=groups)
        recipe = dataclasses.replace(self.recipe, rollout=rollout)
        return dataclasses.replace(self, games=groups * GROUP, recipe=recipe)

    def secrets(self, step: int) -> list[str]:
        """The secret of each game, group by group."""
        groups = self.games // GROUP
        secrets = planned(
            self.recipe.secrets, self.recipe.seed, range(step * groups, (step + 1) * groups)
        )
        return [secret for secret in secrets for _ in range(GROUP)]

    def policy(self, network: Any, precision: Any, optim: Optim | None = None) -> Policy:
        """Our policy, as training builds it: under LoRA the base has the given precision."""
        if precision == "bf16" and adapted_layers(network):
            network = copy.deepcopy(network)
            for parameter in network.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(DTYPES[precision])
        machine = TorchMachine(
            network, self.tokenizer, optim=optim or Optim(lr=0.0), precision=precision
        )
        return Policy(
            machine,
            temperature=self.recipe.sampling.temperature,
            micro_batch_tokens=self.micro_batch_tokens,
            max_context=self.max_context,
        )

    def step(self, policy: Policy, number: int) -> Step:
        """A training step of a policy."""
        return Step(policy=policy, form=self.form, recipe=self.recipe, number=number)


def load_scene(args: argparse.Namespace, *overrides: str) -> Scene:
    """The scene for these options. overrides: further settings of a training config."""
    groups = [
        "experiment=none",
        f"rollout.groups={args.games // GROUP}",
        f"rollout.num_generations={GROUP}",
    ]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", [*MODELS[args.model][0], *groups, *overrides])
    setup = build_experiment(resolve(config))
    assert isinstance(setup.backend, LightningSettings)
    # Each side's precision is chosen by timing its games.
    backend = dataclasses.replace(setup.backend, precision="fp32")
    computing = choose_computing(backend, torch.device("cpu"))
    print(*computing.reasons, sep="\n", flush=True)
    network, tokenizer = load_model(setup.model, precision="fp32", device="cpu")
    network.eval()
    player = copy.copy(tokenizer)
    if args.model not in PLAYS:  # no token ends an answer: nonsense is equal work everywhere
        network.generation_config.eos_token_id = None  # generate would end answers by it
        player.stop_ids = frozenset()
    _move_adapter(network)
    return Scene(
        network=network,
        model=setup.model,
        tokenizer=player,
        form=build_form(setup.recipe.rollout.form, Chat(tokenizer), setup.recipe.style),
        recipe=setup.recipe,
        micro_batch_tokens=setup.backend.tokens_asked,
        max_context=setup.model.max_context,
        games=args.games,
    )


def adapted_layers(network: Any) -> dict[str, Any]:
    """The layers of a LoRA model that have an adapter, by their names in its base."""
    from peft.tuners.lora import LoraLayer

    base = network.get_base_model() if hasattr(network, "peft_config") else network
    return {n: layer for n, layer in base.named_modules() if isinstance(layer, LoraLayer)}


def _move_adapter(network: Any) -> None:
    """Give a fresh adapter an effect, so that all its gradients count."""
    generator = torch.Generator().manual_seed(0)
    for layer in adapted_layers(network).values():
        torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.01, generator=generator)


def machine(*packages: str) -> str:
    """Processor, threads and versions."""
    info = Path("/proc/cpuinfo")
    names = [x for x in info.read_text().split("\n") if "model name" in x] if info.is_file() else []
    model = names[0].split(":")[1].strip() if names else platform.machine()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    kind = torch.backends.cpu.get_cpu_capability()
    return f"{model}, {kind}, {torch.get_num_threads()} threads, {versions}"


def copy_to_play(network: Any, precision: Precision) -> Any:
    """A copy whose weights are cast once, an adapter added to them.

    Rotary frequencies stay exact, as in our engine.
    """
    clone = copy.deepcopy(network)
    if hasattr(clone, "peft_config"):
        clone = clone.merge_and_unload()
    for parameter in clone.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
        parameter.requires_grad_(False)
    return clone


@torch.no_grad()
def copy_weights(network: Any, player: Any) -> None:
    """Copy a model's weights into the copy that copy_to_play made of it."""
    layers = adapted_layers(network)
    for name, layer in layers.items():
        total = layer.get_base_layer().weight + layer.get_delta_weight("default")
        player.get_submodule(name).weight.copy_(total)
    if not layers:
        for target, source in zip(player.parameters(), network.parameters(), strict=True):
            target.copy_(source)
