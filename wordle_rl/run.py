"""Training from a composed config: opens the run folder, then hands over to the backend."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from wordle_rl.build import ConfigError, Experiment, experiment, resolve
from wordle_rl.cli import user_errors
from wordle_rl.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "config.yaml"  # the resolved config in a run folder


def train(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Train as configured; returns the summary.

    overrides: those of the command line, of which a resumed run takes single values.
    """
    with user_errors():
        if cfg.resume is not None:
            folder = RunFolder.open(_anchored(cfg.resume))
            config, changes = resumed_config(folder, overrides)
        else:
            folder, config, changes = None, resolve(cfg), {}
        setup = experiment(config)
        resume = folder is not None
        if folder is None:
            folder = RunFolder.create(_anchored(config["output_dir"]), config["name"])
        # The backend is imported only now, when all that can be checked without it is right.
        from wordle_rl.backends import lightning_backend

    with ExitStack() as stack:
        with user_errors():
            stack.enter_context(folder.lock())
        if resume:
            logged = folder.metrics_log().read()
            step = logged[-1]["step"] if logged else 0
            folder.note_resume(step=step, command=sys.argv, changes=changes)
        else:
            _describe(folder, setup)
        print(f"run folder: {folder.path}", flush=True)
        summary = lightning_backend.train(setup, folder, resume=resume)
    print(f"\nrun folder: {folder.path}\nfull games: python eval.py run={folder.path}")
    print(f"curves: tensorboard --logdir {folder.path.parent}", flush=True)
    return summary


def _anchored(path: str | Path) -> Path:
    """Relative paths are relative to the project, wherever the command was typed."""
    return ROOT / path


def _describe(folder: RunFolder, setup: Experiment) -> None:
    OmegaConf.save(OmegaConf.create(setup.config), folder.path / CONFIG)
    folder.write_manifest(
        seeds={"seed": setup.lab.seed},
        digests={"words": setup.words.digest, "splits": setup.splits.digest},
        command=sys.argv,
        model=setup.model.path,
        prompt=setup.lab.style.name,
        protocol=setup.config["words"]["protocol"],
    )


def saved_config(folder: RunFolder) -> DictConfig:
    """The config that a run was started with."""
    path = folder.path / CONFIG
    if not path.is_file():
        raise ConfigError(f"{path} is missing: the run folder is not complete")
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    OmegaConf.set_struct(loaded, True)
    return loaded


def resumed_config(
    folder: RunFolder, overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The saved config with single values replaced, and what was replaced."""
    saved = saved_config(folder)
    changes = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "resume":
            continue
        old = OmegaConf.select(saved, key)
        if (old is None and "." not in key) or isinstance(old, DictConfig):
            raise ConfigError(
                f"{override}: a resumed run keeps its parts; only single values can be changed, "
                "such as trainer.steps=200"
            )
        try:
            OmegaConf.update(saved, key, OmegaConf.from_dotlist([f"x={value}"]).x)
        except OmegaConfBaseException as error:
            raise ConfigError(" ".join(str(error).split())) from None
        changes[key] = [old, OmegaConf.select(saved, key)]
    return resolve(saved), changes
