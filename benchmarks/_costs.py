"""What a training step costs: arithmetic, with constants that were measured or assumed.

A step is rollouts, their rewards, the update and the sum of gradients over the processes. Each is
bound by one thing: computing, reading memory, waiting, or the network.
"""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = 2  # of a number in bf16


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU and its network. The shares say how much of the peak is reached: assumptions."""

    flops: float  # a second, bf16, dense
    memory: float  # bytes a second
    network: float  # bytes a second between machines, per device
    link: float  # bytes a second between the devices of a machine
    per_machine: int
    update_share: float = 0.35
    prefill_share: float = 0.4
    decode_share: float = 0.5  # of the memory's speed
    decode_wait: float = 0.012  # seconds of a decoding step besides: Python, kernels, sampling
    latency: float = 50e-6  # seconds of a message


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that LoRA trains. kv_bytes: of a token's keys and values."""

    name: str
    parameters: float
    kv_bytes: float
    trained: float


@dataclass(frozen=True, kw_only=True)
class Games:
    """The games of a step: how many, and how many tokens a turn reads and writes."""

    count: int
    turns: float = 5.0
    read: int = 40
    written: int = 20
    opening: int = 250  # tokens before the first turn, computed once for all games
    # Of a game on one core of an AMD EPYC, measured with reward=information_allowed.
    reward_seconds: float = 1.7e-3

    @property
    def length(self) -> float:
        return self.opening + self.turns * (self.read + self.written)


# H100 SXM: NVIDIA's data sheet, dense bf16 and HBM3; 400 Gbit/s per GPU between machines.
H100 = Device(flops=989e12, memory=3.35e12, network=50e9, link=450e9, per_machine=8)
# Sizes from the models' config.json; adapters of rank 16 on all linear layers.
MODELS = (
    Model(name="Qwen2.5-1.5B", parameters=1.54e9, kv_bytes=28_672, trained=18.5e6),
    Model(name="Qwen2.5-3B", parameters=3.09e9, kv_bytes=36_864, trained=29.9e6),
    Model(name="Qwen2.5-7B", parameters=7.62e9, kv_bytes=57_344, trained=40.4e6),
)


def step_seconds(model: Model, games: Games, device: Device, processes: int) -> dict[str, float]:
    """Seconds of each part of a step on some processes, of which each has a device."""
    own = games.count / processes
    return {
        "rollouts": _decode(model, games, device, own) + _prefill(model, games, device, own),
        "rewards": own * games.reward_seconds,
        "update": _update(model, games, device, own),
        "sum of gradients": add_up_seconds(4 * model.trained, device, processes),
    }


def _decode(model: Model, games: Games, device: Device, own: float) -> float:
    """Each token reads all weights once for all games, and each game's keys and values."""
    read = _BYTES * model.parameters + own * games.length * 0.7 * model.kv_bytes
    computed = 2 * model.parameters * own / (device.flops * device.prefill_share)
    each = max(read / (device.memory * device.decode_share), computed) + device.decode_wait
    return games.turns * games.written * each


def _prefill(model: Model, games: Games, device: Device, own: float) -> float:
    tokens = own * games.turns * games.read + games.opening
    return 2 * model.parameters * tokens / (device.flops * device.prefill_share)


def _update(model: Model, games: Games, device: Device, own: float) -> float:
    """Forwards once, backwards through the frozen weights once, forwards again (checkpointing)."""
    return 6 * model.parameters * own * games.length / (device.flops * device.update_share)


def add_up_seconds(size: float, device: Device, processes: int) -> float:
    """A ring sum of so many bytes."""
    if processes == 1:
        return 0.0
    speed = device.link if processes <= device.per_machine else device.network
    steps = 2 * (processes - 1)
    return steps * (size / processes / speed + device.latency)


def fit_line(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Seconds that a part costs at least, and per unit of work, from two (work, seconds)."""
    (x, a), (y, b) = first, second
    each = (b - a) / (y - x)
    return a - each * x, each
