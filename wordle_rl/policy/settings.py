"""Settings of model=, backend= and vllm=, checked before anything heavy is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from wordle_rl.game.feedback_table import cache_folder
from wordle_rl.policy.optim import MOST_LEARNING_RATE
from wordle_rl.policy.sampling import MOST_TOKENS
from wordle_rl.runs.errors import SMOLLM2
from wordle_rl.runs.files import check_entries, read_object
from wordle_rl.runs.instantiate import (
    MOST,
    MOST_GAMES,
    ConfigError,
    check_above_zero,
    check_choice,
    check_range,
    check_seed,
    check_type,
)
from wordle_rl.runs.processes import read_launch

UNTRAINED = "untrained"
EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
FETCHED = {"smollm2": SMOLLM2}  # models that a command fetches, once, and that command
_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)
Vocabulary = Literal["letters", "words"]
MAIN = "main"  # the newest revision of a hub model
_REVISION = re.compile(r"[\w][\w./-]*", re.ASCII)
LM_HEAD = "lm_head"  # the language-model head's name in transformers
_PRECISIONS = ("auto", "bf16", "fp32")
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def locate(name: str) -> str:
    """The folder of an embedded or a fetched model; any other folder or hub name as it is."""
    kind, _, model = name.partition("/")
    if kind == "embedded":
        return str(EMBEDDED / model)
    return str(fetched_folder(model)) if kind == "fetched" else name


def base_of_embedded(name: str) -> str | None:
    """The name of the model under an embedded adapter. None for everything else."""
    config = Path(locate(name)) / "adapter_config.json"
    if not name.startswith("embedded/") or not config.is_file():
        return None
    described = read_object(config)
    check_entries(config, described, {"base_model_name_or_path": str | None})
    return described.get("base_model_name_or_path")


def may_be_on_hub(name: str) -> bool:
    """Whether a name has the form of the hub's names, such as Qwen/Qwen2.5-3B-Instruct."""
    return _HUB_NAME.fullmatch(name) is not None


def fetched_folder(model: str) -> Path:
    """Where a fetched model is kept: $WORDLE_RL_CACHE/models, else ~/.cache/wordle-rl/models."""
    return cache_folder() / "models" / model


def fetch_command(name: str) -> str | None:
    """The command that fetches a model of this name. None where there is none."""
    kind, _, model = name.partition("/")
    return FETCHED.get(model) if kind == "fetched" else None


def portable_name(location: str) -> str:
    """The opposite of locate(): a name that means the same model on other machines."""
    path = Path(location)
    for kind, root in (("embedded", EMBEDDED), ("fetched", fetched_folder(""))):
        if path.parent == root:
            return f"{kind}/{path.name}"
    return location


