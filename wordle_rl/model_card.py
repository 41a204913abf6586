"""The model card of an export: what it is, where it comes from, how well it plays."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wordle_rl.earlier_run import read_saved_config
from wordle_rl.evaluation.tables import results_table
from wordle_rl.export_check import LIMITS, MOST_LOST, Change
from wordle_rl.export_source import ExportSource
from wordle_rl.game.rules import State
from wordle_rl.licences import LICENCES, find_licence
from wordle_rl.policy.lineage import describe_lineage
from wordle_rl.policy.settings import MAIN, UNTRAINED
from wordle_rl.policy.stages import prompt_name, stages_of
from wordle_rl.runs.environment import describe_environment
from wordle_rl.runs.files import FolderError, printable, read_object, write_bytes
from wordle_rl.runs.folder import given_name, maker
from wordle_rl.training.start_report import read_report

_LIBRARIES = {"peft": "peft", "merged": "transformers", "mlx": "mlx"}
_WHAT = "A language model that plays Wordle, trained with wordle-rl."
_PURPOSES = {
    "peft": "This folder holds a LoRA adapter in PEFT's form.",
    "merged": "This folder holds whole weights, which `AutoModelForCausalLM` loads.",
    "mlx": "This folder holds whole weights, which mlx-lm loads.",
}
_LOADING = {
    "peft": """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained({base!r})
model = PeftModel.from_pretrained(base, "<this folder>")
tokenizer = AutoTokenizer.from_pretrained("<this folder>")""",
    "merged": """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("<this folder>")
tokenizer = AutoTokenizer.from_pretrained("<this folder>")""",
    "mlx": """\
from mlx_lm import generate, load

model, tokenizer = load("<this folder>")""",
}
_OWN_NAMES = {  # names of bases that only this project knows, and where those are
    "embedded": "`{name}` is a folder of wordle-rl: `wordle_rl/{name}`.",
    "fetched": "`{name}` is a name of wordle-rl. `make {model}` prints the folder to put in.",
}
_QUOTED = re.compile(r"(?<==)'([\w./@+-]*)'$", re.ASCII)  # what the command quoted for Hydra
_CARD = """\
---
{front}
---

# {title}

{purpose}

## Load it

```python
{loading}
```
{own_name}
## Base

{base}

{lineage}

## Results

{results}

## How to ask it

It was trained with `prompt={prompt}` and `rollout.form={form}`. Other prompts are new to it.
A game begins with this system prompt and this message, in the tokenizer's chat template:

```
{system}
```

```
{opening}
```

## What the export changed

{change}

## How it was made

- Training: `{training}`
- Export of {checkpoint}: `{export}`
- Run `{run}`: began {began}, {status} {ended}. Exported {now}.
- Trained with Python {python}, {versions}.
- Exported with Python {own_python}, {own_versions}.
"""


@dataclass(frozen=True, kw_only=True)
class Start:
    """The model that training began with."""

    name: str  # hub name, folder, embedded/..., fetched/..., or untrained
    revision: str
    adapted: bool  # whether the exported model is an adapter on it


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says about an export."""

    source: ExportSource
    form: str  # peft, merged or mlx
    precision: str  # of the written weights
    change: Change


def find_start(source: ExportSource) -> Start:
    """The base of an adapter. For other models, the start of the first run, as far as it is known.

    Runs that began from another run are followed as long as their folders are there.
    """
    from wordle_rl.backends.adapter_checks import find_base_name
    from wordle_rl.backends.adapter_conversion import (
        is_adapter,
        read_adapter_config,
        read_adapter_form,
    )

    folder = source.folder
    if is_adapter(folder):
        name = find_base_name(folder, read_adapter_form(folder))
        revision = read_adapter_config(folder).get("revision") or MAIN
        return Start(name=name, revision=str(revision), adapted=True)
    model, seen = source.start, {source.run.path.resolve()}
    while (earlier := maker(str(model["path"]))) and earlier.path.resolve() not in seen:
        seen.add(earlier.path.resolve())
        model = read_saved_config(earlier).model
    revision = model.get("revision") or MAIN
    return Start(name=str(model["path"]), revision=str(revision), adapted=False)


def write_card(folder: Path, card: Card) -> None:
    """Write README.md into the folder of an export."""
    write_bytes(folder / "README.md", printable(describe(card)).encode())


