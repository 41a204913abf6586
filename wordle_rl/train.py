"""Training from a composed config: opens the run folder, then hands over to the backend."""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from wordle_rl.backends import load_backend
from wordle_rl.build import build_experiment, resolve
from wordle_rl.earlier_run import begin_from, prompt_name, saved_config
from wordle_rl.resolved_choices import hydra_choices, print_choices
from wordle_rl.runs.addresses import shown_command
from wordle_rl.runs.checkpoints import CheckpointError, CheckpointStore
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.errors import fail, full_disk_told, user_errors
from wordle_rl.runs.files import remove_temporary_files
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, check_type
from wordle_rl.runs.interrupts import Interrupted, Interrupts
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.untrusted import FolderError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.memory import MemoryFull, start_afresh

# What a run is about, and where it lies: a resumed run cannot change these.
_KEPT = (
    *("model", "words", "prompt", "rollout.form", "name", "output_dir"),
    *("init_from", "init_checkpoint"),
)


@full_disk_told()
def train(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Train as configured; returns the summary.

    overrides: those of the command line, of which a resumed run takes single values. Ctrl-C and
    SIGTERM save, say how to go on, and exit with 130 and 143. Above a limit of memory the process
    is replaced by a fresh one that goes on.
    """
    resume = cfg.resume is not None
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        with user_errors():
            for study in (o.replace("'", "") for o in overrides if o.startswith("sweep=")):
                raise ConfigError(f"{study} is a study: python train.py -m {study}")
            check_type("restart", cfg.restart, bool)
            if resume:
                folder = RunFolder.open(_anchored(cfg.resume))
                saved, changes = resumed_config(folder, overrides)
                check_begun(folder, restart=cfg.restart)
                setup = build_experiment(resolve(_with_precision(folder, saved, changes)))
                setup = replace(setup, config=resolve(saved))
            else:
                if cfg.restart:
                    raise ConfigError("restart=true needs resume=<the run that is to start over>")
                start = begin_from(cfg, overrides, ROOT)
                setup, changes = build_experiment(resolve(cfg)), {}
                folder = RunFolder.create(_anchored(setup.config["output_dir"]), cfg.name)
            stack.enter_context(folder.lock())
            if resume:
                _check_steps(folder, setup.trainer.steps)
        if resume:
            _reopen(folder, changes, restart=cfg.restart)
        else:
            _describe(folder, setup, start)
        try:
            interrupts.on_second(partial(_stopped, folder))
            print(f"run folder: {folder.path}", flush=True)
            print_choices(folder, setup.config)
            with user_errors():
                backend = load_backend(setup.backend)
            with _failures_told():
                summary = backend.train(setup, folder, resume=resume, interrupts=interrupts)
        except MemoryFull as full:
            again = [o for o in overrides if o.partition("=")[0] != "restart"]
            _go_on(folder, full, again if resume else [_resume(folder)], interrupts)
        except Interrupted as signal:
            keep_config(folder, setup.config)  # what a resume changes, also before its first step
            folder.set_status("interrupted")
            print(f"\n{signal}: go on with python train.py resume={folder.path}", flush=True)
            raise
        except (Exception, SystemExit) as error:
            if resume or not folder.remove_unless_begun():
                folder.set_failed(error)
            raise
    print(f"\nrun folder: {folder.path}\nfull games: python eval.py run={folder.path}")
    print(f"curves: tensorboard --logdir {folder.path.parent}")
    print(_lesson(summary), flush=True)
    return summary


@contextmanager
def _failures_told() -> Iterator[None]:
    """A run that cannot continue ends in one line and exit code 1."""
    from wordle_rl.training.outcome import TrainingFailed

    try:
        yield
    except TrainingFailed as error:
        fail(str(error), code=1)


def _lesson(summary: dict[str, Any]) -> str:
    """How many groups of a run taught nothing, from its summary."""
    groups, idle, skipped, replaced = (
        int(summary[f"total_{name}"])
        for name in ("groups", "zero_spread_groups", "skipped_groups", "resampled_groups")
    )
    share = 100 * idle / max(groups, 1)
    return (
        f"{share:.0f} % of groups taught nothing: {idle:,} of {groups:,} had no spread; "
        f"{skipped:,} were skipped, {replaced:,} replaced by new ones"
    )


def _go_on(
    folder: RunFolder, full: MemoryFull, overrides: Sequence[str], interrupts: Interrupts
) -> NoReturn:
    """Go on in a fresh process, which takes this one's place; everything is saved."""
    if not full.helps:
        folder.set_failed(full)
        fail(
            f"{full}, so soon after the start that a fresh process would not help: go on with "
            f"python train.py resume={folder.path} and a higher limit"
        )
    interrupts.check()
    print(f"\n{full}: the run is saved and goes on in a fresh process", flush=True)
    start_afresh(overrides)


def _stopped(folder: RunFolder) -> None:
    """What a second signal leaves behind before it ends the process, in a thread of its own."""
    line = f"stopped without saving: go on with python train.py resume={folder.path}\n"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))
    with suppress(OSError, FolderError):
        folder.set_status("interrupted", "stopped by a second signal, without saving")