def holds_model(folder: Path) -> bool:
    """Whether a folder has a model's or an adapter's config and weights."""
    described = any((folder / f).is_file() for f in ("config.json", "adapter_config.json"))
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return described and any(file.is_file() for file in weights)


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters (arXiv 2106.09685) instead of full fine-tuning."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0  # for other trainers only; this program always switches dropout off
    targets: str | list[str] = "all-linear"

    def __post_init__(self) -> None:
        check_range("model.lora.rank", self.rank, 1, 100_000)
        check_above_zero("model.lora.alpha", self.alpha, 1_000_000)
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"model.lora.dropout must be 0 to below 1, not {self.dropout}")
        if not self.targets:
            raise ValueError("model.lora.targets must name a module, or be all-linear")
        if self._matches(LM_HEAD):
            raise ValueError(
                f"model.lora.targets must leave out {LM_HEAD}, which is computed without adapters, "
                f"unlike {self.targets!r}"
            )

    def _matches(self, module: str) -> bool:
        """Whether peft would adapt a module. A text is a pattern, a list holds names."""
        if isinstance(self.targets, list):
            return module in self.targets
        try:
            return re.fullmatch(self.targets, module) is not None
        except re.error as error:
            raise ValueError(
                f"model.lora.targets must be all-linear, a list of names, or a regular expression, "
                f"not {self.targets!r} ({error})"
            ) from None


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which model, how it is trained, and how long its answers may be.

    path: a hub name, a local folder, embedded/tiny, fetched/smollm2, or untrained (see
    wordle_rl.backends.tiny_model for its shape). revision: branch, tag or commit of a hub name.
    """

    name: str
    path: str
    learning_rate: float  # the default of optim.lr
    max_tokens: int
    max_context: int
    lora: LoraSettings | None = None
    shape: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    quantize: Literal["4bit"] | None = None  # of a frozen base
    revision: str = MAIN
    backend: Literal["lightning", "mlx"] | None = (
        None  # the only backend that loads this model, if there is only one
    )
    games_at_once: int = 512  # outside training; limits the memory for keys and values

    def __post_init__(self) -> None:
        check_range("model.learning_rate", self.learning_rate, 0, MOST_LEARNING_RATE)
        check_range("model.max_tokens", self.max_tokens, 1, MOST_TOKENS)
        check_range("model.max_context", self.max_context, 16, 10_000_000)
        check_range("model.games_at_once", self.games_at_once, 1, MOST_GAMES)
        check_seed("model.seed", self.seed)
        self._check_quantize()
        if self.path == UNTRAINED:
            self._check_shape()
        elif self.shape:
            raise ValueError(f"model.shape is for model.path={UNTRAINED}, not {self.path!r}")
        else:
            self._check_path()

    def _check_quantize(self) -> None:
        if self.quantize is None:
            return
        check_choice("model.quantize", self.quantize, ("4bit",))
        if self.path == UNTRAINED:
            raise ValueError(
                f"model.quantize must be null with model.path={UNTRAINED}, not {self.quantize}: a "
                "base that stays frozen must have learned something"
            )
        if self.lora is None and not self.is_adapter:
            raise ValueError(
                f"model.quantize must be null without model.lora, not {self.quantize}: rounded "
                "weights cannot be trained; give an adapter, such as model.lora={rank: 16}"
            )

    def _check_shape(self) -> None:
        sizes = {k: v for k, v in self.shape.items() if k != "vocabulary"}
        check_choice(
            "model.shape.vocabulary", self.shape.get("vocabulary", "letters"), get_args(Vocabulary)
        )
        known = ("hidden_size", "layers", "heads", "kv_heads", "intermediate_size")
        for key, size in sizes.items():
            check_choice("model.shape's keys", key, (*known, "vocabulary"))
            check_type(f"model.shape.{key}", size, int)
            check_range(f"model.shape.{key}", size, 1, 100_000)
        if missing := [key for key in known if key not in sizes]:
            raise ValueError(f"model.shape lacks {', '.join(missing)}: start from model=untrained")
        hidden, heads, kv_heads = (sizes[key] for key in ("hidden_size", "heads", "kv_heads"))
        if hidden % (2 * heads):
            raise ValueError(
                f"model.shape.hidden_size must be a multiple of twice model.shape.heads={heads}, "
                f"not {hidden}"
            )
        if heads % kv_heads:
            raise ValueError(
                f"model.shape.heads must be a multiple of model.shape.kv_heads={kv_heads}, not "
                f"{heads}"
            )

    def _check_path(self) -> None:
        """Check without loading that the path is a model's folder or a hub name."""
        self._check_fetched()
        if self.path.startswith("embedded/") and not holds_model(Path(self.location)):
            have = ", ".join(f"embedded/{p.name}" for p in sorted(EMBEDDED.glob("*")))
            raise ValueError(f"model.path={self.path} does not exist; there is {have}")
        path = Path(self.path)
        if path.exists() and not holds_model(path):
            inside = f"; there is {path / 'model'}" if holds_model(path / "model") else ""
            raise ValueError(
                f"model.path={self.path} is no model folder: it needs config.json or "
                f"adapter_config.json, and weights as *.safetensors or *.bin{inside}"
            )
        if not path.exists() and not may_be_on_hub(self.path):
            raise ValueError(
                f"model.path={self.path!r}: no such folder; give one, a hub name such as "
                f"Qwen/Qwen2.5-3B-Instruct, embedded/tiny or {UNTRAINED}"
            )
        if not _REVISION.fullmatch(self.revision):
            raise ValueError(
                f"model.revision must be a branch, a tag or a commit, not {self.revision!r}"
            )
        if self.revision != MAIN and (path.exists() or self.location != self.path):
            raise ValueError(
                f"model.revision must be {MAIN} unless model.path is a hub name, not "
                f"{self.revision!r}"
            )

    def _check_fetched(self) -> None:
        """Raise ValueError for a model that was not fetched, with the command that does it."""
        base = base_of_embedded(self.path) or self.path
        if not base.startswith("fetched/"):
            return
        command = fetch_command(base)
        if command is None:
            have = ", ".join(f"fetched/{name}" for name in FETCHED)
            raise ValueError(f"model.path={self.path} does not exist; there is {have}")
        if not holds_model(Path(locate(base))):
            if base != self.path:
                raise ValueError(
                    f"model.path={self.path} needs {base}, which was not fetched yet: run "
                    f"{command} once"
                )
            raise ValueError(
                f"model.path={self.path} was not fetched yet: run {command} once, or name "
                "a folder that holds it with model.path=/path/to/it"
            )

    @property
    def is_adapter(self) -> bool:
        """Whether the model is an adapter's folder, whose adapter is trained."""
        return (Path(self.location) / "adapter_config.json").is_file()

    @property
    def location(self) -> str:
        """A hub name, or the folder that holds the model."""
        return locate(self.path)


