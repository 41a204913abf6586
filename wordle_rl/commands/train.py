"""Trains from a composed config: opens the run folder, then hands over to the backend."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wordle_rl.backends import load_backend
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.report import write_page
from wordle_rl.commands.resume import (
    begin_from,
    build_resumed_config,
    count_steps,
    describe_rates,
    describe_untaught_prompt,
    keep_computing,
    list_keys,
)
from wordle_rl.evaluation.boards import bold, columns
from wordle_rl.evaluation.tables import describe_change
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.settings import LightningSettings
from wordle_rl.runs.config import CONFIG, keep_config, list_brought, list_groups
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.files import FolderError, read_object, remove_temporary_files
from wordle_rl.runs.folder import LATEST, UNFINISHED, RunFolder, find_run
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.interrupts import Interrupted, Interrupts, ignore_signals
from wordle_rl.runs.paths import ROOT, TRAIN, runnable, shorten
from wordle_rl.runs.processes import Launch, check_first_start, read_launch
from wordle_rl.runs.progress import announce, mute
from wordle_rl.training.experiment import Experiment, stages_of_run
from wordle_rl.training.failures import TrainingFailed, describe_fault
from wordle_rl.training.lineage import prompt_name

# What is told of an option's settings, beside its choices. config.yaml has all.
_KEYS = ("model.lora.rank", "rollout.groups", "sampling.temperature", "optim.lr", "trainer.steps")
_PATH_KEYS = ("init_from", "init_checkpoint", "output_dir", "resume")  # no choices of a run
_PATIENCE = 60.0  # seconds that a further process gives the first one to save its work


def train(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Train as configured. Returns the summary. overrides: the arguments of the command line.

    Ctrl-C and SIGTERM save, print how to resume, and exit with 130 and 143.
    """
    begin = time.monotonic()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        with user_errors():
            for study in (o.replace("'", "") for o in overrides if o.startswith("sweep=")):
                raise ConfigError(f"{study} is a study: {TRAIN} -m {study}")
        open_run = start_run if cfg.resume is None else resume_run
        with announce("checking the settings, and reading the words"):
            setup, folder = open_run(cfg, overrides, stack)
        if folder.manifest()["status"] == "finished":  # and nothing of it is to be done again
            summary = read_object(folder.path / "summary.json")
            _print_end(setup, folder, summary)
            return summary
        summary = _run_backend(setup, folder, interrupts, resume=cfg.resume is not None)
    print(f"\ntook {time.monotonic() - begin:.0f} s")
    _print_end(setup, folder, summary)
    return summary


