"""Settings of model=, backend= and vllm=, checked before anything heavy is imported."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from wordle_rl.policy import models
from wordle_rl.policy.optim import LearningRate
from wordle_rl.policy.sampling import Tokens
from wordle_rl.runs.files import read_object
from wordle_rl.runs.instantiate import MOST_GAMES, ConfigError, Count, Within
from wordle_rl.runs.processes import read_launch

Vocabulary = Literal["letters", "words"]
AskedPrecision = Literal["auto", "fp32", "bf16"]
_SIZES = {"hidden_size", "layers", "heads", "kv_heads", "intermediate_size"}
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters (arXiv 2106.09685) instead of full fine-tuning."""

    rank: Annotated[int, Within(1, 100_000)] = 16
    alpha: Annotated[float, Within(0, 1_000_000, "(]")] = 32.0
    # For other trainers only; this program always switches dropout off.
    dropout: Annotated[float, Within(0, 1, "[)")] = 0.0
    targets: Literal["all-linear"] | list[str] = "all-linear"  # ends of the names of layers


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which model, how it is trained, and how long its answers may be.

    path: a hub name, a local folder, embedded/tiny, fetched/smollm2, or untrained (see
    wordle_rl.backends.tiny_model for its shape). revision: branch, tag or commit of a hub name.
    """

    name: str
    path: str
    learning_rate: LearningRate  # the default of optim.lr
    max_tokens: Tokens
    max_context: Annotated[int, Within(16, 10_000_000)]
    lora: LoraSettings | None = None
    shape: dict[str, Annotated[int, Within(1, 100_000)] | Vocabulary] = field(default_factory=dict)
    seed: Annotated[int, Within(0, 2**63 - 1)] = 0
    quantize: Literal["4bit"] | None = None  # of a frozen base
    revision: str = models.MAIN
    only_scores: bool = False  # whether it only scores; filled in by the program
    any_base: bool = False  # whether an adapter may be on another model; filled in by the program
    backend: Literal["lightning", "mlx"] | None = None  # the only one that loads this model, if any
    # Outside training; limits the memory for keys and values.
    games_at_once: Annotated[int, Within(1, MOST_GAMES)] = 512

    def __post_init__(self) -> None:
        trains_all = self.path == models.UNTRAINED or (self.lora is None and not self.is_adapter)
        if self.quantize is not None and trains_all:
            raise ValueError(
                "model.quantize needs a trained model with an adapter, such as "
                "model.lora={rank: 16}: rounded weights cannot be trained"
            )
        if self.path == models.UNTRAINED:
            self._check_shape()
        elif self.shape:
            raise ValueError(f"model.shape is for model.path={models.UNTRAINED}, not {self.path!r}")
        else:
            self._check_path()

    def _check_shape(self) -> None:
        sizes = {key: size for key, size in self.shape.items() if key != "vocabulary"}
        if sizes.keys() != _SIZES or not all(isinstance(size, int) for size in sizes.values()):
            raise ValueError(f"model.shape must have the numbers {', '.join(sorted(_SIZES))}")
        hidden, heads, kv_heads = (int(sizes[k]) for k in ("hidden_size", "heads", "kv_heads"))
        if hidden % (2 * heads) or heads % kv_heads:
            raise ValueError(
                "model.shape.hidden_size must be a multiple of twice model.shape.heads, and that "
                f"one of model.shape.kv_heads, not {hidden}, {heads} and {kv_heads}"
            )

    def _check_path(self) -> None:
        """Check without loading that the path is a model's folder or a hub name."""
        base, path = self.path, Path(self.path)
        if base.startswith("embedded/") and self.is_adapter:
            config = read_object(Path(self.location) / "adapter_config.json")
            base = config.get("base_model_name_or_path") or base
        if models.fetch_command(base) and not models.holds_model(Path(models.locate(base))):
            raise ValueError(
                f"model.path={self.path} needs {base}, which was not fetched yet: run "
                f"{models.fetch_command(base)} once"
            )
        ours = self.path.startswith(("embedded/", "fetched/"))
        if (path.exists() or ours) and not models.holds_model(Path(self.location)):
            hits = [f"embedded/{p.name}" for p in sorted(models.EMBEDDED.glob("*"))] if ours else []
            hits += [str(path / "model")] if models.holds_model(path / "model") else []
            raise ValueError(
                f"model.path={self.path} is no model folder: it needs config.json or "
                f"adapter_config.json, and weights as *.safetensors or *.bin"
                + f"; there is {', '.join(hits)}"
                * bool(hits)
            )
        if not path.exists() and not models.may_be_on_hub(self.path):
            raise ValueError(
                f"model.path={self.path!r}: no such folder; give one, a hub name such as "
                f"Qwen/Qwen2.5-3B-Instruct, embedded/tiny or {models.UNTRAINED}"
            )
        if self.revision != models.MAIN and (path.exists() or ours):
            raise ValueError(f"model.revision={self.revision} needs a hub name in model.path")

    @property
    def is_adapter(self) -> bool:
        """Whether the model is an adapter's folder, whose adapter is trained."""
        return (Path(self.location) / "adapter_config.json").is_file()

    @property
    def location(self) -> str:
        """A hub name, or the folder that holds the model."""
        return models.locate(self.path)


