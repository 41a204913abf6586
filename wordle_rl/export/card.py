"""The card of a model: what it is, where it comes from, how well it plays, how to ask it."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.export.check import ROUNDING, Change
from wordle_rl.export.formats import ExportFormat, Source, Start
from wordle_rl.game.rules import State
from wordle_rl.policy.models import MAIN, UNTRAINED, known_models
from wordle_rl.runs.files import render_template
from wordle_rl.training.lineage import prompt_name

OURS = "mit"  # the licence of this project and of its embedded models
_IN_WORDS = {  # licences as the hub names them
    "apache-2.0": "Apache 2.0",
    "gemma": "Gemma Terms of Use (ai.google.dev/gemma/terms). They restrict what the model may be "
    "used for, and they bind everyone who gets a model made from it",
    "mit": "MIT licence",
    "other": "Qwen Research licence, for research only",
}


def find_licence(base: str) -> tuple[str, str] | None:
    """The licence of a base: as the hub names it, and in words. None if it is not known."""
    if (entry := known_models().get(base)) is not None:
        return entry["licence"], _IN_WORDS[entry["licence"]]
    return (OURS, "MIT, as this project") if base.startswith("embedded/") else None


def describe_base(start: Start) -> str:
    """What the base is, and what is known about its licence."""
    if start.name == UNTRAINED:
        return "Training began with random weights, so there is no base."
    is_local, licence = Path(start.name).is_dir(), find_licence(start.name)
    text = f"The base is `{start.name}`"
    text += ". " if start.revision == MAIN else f", revision `{start.revision}`. "
    if licence is not None:
        text += f"Its licence: {licence[1]}."
    else:
        intro = "It is a local folder, so its licence is" if is_local else "Its licence is"
        text += f"{intro} not known here. Look it up before you share this model."
    if start.rounded:
        text += (
            f" In training it was rounded to {start.rounded}. The export was made and compared "
            "with the base as it is, so it plays slightly differently from the run."
        )
    return text


def describe_change(change: Change, precision: str) -> str:
    """What the export changed, and what rounding explains."""
    return (
        f"The weights are {precision}. In float32 products, {change.describe()}. Rounding to "
        f"{precision} explains up to about {ROUNDING[precision]:g}."
    )


def describe(
    source: Source,
    *,
    title: str,
    purpose: str,
    reports: Sequence[tuple[str, Mapping[str, Any]]],
    made: Sequence[str],
    form: ExportFormat | None = None,
    change: str = "",
    licence: str | None = None,
) -> str:
    """The text of a card.

    reports: what played, and its summary. made: how the model was made. form and change: of an
    export. licence: used where the start has none that is known.
    """
    start, terms = source.start, find_licence(source.start.name)
    is_own = start.name.startswith(("embedded/", "fetched/"))
    return render_template(
        Path(__file__).with_name("card.md.j2"),
        wrap=lambda text: textwrap.fill(text, 100, break_on_hyphens=False),
        form=form,
        licence=terms[0] if terms else licence,
        hub_base=start.name if terms and not is_own else None,
        title=title,
        purpose=purpose,
        base_name=start.name,
        own_base=is_own,
        base=describe_base(start),
        lineage=source.lineage[:1].upper() + source.lineage[1:],
        reports=reports,
        losses_as=source.rules.max_turns + 1,
        prompt=prompt_name(source.style),
        source=source,
        opening=source.style.opening(State()),
        change=change,
        made=made,
    )
