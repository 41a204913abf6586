"""A policy whose games are played by vLLM servers. Everything else stays with the trainer.

Every update gives the adapter a new version. It goes to the servers before the next game.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.backends.vllm.adapter_folder import AdapterFolder, check_writable
from wordle_rl.backends.vllm.engine import VllmEngine
from wordle_rl.backends.vllm.pool import Pool
from wordle_rl.backends.vllm.probe import build_probe, check_gap, measure_gap, probe_text
from wordle_rl.backends.vllm.server import Server, ServerError
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.servers import ServerSettings
from wordle_rl.policy.tokenizer import Tokenizer
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the servers need to know of a policy."""

    save_adapter: Callable[[Path], None]  # in PEFT's form, into an empty folder
    vocabulary: int  # ids of the model
    max_context: int
    temperature: float  # of the training games, and of the trainer's scores


class ServedPolicy:
    """Implements wordle_rl.policy.policy.Policy. `inner` is the policy that is trained.

    The servers have its adapter already.
    """

    def __init__(self, inner: Policy, served: Served, pool: Pool, folder: AdapterFolder) -> None:
        self.timers, self.computing = inner.timers, inner.computing
        self.processes: Processes = inner.processes
        self._inner, self._served = inner, served
        self._pool, self._folder = pool, folder
        self._is_new = False  # whether the servers lack the newest adapter

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    @property
    def device_bytes(self) -> int:
        return self._inner.device_bytes

    @property
    def num_parameters(self) -> tuple[int, int]:
        return self._inner.num_parameters

    def engine(self) -> VllmEngine:
        """An engine on the servers, which have the newest adapter by then."""
        if self._is_new:
            with self.timers("adapter"):
                self._pool.load(self._folder.write(self._served.save_adapter))
            self._is_new = False
        return VllmEngine(
            self._pool,
            stop_ids=self.tokenizer.stop_ids,
            max_context=self._served.max_context,
            vocabulary=self._served.vocabulary,
            timers=self.timers,
        )

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        self._is_new = True
        return self._inner.update(batch, algorithm)

    def load(self, folder: Path) -> None:
        self._is_new = True
        self._inner.load(folder)

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        return self._inner.score(batch, reference=reference)

    def values(self, batch: Batch) -> FloatArray:
        return self._inner.values(batch)

    def keep_reference(self) -> None:
        self._inner.keep_reference()

    def add_value_head(self) -> None:
        self._inner.add_value_head()

    def set_learning_rate(self, lr: float) -> None:
        self._inner.set_learning_rate(lr)

    def save(self, folder: Path) -> None:
        self._inner.save(folder)

    def export(self, folder: Path) -> None:
        self._inner.export(folder)


@contextmanager
def serve(
    inner: Policy,
    served: Served,
    settings: ServerSettings,
    run: Path,
    check: Callable[[], None] = lambda: None,
) -> Iterator[ServedPolicy]:
    """Let servers play for a policy during the block, once they are known to fit.

    run: the run's folder. check: raises to stop the run. Raises ConfigError for a server that
    cannot be reached, does not fit the policy, or cannot read the adapter's folder.
    """
    probe = build_probe(
        inner.tokenizer, temperature=served.temperature, max_context=served.max_context,
        vocabulary=served.vocabulary,
    )  # fmt: skip

    def compare(url: str, drawn: list[Completion]) -> None:
        check_gap(url, measure_gap(inner, probe.prompts[0], drawn), settings.most_gap)

    root = run / "served" if settings.folder is None else Path(settings.folder)
    if settings.folder is not None:
        check_writable(root)  # before the servers are asked
    pool = Pool(settings, probe=probe, compare=compare, check=check)
    folder = None
    try:
        try:
            for member in pool.members:
                _check_server(member.server, inner.tokenizer, served.max_context)
            if settings.folder is None:  # what a killed process left there
                shutil.rmtree(root, ignore_errors=True)
            folder = AdapterFolder(root, settings.server_folder)
            pool.begin(folder.write(served.save_adapter))
        except ServerError as error:
            raise ConfigError(_explain(str(error), root)) from None
        except OSError as error:
            raise ConfigError(f"vllm.folder={root} cannot be written: {error}") from None
        yield ServedPolicy(inner, served, pool, folder)
    finally:
        pool.close()
        if folder is not None:
            folder.remove()


def _explain(reason: str, root: Path) -> str:
    """A server's refusal with the setting that may mend it."""
    if "load_lora_adapter with 404" in reason and "No adapter found" in reason:
        return (
            f"{reason}: the adapter is in {root}, so vllm.folder must be a folder that every "
            "server can read, and vllm.server_folder its path there"
        )
    if "load_lora_adapter" in reason:
        return (
            f"{reason}: start it with --enable-lora, a --max-lora-rank of model.lora.rank or more, "
            "and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
        )
    return f"vllm.urls: {reason}"


def _check_server(server: Server, tokenizer: Tokenizer, max_context: int) -> None:
    """Raise ConfigError or ServerError unless a server's base model may be the policy's."""
    models = server.models()
    if not models:
        raise ServerError(f"{server.url} has no base model")
    base = models[0]  # the others are more names of the same model
    if base.max_context < max_context:
        raise ConfigError(
            f"model.max_context must be at most {base.max_context}, which is the context of "
            f"{server.url} (--max-model-len), not {max_context}"
        )
    text = probe_text(tokenizer)
    if server.tokenize(base.name, text) != tokenizer.encode(text):
        raise ServerError(
            f"{server.url} has another tokenizer than model.path, and so another model"
        )
