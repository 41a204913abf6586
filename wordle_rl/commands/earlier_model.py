"""What the record of a model says against using it: its secrets, its prompt, its word lists."""

from __future__ import annotations

from wordle_rl.policy.lineage import is_clean
from wordle_rl.policy.stages import prompt_name, stages_of
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits


def check_secrets(protocol: str, words: WordLists, splits: Splits, model: str) -> None:
    """Raise ConfigError if a run that made the model may have trained on held-out secrets.

    model: its hub name or folder. The stages of an embedded model take the place of pretraining, so
    they may have had other word lists. A model without a record is accepted. Tables show both.
    """
    if protocol == "all":
        return
    for stage in stages_of(model):
        if "embedded" in stage and stage.get("digests", {}).get("words") != words.digest:
            continue
        if not is_clean(stage, words, splits):
            raise ConfigError(
                f"the model {model} comes from the run {stage['run']}, which may have trained on "
                "secrets that are now held out: use its words.protocol, words.test and words.val "
                f"(it held out {stage.get('held_out', 'no')} secrets), or words.protocol=all"
            )


def check_match(model: str, style: PromptStyle, form: tuple[str, str], words: WordLists) -> None:
    """Raise ConfigError if the run that made a model had another prompt, form or word lists.

    model: its hub name or folder. An embedded one is a start for any of them. form: the key of the
    setting, and its value.
    """
    stages = stages_of(model)
    if not stages or "embedded" in stages[-1]:
        return
    last = stages[-1]
    key, value = form
    for name, now, then in (
        ("prompt", prompt_name(style), last.get("prompt")),
        (key, value, last.get("form")),
        ("words", words.digest, last.get("digests", {}).get("words")),
    ):
        if then not in (None, now):
            wrong = "words: other word lists" if name == "words" else f"{name}={now}: not {then}"
            raise ConfigError(
                f"{wrong} as in the run {last['run']}, which made the model {model}; choose the "
                "same, or allow it with allow_mismatch=true"
            )


def describe_untaught_prompt(model: str, style: PromptStyle) -> str | None:
    """A warning about an embedded model that was taught another prompt; else None.

    model: its hub name or folder.
    """
    stages = stages_of(model)
    if not stages or "embedded" not in stages[-1]:
        return None
    asked, taught = prompt_name(style), stages[-1].get("prompt")
    if taught in (None, asked):
        return None
    return (
        f"warning: the model {stages[-1]['embedded']} was taught prompt={taught} alone, and cannot "
        f"be expected to win with prompt={asked}"
    )