class BackendSettings:
    """What the settings of all backends have in common."""

    module: ClassVar[str]  # has train() and build_policy(); imported late
    name: ClassVar[str]
    devices: int
    precision: AskedPrecision | Literal["fp16"]
    micro_batch_tokens: Count | Literal["auto"]

    @property
    def tokens_asked(self) -> int:
        """Tokens of a micro-batch, before a memory plan changes them."""
        return 4096 if self.micro_batch_tokens == "auto" else self.micro_batch_tokens

    @property
    def processes(self) -> int:
        """How many processes train together, on all machines."""
        launch = read_launch()
        return self.devices if launch is None else launch.size

    @property
    def processes_here(self) -> int:
        """How many of them share this machine."""
        launch = read_launch()
        return self.devices if launch is None else launch.local_size


@dataclass(frozen=True, kw_only=True)
class LightningSettings(BackendSettings):
    """How the Lightning backend computes."""

    module = "wordle_rl.backends.torch.backend"
    name = "lightning"
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: AskedPrecision | Literal["fp16"] = "auto"
    devices: Annotated[int, Within(1, 1024)] = 1
    micro_batch_tokens: Count | Literal["auto"] = "auto"
    gradient_checkpointing: bool = False
    cuda_graphs: bool = False
    threads: Annotated[int, Within(1, 1024)] | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.precision == "fp16" and self.accelerator == "mps":
            raise ConfigError("backend.precision must be auto, fp32 or bf16 on mps, not fp16")


@dataclass(frozen=True, kw_only=True)
class MlxSettings(BackendSettings):
    """How the MLX backend computes: Apple silicon, or the CPU on Linux."""

    module = "wordle_rl.backends.mlx.backend"
    name = "mlx"
    devices = 1
    precision: AskedPrecision = "auto"
    micro_batch_tokens: Count = 4096
    gradient_checkpointing: bool = False
    cache_gb: Annotated[float, Within(0, 1_000_000)] = 2.0


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where the servers are, how adapters reach them, and how long a run waits for them.

    most_gap: nats a token.
    """

    urls: list[str] = field(default_factory=lambda: ["http://127.0.0.1:8000"])
    folder: str | None = None
    prompts_at_once: Annotated[int, Within(1, 100_000)] = 64
    timeout: Annotated[float, Within(0, 100_000, "(]")] = 300.0
    retries: Annotated[int, Within(0, 1000)] = 10
    most_gap: Annotated[float, Within(0, 100, "(]")] = 0.1

    def __post_init__(self) -> None:
        if not self.urls or not all(map(_URL.fullmatch, self.urls)):
            raise ConfigError(
                "vllm.urls must name servers like http://host:8000, without a password, not "
                f"{self.urls}"
            )
