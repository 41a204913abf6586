"""A policy whose games are played by vLLM servers. Everything else stays with the trainer.

Every update gives the adapter a new version. It goes to the servers before the next game.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.backends.vllm.engine import VllmEngine
from wordle_rl.backends.vllm.pool import Adapter, Pool
from wordle_rl.backends.vllm.server import Request, Server, ServerError
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.engine import Completion, Tokenizer
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ServerSettings
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import Processes
from wordle_rl.training.update import pad

# Answers that a server and the trainer must agree on. That finds another base model, a server
# without its adapter, and log-probabilities that are not at the sampling temperature.
_TEXT = "Guess the secret word: <guess>crane</guess> -> x-✓xx. Then <guess>Maybe</guess>, or"
_ROWS, _TOKENS = 4, 16
_KEPT = 2  # versions of the adapter, because a server may still read the previous one


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


def probe_text(tokenizer: Tokenizer) -> str:
    """A text with the special tokens of the chat template."""
    return tokenizer.render([{"role": "user", "content": _TEXT}])


def build_probe(
    tokenizer: Tokenizer, *, temperature: float, max_context: int, vocabulary: int
) -> Request:
    """A request of some answers that no stop token ends."""
    most = min(_TOKENS, max_context // 2)
    prompt = tokenizer.encode(probe_text(tokenizer))[: max_context - most]
    return Request(
        prompts=[prompt] * _ROWS,
        sampling=Sampling(temperature=temperature, max_tokens=most),
        most=most,
        stop_ids=frozenset(),
        vocabulary=vocabulary,
    )


def measure_gap(policy: Policy, prompt: Sequence[int], drawn: Sequence[Completion]) -> float:
    """Mean difference of log-probabilities between a server's answers and the trainer, in nats."""
    talks = []
    for answer in drawn:
        talks.append(Talk())
        talks[-1].hear(list(prompt), 0)
        talks[-1].answer(answer.ids, 0, answer.logprobs)
    batch = pad(talks, policy.tokenizer.pad_id)
    gaps = np.abs(policy.score(batch) - batch.sampler_logprobs)[batch.trained]
    return float(gaps.mean())


def check_gap(url: str, gap: float, most: float) -> None:
    """Raise ServerError for a server that plays another policy than the trainer's."""
    if not gap <= most:  # also if it is not a number
        raise ServerError(
            f"{url} differs from the trainer by {gap:.3g} nats a token, above "
            f"vllm.most_gap={most:g}: it has another base model than model.path, or was started "
            "without --logprobs-mode processed_logprobs"
        )


def check_writable(root: Path) -> None:
    """Raise ConfigError unless new folders can be made in root, which may not exist yet."""
    found = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not found.is_dir():
        raise ConfigError(f"vllm.folder must be a folder, but {found} is a file")
    try:
        os.rmdir(tempfile.mkdtemp(prefix="wordle-", dir=found))
    except OSError as error:
        raise ConfigError(f"vllm.folder={root} cannot be written: {error.strerror}") from None


class AdapterFolder:
    """Writes a run's adapters, all under a name that no other run has."""

    def __init__(self, root: Path, there: str | None = None) -> None:
        """there: the path of root at the servers. None: the same path."""
        self.name = f"wordle-{secrets.token_hex(6)}"
        self._here = root.resolve() / self.name
        self._there = PurePosixPath(there or root.resolve().as_posix()) / self.name
        self._written: list[Path] = []
        self._made_root = not root.exists()
        self._here.mkdir(parents=True)

    def write(self, save: Callable[[Path], None]) -> Adapter:
        """Write the next version. save: writes the adapter into an empty folder."""
        number = f"{len(self._written):06d}"
        unfinished, place = self._here / f"{number}.unfinished", self._here / number
        unfinished.mkdir()
        save(unfinished)
        os.replace(unfinished, place)
        self._written.append(place)
        for old in self._written[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return Adapter(name=self.name, path=str(self._there / number))

    def remove(self) -> None:
        shutil.rmtree(self._here, ignore_errors=True)
        if self._made_root:
            with suppress(OSError):  # another run uses it by now
                self._here.parent.rmdir()