def _print_end(setup: Experiment, folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Print what to do with a run that is finished, and last what came of it."""
    print(f"run folder: {shorten(folder.path)}\nfull games: {folder.eval_command}")
    if (folder.path / "model").is_dir():
        print(f"watch it: {folder.play_command}")
    if setup.logger.tensorboard:
        outputs = shlex.quote(str(shorten(folder.path.parent)))
        print(f"curves: {runnable(f'tensorboard --logdir {outputs}')}")
    if setup.trainer.report:
        write_page(folder)
    if summary.get("change"):
        gain, *more = describe_change(summary)
        print(bold(f"\n{gain}"), *more, sep="\n", flush=True)


# -- the folder of a run --------------------------------------------------------------------------


def start_run(
    cfg: DictConfig, overrides: Sequence[str], stack: ExitStack
) -> tuple[Experiment, RunFolder]:
    """Start a new run in a new folder. stack: holds the folder's lock."""
    with user_errors():
        start = begin_from(cfg)
        check_first_start()
        keys = list_keys(overrides) - {"init_from", "init_checkpoint"}
        with _settings_from(Path(start["run"]), keys) if start else nullcontext():
            setup = build_experiment(resolve(cfg))
        _check_launch(setup)
        model, full = Path(setup.model.location), not setup.model.is_adapter
        if full and model.is_dir() and not [*model.glob("*token*"), *model.glob("*vocab*")]:
            raise ConfigError(f"model.path={model} has no tokenizer: save one there, too")
        folder = RunFolder.create(ROOT / setup.config["output_dir"], cfg.name)
        stack.enter_context(folder.lock())
    keep_config(folder, setup.config)
    stages = stages_of_run(setup, folder.path.name)
    if warning := describe_untaught_prompt(setup.model.location, setup.recipe.style):
        print(warning, file=sys.stderr)
    choices = dict(HydraConfig.get().runtime.choices) if HydraConfig.initialized() else {}
    if start is not None:
        defaults = RunFolder(Path(start["run"])).manifest().get("choices", {})
        choices = defaults | {k: v for k, v in choices.items() if v not in (None, start["run"])}
    folder.write_manifest(
        seeds={"seed": setup.recipe.seed},
        command=sys.argv,
        model=setup.model.path,
        revision=setup.model.revision,
        init_from=start,
        choices={str(group): str(name) for group, name in choices.items() if name is not None},
        typed=[*overrides],
        **{key: value for key, value in stages[-1].items() if key != "run"},
    )
    return setup, folder


def resume_run(
    cfg: DictConfig, overrides: Sequence[str], stack: ExitStack
) -> tuple[Experiment, RunFolder]:
    """Resume a run in its folder, from its newest checkpoint. stack: holds the folder's lock.

    resume=latest means the newest run in output_dir that did not finish, a number one of its runs.
    """
    named = cfg.resume == LATEST or str(cfg.resume).isdecimal()
    keys = {"resume", "output_dir"} if named else {"resume"}
    overrides = [o for o in overrides if o.partition("=")[0] not in keys]
    with user_errors():
        outputs = ROOT / str(cfg.output_dir)
        folder = find_run(str(cfg.resume), "resume", *UNFINISHED, outputs=outputs)
        config, changes = build_resumed_config(folder, overrides)
        with _settings_from(folder.path, changes):
            setup = build_experiment(resolve(keep_computing(folder, config, changes)))
        setup = replace(setup, config=resolve(config))
        _check_launch(setup)
        _check_same_data(folder.manifest(), setup)
        stack.enter_context(folder.lock())
        count = count_steps(folder, setup.trainer.steps)
        ends = changes.get("trainer.steps", [setup.trainer.steps] * 2)
        if line := describe_rates(setup.optim, count, *ends):
            print(line, flush=True)
        same = all(before == after for before, after in changes.values())
        # A status_reason says that the run stopped early.
        over = count == setup.trainer.steps or folder.manifest().get("status_reason")
        if _is_whole(folder) and same and over and read_launch() is None:
            return setup, folder
    for path in (folder.path, folder.checkpoints):
        remove_temporary_files(path)
    folder.note_resume(step=count, command=sys.argv, changes=changes)
    return setup, folder


def _is_whole(folder: RunFolder) -> bool:
    """Whether a run has finished and everything that it writes at its end is there."""
    written = all((folder.path / name).exists() for name in ("model", "summary.json"))
    return written and folder.manifest().get("status") == "finished"


@contextmanager
def _settings_from(run: Path, keys: Iterable[str]) -> Iterator[None]:
    """Let an error about a setting that was not typed name the run's file, which has it."""
    try:
        yield
    except ConfigError as error:
        if any(key in str(error) or key == "experiment" for key in keys):
            raise
        raise ConfigError(f"{shorten(run / CONFIG)}: {error}") from None


def _check_launch(setup: Experiment) -> None:
    """Raise ConfigError for a backend that cannot train under torchrun."""
    launch, backend = read_launch(), setup.backend
    if launch is None:
        return
    if backend.name != LightningSettings.name:
        raise ConfigError(f"backend={backend.name} trains in one process: leave torchrun out")
    if backend.devices > 1:
        raise ConfigError(
            f"backend.devices must be 1 under torchrun, which started {launch.size} processes, not "
            f"{backend.devices}"
        )


def _check_same_data(manifest: Mapping[str, Any], setup: Experiment) -> None:
    """Raise ConfigError if the file of data= or the reference is not as when a run was started."""
    records = {"data": setup.data and setup.data.record(), "reference": setup.reference_record}
    for key, entry in manifest.items():
        if isinstance(entry, dict) and (records.get(key) or entry) != entry:
            raise ConfigError(
                f"{entry.get('file') or entry.get('name')} has changed since the run began, so the "
                "run cannot continue: bring the old file back, or start a new run"
            )


# -- a run, from its first line to its end --------------------------------------------------------


def _run_backend(
    setup: Experiment, folder: RunFolder, interrupts: Interrupts, *, resume: bool
) -> dict[str, Any]:
    """Hand over to the backend, and record in the folder how the run ended."""
    try:
        interrupts.on_second(partial(_note_hard_stop, folder))
        print(f"run folder: {shorten(folder.path)}", flush=True)
        if (manifest := folder.manifest()).get("choices"):
            choices = describe_choices(manifest)
            print(fill(choices, columns(), break_long_words=False, break_on_hyphens=False))
        if start := manifest.get("init_from"):
            print(
                f"starts from step {start['step']} ({start['checkpoint']}) of {start['run']}, with "
                f"prompt={prompt_name(setup.recipe.style)} and "
                f"rollout.form={setup.recipe.rollout.form}"
            )
        print_data(setup)
        with user_errors():
            backend = load_backend(setup.backend)
        try:
            page = partial(write_page, folder, trains=True)
            return backend.train(
                setup, folder, resume=resume, interrupts=interrupts, work=follow, page=page
            )
        except Exception as error:  # of others, those before the first step: no room for the model
            line = str(error) if isinstance(error, TrainingFailed) else describe_fault(error)
            if line is None:
                raise
            fail(line, code=1)
    except Interrupted as signal:
        keep_config(folder, setup.config)  # keeps a resume's changes even before its first step
        folder.set_status("interrupted")
        _end_page(folder)
        print(f"\n{signal}: continue with {folder.resume_command}", flush=True)
        raise
    except (Exception, SystemExit) as error:
        if folder.begun:
            folder.set_failed(error)
            _end_page(folder)
        else:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _end_page(folder: RunFolder) -> None:
    """Write the page of a run that stopped once more, so that it waits for nothing."""
    if (folder.path / "report.html").exists():
        write_page(folder, trains=True)


def describe_choices(manifest: Mapping[str, Any]) -> str:
    """Whose settings a run has: the demo's or another run's, its options', and the user's."""
    args = [re.sub(r"^(\w+)='([^']*)'$", r"\1=\2", str(o)) for o in manifest.get("typed", [])]
    choices = manifest["choices"]
    start, later_keys = manifest.get("init_from"), {"name", *list_keys(args)}
    parts = [f"choices: the settings of {start['run']}" if start else "choices: the demo's"]
    others = [group for group in list_groups() if group not in ("experiment", "model")]
    for group in ("experiment", "model", *others):  # the first one wins
        if start and group not in later_keys:  # what a run before chose is its own
            continue
        brings = {k: v for k, v in list_brought(group, choices.get(group)).items() if v != "???"}
        if group in others:
            brings = {k: v for k, v in brings.items() if k.partition(".")[0] != group}
        if line := _describe_brought(brings, later_keys):
            parts.append(f"{group}={choices[group]} brings {line}")
    if picks := [o for o in args if o.partition("=")[0] not in _PATH_KEYS]:
        parts.append(f"you chose {' '.join(picks)}")
    return "; ".join(parts)


def _describe_brought(brings: Mapping[str, str], later_keys: set[str]) -> str:
    """What an option brings that no later one sets. The keys are then among later_keys."""
    values = {k.replace("model.learning_rate", "optim.lr"): v for k, v in brings.items()}
    values = {k: v for k, v in values.items() if k not in later_keys}
    later_keys |= {*values}
    items = [f"{k}={v}" for k, v in values.items() if "." not in k or "@" in k or k in _KEYS]
    if rest := len(values) - len(items):
        items.append(f"and {rest} more" if items else f"{rest} settings")
    return " ".join(items)


def print_data(setup: Experiment) -> None:
    """Print what became of the rows of data=, and what trainer.epochs and a long warm-up mean."""
    for line in setup.data.lines if setup.data else ():
        print(line, flush=True)
    if setup.trainer.epochs is not None:
        count = setup.data.rows if setup.data else len(setup.recipe.secrets)
        unit = "rows" if setup.data else "secrets"
        print(f"{setup.trainer.epochs:g} epochs of {count:,} {unit}: {setup.trainer.steps:,} steps")
    if (warmup := setup.optim.warmup_steps) > setup.trainer.steps:
        print(f"note: the warm-up of {warmup} steps is longer than the run (optim.warmup_steps)")


def _note_hard_stop(folder: RunFolder) -> None:
    """Record that a second signal ends the process. Runs in a separate thread, just before."""
    line = f"\nstopped without saving: continue with {folder.resume_command}\n"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))
    with suppress(OSError, FolderError):
        folder.set_status("interrupted", "stopped by a second signal, without saving")


# -- the further processes of a run ---------------------------------------------------------------


def follow(launch: Launch, file: str = "") -> NoReturn:
    """Join the first process, do its task on another share, and end. Only the first one prints.

    file: where the processes of one machine meet, in place of torchrun's address.
    """
    ignore_signals()  # the first process decides what becomes of the run
    mute()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    from wordle_rl.backends.torch import backend
    from wordle_rl.backends.torch.processes import ProcessLost, join_processes

    try:
        with user_errors(), join_processes(launch, file) as processes:
            backend.follow(build_experiment, processes)
    except TrainingFailed:
        pass  # the first process has the same error and prints it
    except NotFinite as error:
        # The first process has the same weights. It usually finds the error and ends this one.
        time.sleep(_PATIENCE)
        fail(str(error), code=1)
    except Exception as error:
        line = str(error) if isinstance(error, ProcessLost) else describe_fault(error)
        if line is None:
            raise
        fail(f"process {launch.rank}: {line}", code=1)
    raise SystemExit(0)