def _resume(folder: RunFolder) -> str:
    """The override that resumes a run, whatever its path is made of."""
    path = str(folder.path).replace("\\", "\\\\").replace("'", "\\'")
    return f"resume='{path}'"


def _anchored(path: str | Path) -> Path:
    """Relative paths are relative to the project, wherever the command was typed."""
    return ROOT / str(path)


def _describe(folder: RunFolder, setup: Experiment, start: dict[str, Any] | None) -> None:
    if start is not None:
        print(
            f"starts from step {start['step']} ({start['checkpoint']}) of {start['run']}, with "
            f"prompt={prompt_name(setup.recipe.style)} and rollout.form={setup.recipe.form}"
        )
    keep_config(folder, setup.config)
    folder.write_manifest(
        seeds={"seed": setup.recipe.seed},
        digests={"words": setup.words.digest, "splits": setup.splits.digest},
        command=shown_command(sys.argv),
        model=setup.model.path,
        init_from=start,
        prompt=prompt_name(setup.recipe.style),
        form=setup.recipe.form,
        protocol=setup.config["words"]["protocol"],
        choices=hydra_choices(),
    )


def _reopen(folder: RunFolder, changes: dict[str, Any], *, restart: bool) -> None:
    if restart and any(folder.checkpoints.glob("*")):  # none of them is whole
        folder.checkpoints.rename(folder.path / f"checkpoints_damaged_{time.time_ns()}")
    for place in (folder.path, folder.checkpoints):
        remove_temporary_files(place)
    folder.note_resume(step=_steps_done(folder), command=shown_command(sys.argv), changes=changes)


def _steps_done(folder: RunFolder) -> int:
    newest = CheckpointStore(folder.checkpoints, read_only=True).latest()
    return int(newest.name.removeprefix("step_")) if newest else 0


def _check_steps(folder: RunFolder, steps: int) -> None:
    """Tell when a resumed run has no step left; raise ConfigError when it has done too many."""
    done = _steps_done(folder)
    if steps < done:
        raise ConfigError(f"trainer.steps must be {done} or more, as so many are done, not {steps}")
    if steps == done:
        print(f"nothing left to train: all {done} steps are done", flush=True)


def resumed_config(
    folder: RunFolder, overrides: Sequence[str]
) -> tuple[DictConfig, dict[str, Any]]:
    """The saved config with single values replaced, and what was replaced."""
    saved = saved_config(folder)
    changes = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in ("resume", "restart"):
            continue
        if key in _KEPT or key.partition(".")[0] in _KEPT:
            raise ConfigError(
                f"{override}: a resumed run keeps {', '.join(_KEPT)}; start a new one instead"
            )
        old = OmegaConf.select(saved, key)
        if (old is None and "." not in key) or isinstance(old, DictConfig):
            raise ConfigError(
                f"{override}: a resumed run keeps its parts; only single values can be changed, "
                "such as trainer.steps=200"
            )
        try:
            OmegaConf.update(saved, key, OmegaConf.from_dotlist([f"x={value}"]).x)
        except (OmegaConfBaseException, YAMLError) as error:
            raise ConfigError(f"{override}: {error}") from None
        changes[key] = [old, OmegaConf.select(saved, key)]
    return saved, changes


def _with_precision(folder: RunFolder, saved: DictConfig, changes: dict[str, Any]) -> DictConfig:
    """The config with the precision that was faster when it was chosen, on another machine too."""
    if saved.backend.precision != "auto" or "backend.precision" in changes:
        return saved
    kept = folder.computing().get("precision", "auto")
    if kept != "auto":
        print(f"{kept}: as before; backend.precision=auto chooses again", flush=True)
    config = copy.deepcopy(saved)
    config.backend.precision = kept
    return config


def check_begun(folder: RunFolder, *, restart: bool) -> None:
    """Raise ConfigError where a run has lost its checkpoints, unless it is to be started over."""
    store = CheckpointStore(folder.checkpoints, read_only=True)
    if restart:
        try:
            whole = store.load_latest()
        except CheckpointError:
            whole = None
        if whole is not None:
            raise ConfigError(
                f"restart=true is for a run without whole checkpoints, and {whole.path} is whole: "
                "leave it out to go on, or start a new run"
            )
    elif store.latest() is not None:
        return
    began = "first_checkpoint" in folder.manifest()
    logged = max((record["step"] for record in folder.metrics_log().read()), default=0)
    if (began or logged > 0) and not restart:
        raise ConfigError(
            f"{store.folder} holds no checkpoint any more, so there is nothing to go on from; "
            "restart=true starts the run over from step 0, and its logs with it"
        )
    print("there is no checkpoint: the run starts over from step 0", flush=True)
