"""wordle-rl export: writes a run's model for peft, transformers or mlx-lm."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from wordle_rl.runs.folder import RunFolder, find_run, given_name
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT, runnable

_ADAPTER = "adapter_config.json"


def export(
    run: Annotated[
        str, typer.Argument(help="folder of a run, latest, or folder of an adapter to convert")
    ],
    format: Annotated[
        Literal["peft", "merged", "mlx", "mlx-adapter"],
        typer.Option(
            help="peft: the adapter. merged: whole weights for transformers. mlx: for mlx-lm. "
            "mlx-adapter: an adapter's folder for mlx-lm"
        ),
    ],
    output: Annotated[
        str | None, typer.Option(help="new folder; default: in the run, named as the format")
    ] = None,
    checkpoint: Annotated[
        Literal["best", "last", "start"], typer.Option(help="which of the run's")
    ] = "best",
    precision: Annotated[
        Literal["auto", "bfloat16", "float16", "float32"], typer.Option(help="auto: the base's own")
    ] = "auto",
    base: Annotated[
        str | None, typer.Option(help="of an adapter's folder: the model that the new one names")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an export of a run")] = False,
    push: Annotated[
        str | None, typer.Option(help="hub name: also upload the folder there, as a private model")
    ] = None,
) -> None:
    """Write a run's model for peft, transformers or mlx-lm.

    An adapter is merged into whole weights. The folder also gets the tokenizer and a model card.
    Before it gets its name, the written weights are compared with the trained ones.
    """
    from wordle_rl.backends.hub import check_target, upload

    if push is not None:
        check_target(push)
    if (ROOT / run / _ADAPTER).is_file():
        if push is not None:
            raise ConfigError("--push is for a run, not for the folder of an adapter")
        return _convert(ROOT / run, format, ROOT / output if output else None, base)
    if format == "mlx-adapter":
        raise ConfigError("format must be peft, merged or mlx for a run, not mlx-adapter")
    if base is not None:
        raise ConfigError("base is for the folder of an adapter, not for a run")
    if format == "peft" and precision != "auto":
        raise ConfigError("precision must be auto with format peft: an adapter keeps its own")
    folder = find_run(run)
    target = ROOT / output if output else folder.path / format
    _check_free(target, force)
    options = [("checkpoint", checkpoint, "best"), ("precision", precision, "auto")]
    flags = "".join(f" --{key} {value}" for key, value, default in options if value != default)
    command = f"wordle-rl export {shlex.quote(run)} --format {format}{flags}"
    print(_write(folder, format, target, checkpoint, precision, command), flush=True)
    if push is not None:
        upload(target, push)


def _check_free(target: Path, force: bool) -> None:
    """Raise ConfigError unless an export may be written there."""
    ours = (target / "README.md").is_file() and [*target.glob("*config.json")]
    if target.exists() and not (force and ours):
        cure = "name another one, or replace it with --force" if ours else "name another one"
        raise ConfigError(f"output must be a new folder, and {target} exists: {cure}")
    if not target.parent.is_dir():
        raise ConfigError(f"output must be in a folder that exists, not in {target.parent}")


def _write(
    run: RunFolder, form: Any, target: Path, checkpoint: Any, precision: Any, command: str
) -> str:
    """Write a run's model with its card. Returns what the terminal shows of it."""
    from wordle_rl.commands.export_source import list_facts, read_reports, read_source
    from wordle_rl.export.card import describe, describe_change
    from wordle_rl.export.check import export as write

    source = read_source(run, checkpoint)
    kind = "a LoRA adapter in PEFT's form" if form == "peft" else "whole weights"

    def card(dtype: str, change: Any) -> str:
        return describe(
            source,
            title=given_name(run.path.name),
            purpose=f"A language model that plays Wordle, trained with wordle-rl: {kind}.",
            reports=read_reports(run, source.step),
            made=list_facts(run, f"Export of step {source.step}: `{command}`"),
            form=form,
            change=describe_change(change, dtype),
        )

    dtype, change = write(source, target, form, precision, card)
    return f"{'adapter' if form == 'peft' else f'{dtype} weights'}: {change.describe()}\n{target}"


def _convert(adapter: Path, form: str, target: Path | None, base: str | None) -> None:
    """Convert an adapter between PEFT's form and mlx-lm's, bit for bit."""
    from wordle_rl.backends.adapters import convert_adapter, read_adapter_form

    if form not in ("peft", "mlx-adapter"):
        raise ConfigError(
            f"format must be peft or mlx-adapter for the folder of an adapter, not {form}; its run "
            f"has whole weights: {runnable('wordle-rl export')} <run> --format {form}"
        )
    if target is None:
        raise ConfigError("output must be given for the folder of an adapter: --output <folder>")
    kind = form.removesuffix("-adapter")
    if read_adapter_form(adapter) == kind:
        raise ConfigError(f"{adapter} has the form of {form} already")
    convert_adapter(adapter, target, base=base)
    print(f"{target}: the adapter in the form of {kind}")