class BackendSettings:
    """What the settings of all backends have in common."""

    module: ClassVar[str]  # has train() and build_policy(); imported late
    name: ClassVar[str]
    devices: int
    precision: Literal["auto", "fp32", "bf16"]
    micro_batch_tokens: int | Literal["auto"]

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


def _check_micro_batch(tokens: int | Literal["auto"]) -> None:
    if tokens != "auto":
        check_range("backend.micro_batch_tokens", tokens, 1, MOST)


@dataclass(frozen=True, kw_only=True)
class LightningSettings(BackendSettings):
    """How the Lightning backend computes."""

    module = "wordle_rl.backends.torch.backend"
    name = "lightning"
    accelerator: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    devices: int = 1
    micro_batch_tokens: int | Literal["auto"] = 4096
    gradient_checkpointing: bool = False
    threads: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_choice("backend.accelerator", self.accelerator, ("auto", "cpu", "cuda", "mps"))
        check_choice("backend.precision", self.precision, _PRECISIONS)
        check_range("backend.devices", self.devices, 1, 1024)
        _check_micro_batch(self.micro_batch_tokens)
        if isinstance(self.threads, int) and not 1 <= self.threads <= 1024:
            raise ValueError(f"backend.threads must be auto or 1..1024, not {self.threads}")


@dataclass(frozen=True, kw_only=True)
class MlxSettings(BackendSettings):
    """How the MLX backend computes: Apple silicon, or the CPU on Linux."""

    module = "wordle_rl.backends.mlx.backend"
    name = "mlx"
    devices = 1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    micro_batch_tokens: int | Literal["auto"] = 4096
    gradient_checkpointing: bool = False
    cache_gb: float = 2.0

    def __post_init__(self) -> None:
        check_choice("backend.precision", self.precision, _PRECISIONS)
        _check_micro_batch(self.micro_batch_tokens)
        check_range("backend.cache_gb", self.cache_gb, 0, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where the servers are, how adapters reach them, and how long a run waits for them.

    server_folder: `folder` as the servers see it. most_gap: nats a token.
    """

    urls: list[str] = field(default_factory=lambda: ["http://127.0.0.1:8000"])
    folder: str | None = None
    server_folder: str | None = None
    prompts_at_once: int = 64
    timeout: float = 300.0
    retries: int = 10
    most_gap: float = 0.1

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigError("vllm.urls must name a server, such as [http://127.0.0.1:8000]")
        for url in self.urls:
            if not _URL.fullmatch(url):
                raise ConfigError(
                    f"vllm.urls must be like http://host:8000, without a password, not {url!r}"
                )
        if len({url.rstrip("/") for url in self.urls}) < len(self.urls):
            raise ConfigError(f"vllm.urls must name each server once, not {', '.join(self.urls)}")
        if self.server_folder is not None:
            if self.folder is None:
                raise ConfigError("vllm.server_folder needs vllm.folder, the same folder seen here")
            if not Path(self.server_folder).is_absolute():
                raise ConfigError(
                    f"vllm.server_folder must begin with /, not {self.server_folder!r}"
                )
        check_range("vllm.prompts_at_once", self.prompts_at_once, 1, 100_000)
        check_above_zero("vllm.timeout", self.timeout, 100_000)
        check_range("vllm.retries", self.retries, 0, 1000)
        check_above_zero("vllm.most_gap", self.most_gap, 100)