def describe(card: Card) -> str:
    """The text of a card."""
    source, start = card.source, find_start(card.source)
    manifest, here = source.run.manifest(), describe_environment()
    kind, _, model = start.name.partition("/")
    note = _OWN_NAMES.get(kind, "") if card.form == "peft" else ""
    stages = stages_of(source.folder)
    lineage = describe_lineage(
        stages, source.words, source.splits, untrained=start.name == UNTRAINED
    )
    return _CARD.format(
        front="\n".join(_front_matter(card.form, start)),
        title=given_name(source.run.path.name),
        purpose=_fill(f"{_WHAT} {_PURPOSES[card.form]}"),
        loading=_LOADING[card.form].format(base=start.name),
        own_name=f"\n{note.format(name=start.name, model=model)}\n" if note else "",
        base=_fill(_describe_base(start, source)),
        lineage=_fill(lineage[:1].upper() + lineage[1:]),
        results=_describe_results(source),
        prompt=prompt_name(source.style),
        form=source.form,
        system=source.style.rules if source.form == "tool" else source.style.system,
        opening=source.style.opening(State()),
        change=_fill(_describe_change(card)),
        checkpoint=f"step {source.step}",
        training="`, resumed with `".join(_list_commands(manifest)),
        export=_join(["-m", "wordle_rl.export", *sys.argv[1:]]),
        run=source.run.path.name,
        began=manifest.get("started", "at an unknown time"),
        status=manifest.get("status", "status unknown"),
        ended=manifest.get("status_since", ""),
        now=datetime.now().astimezone().isoformat(timespec="seconds"),
        python=manifest.get("python", "unknown"),
        versions=_list_versions(manifest),
        own_python=here["python"],
        own_versions=_list_versions(here),
    )


def _front_matter(form: str, start: Start) -> list[str]:
    lines = [f"library_name: {_LIBRARIES[form]}"]
    if licence := find_licence(start.name):
        lines.append(f"license: {licence.identifier}")
    if start.name in LICENCES and not start.name.startswith("fetched/"):
        lines.append(f"base_model: {start.name}")
    return [*lines, "tags: [wordle, wordle-rl]"]


def _describe_base(start: Start, source: ExportSource) -> str:
    """What the base is, and what is known about its licence."""
    if start.name == UNTRAINED:
        return "Training began with random weights, so there is no base."
    local = Path(start.name).is_absolute() or Path(start.name).is_dir()
    revision = "" if local or start.name.startswith(("embedded/", "fetched/")) else start.revision
    text = f"The base is `{start.name}`" + (f", revision `{revision}`. " if revision else ". ")
    if licence := find_licence(start.name):
        text += f"Its licence: {licence.words}."
    elif local:
        text += (
            "It is a local folder, so its licence is not known here. Look it up before you share "
            "this model."
        )
    else:
        text += "Its licence is not known here. Look it up on its page before you share this model."
    if source.start.get("quantize"):
        text += (
            f" In training it was rounded to {source.start['quantize']}. The export was made and "
            "compared with the base as it is, so it plays slightly differently from the run."
        )
    return text


def _describe_results(source: ExportSource) -> str:
    """The run's report on start and best, if this checkpoint is the one that was reported."""
    folder = source.run.path
    try:
        summary = read_object(folder / "summary.json")
        if summary.get("exported_step") != source.step:
            return f"The run's report is about step {summary.get('exported_step')}, not this one."
        if "player" not in summary:
            return "The run played no test secrets (trainer.report=false), so it has no report."
        best, begin = read_report(folder / "summary.json"), read_report(folder / "start.json")
    except FileNotFoundError:
        return "The run has no report on this checkpoint."
    except FolderError as error:
        return _fill(f"The run's report cannot be shown: {error}.")
    players = [begin | {"player": "start"}, best | {"player": f"step {source.step}"}]
    return (
        f"Greedy games on {best['games']} secrets (split `{best['split']}`), with 95 % intervals:"
        f"\n\n```\n{results_table(players, 80)}\n```"
    )


def _describe_change(card: Card) -> str:
    text = f"The weights are {card.precision}. In float32 products, {card.change.describe()}."
    limits = f" The export is refused above {LIMITS[card.precision]:g} on average"
    if card.change.adapter is not None:
        limits += f", or above {MOST_LOST:.0%} of what the adapter changes"
    return text + limits + "."


def _list_commands(manifest: dict[str, Any]) -> list[str]:
    """The command of a run, and the commands that resumed it."""
    resumes = [resume.get("command", []) for resume in manifest.get("resumes", [])]
    return [_join(command) for command in (manifest.get("command", []), *resumes)]


def _join(command: list[str]) -> str:
    plain = [_QUOTED.sub(r"\1", argument) for argument in command]
    return shlex.join(["python", *plain]).replace("`", "'")


def _list_versions(record: dict[str, Any]) -> str:
    versions = record.get("versions", {})
    names = ("torch", "transformers", "peft", "mlx", "mlx-lm")
    known = [f"{name} {versions[name]}" for name in names if name in versions]
    return ", ".join(known) or "unknown versions"


def _fill(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False)
