"""Reads what an export needs of a run: a verified checkpoint, how it is asked, what is known."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from wordle_rl.commands.build import build_backend_settings, resolve
from wordle_rl.commands.resume import read_saved_config
from wordle_rl.export.formats import Source, Start
from wordle_rl.game.rules import Rules
from wordle_rl.policy.models import MAIN, UNTRAINED
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import LightningSettings, ModelSettings
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.checkpoints import CheckpointStore, step_of
from wordle_rl.runs.files import read_object
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.training.lineage import describe_lineage, stages_of
from wordle_rl.words.splits import WordSettings

_QUOTES = re.compile(r"(?<==)'([\w./@+-]*)'$", re.ASCII)  # what the command quoted for Hydra
_LIBRARIES = ("torch", "transformers", "peft", "mlx", "mlx-lm")  # a card gives their versions


def read_source(run: RunFolder, checkpoint: Literal["best", "last", "start"]) -> Source:
    """Verify a checkpoint of a run, and read its settings. Raises ValueError in one line."""
    config = resolve(read_saved_config(run))
    store = CheckpointStore(run.checkpoints, read_only=True)
    path = store.load_named(checkpoint, "--checkpoint ")
    folder = path / "model"
    changes = {"path": str(folder), "revision": MAIN, "shape": {}, "lora": None, "quantize": None}
    model: ModelSettings = instantiate("model", {**config["model"], **changes}, ModelSettings)
    words, splits = instantiate("words", config["words"], WordSettings).load()
    rules: Rules = instantiate("rules", config["rules"], Rules)
    start = _find_start(folder, config["model"])
    untrained = start.name == UNTRAINED
    return Source(
        step=step_of(path),
        model=model,
        start=start,
        lineage=describe_lineage(stages_of(folder), words, splits, untrained=untrained),
        backend=_exact_backend(config["backend"], model),
        form=config["rollout"]["form"],
        rules=rules,
        words=words,
        style=instantiate("prompt", config["prompt"], PromptStyle, game=rules),
        sampling=instantiate("sampling", config["sampling"], Sampling),
        secrets=splits.val or words.answers,
    )


def _exact_backend(node: Mapping[str, Any], model: ModelSettings) -> Any:
    """A run's backend, but in fp32 and in one process on the CPU."""
    settings: Any = build_backend_settings(node, model)
    backend = replace(settings, precision="fp32")
    if isinstance(backend, LightningSettings):
        return replace(backend, accelerator="cpu", devices=1)
    return backend


def _find_start(folder: Path, model: Mapping[str, Any]) -> Start:
    """The base of an adapter. For other models, the start of the first run that made them."""
    from wordle_rl.backends.adapters import ADAPTER, find_base_name, is_adapter, read_adapter_form

    name, revision, stages = str(model["path"]), model.get("revision"), stages_of(folder)
    if adapted := is_adapter(folder):
        name = find_base_name(folder, read_adapter_form(folder))
        revision = read_object(folder / ADAPTER).get("revision")
    elif len(stages) > 1 and Path(name).is_dir():  # the model of another run
        name = stages[0].get("start", name)
    return Start(
        name=name, revision=str(revision or MAIN), adapted=adapted, rounded=model.get("quantize")
    )


def read_reports(run: RunFolder, step: int) -> list[tuple[str, dict[str, Any]]]:
    """The run's reports on start and best; none if they are about another checkpoint."""
    files = run.path / "start.json", run.path / "summary.json"
    if not all(file.is_file() for file in files):
        return []
    begin, best = (json.loads(file.read_bytes()) for file in files)
    if best.get("exported_step") != step or "player" not in best:
        return []
    return [("start", begin), (f"step {step}", best)]


def list_facts(run: RunFolder, *more: str) -> list[str]:
    """How a run's model was made, a line each. more: lines after the command."""
    manifest = run.manifest()
    versions = manifest.get("versions", {})
    libraries = ", ".join(f"{name} {versions[name]}" for name in _LIBRARIES if name in versions)
    resumes = [resume.get("command", []) for resume in manifest.get("resumes", [])]
    commands = [
        shlex.join(["python", *(_QUOTES.sub(r"\1", word) for word in command)])
        for command in (manifest.get("command", []), *resumes)
    ]
    return [
        f"Training: `{'`, resumed with `'.join(commands)}`",
        *more,
        f"Run `{run.path.name}`: began {manifest.get('started')}, {manifest.get('status')} "
        f"{manifest.get('status_since', '')}.",
        f"Trained with Python {manifest.get('python')}, {libraries}.",
    ]
