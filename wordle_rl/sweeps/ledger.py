"""Optuna's ledger of a study, and the samplers and pruners that read it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from sqlalchemy.engine import make_url

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.settings import StudySettings

RETRIES = 3  # times that a trial continues after its worker, or its run, was killed
_SQLITE_TIMEOUT = 120.0  # seconds that a worker waits while others hold the file


def build_part(key: str, node: Mapping[str, Any], module: ModuleType, **more: Any) -> Any:
    """The sampler or pruner of a node, whose `_target_` is a class of the module.

    more: arguments that the class gets if it knows them. Raises ConfigError.
    """
    where, _, name = str(node.get("_target_")).rpartition(".")
    if where != module.__name__ or name not in module.__all__:
        have = ", ".join(n for n in module.__all__ if n[0].isupper())
        raise ConfigError(f"{key}._target_ must be {module.__name__}.<class>, out of {have}")
    cls = getattr(module, name)
    given = {
        k: build_part(f"{key}.{k}", v, module) if isinstance(v, Mapping) and "_target_" in v else v
        for k, v in node.items()
        if k != "_target_"
    }
    known = inspect.signature(cls).parameters
    try:
        return cls(**given | {k: v for k, v in more.items() if k in known})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}") from None


def build_sampler(node: Mapping[str, Any] | None, trial: int) -> Any:
    """The sampler of one trial, seeded by the study's seed and the trial's number.

    This keeps several workers from drawing the same point for different trials. A study with one
    worker draws the same points however often it was interrupted.
    """
    if node is None:
        return optuna.samplers.RandomSampler()  # a grid queues its points
    seed = (int(node.get("seed") or 0) * 1_000_003 + trial) % 2**32
    return build_part("hydra.sweeper.sampler", node, optuna.samplers, seed=seed)


def build_pruner(node: Mapping[str, Any] | None) -> Any:
    if node is None:
        return optuna.pruners.NopPruner()
    return build_part("hydra.sweeper.pruner", node, optuna.pruners)


def show_address(settings: StudySettings) -> str:
    """Where a study is kept, without a password. Raises ConfigError for what is no address."""
    try:
        return make_url(find_address(settings)).render_as_string(hide_password=True)
    except Exception:  # its message may quote the password
        raise ConfigError(
            "hydra.sweeper.storage must be the address of a database: sqlite:///<file> on one "
            "machine, postgresql+psycopg://<user>:<password>@<host>/<database> for several"
        ) from None


def find_address(settings: StudySettings) -> str:
    return settings.storage or f"sqlite:///{settings.place / 'study.db'}"


def open_storage(settings: StudySettings) -> RDBStorage:
    """Optuna's ledger of a study. Raises ConfigError when the database cannot be opened."""
    url, shown = find_address(settings), show_address(settings)
    sqlite = url.startswith("sqlite")
    try:
        return RDBStorage(
            url,
            engine_kwargs={"connect_args": {"timeout": _SQLITE_TIMEOUT}} if sqlite
            else {"pool_pre_ping": True},
            heartbeat_interval=settings.heartbeat, grace_period=settings.grace,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
        )  # fmt: skip
    except Exception as error:
        said = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        said = said.replace(url, shown)
        raise ConfigError(f"hydra.sweeper.storage={shown}: {said}") from None
