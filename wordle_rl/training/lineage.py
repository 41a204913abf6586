"""The lineage of a model: what its stages were trained on, and which secrets they could have.

Each model's folder has a record, wordle_rl.json, which is copied with it. It lists the stages of
the model, oldest first, with one stage for each run that trained it. A model that no run of this
package made has no record, and what it was trained on elsewhere is unknown. Entries of a stage:

- run: the name of its folder. algorithm, and player: the teacher, null without one.
- start: the model it began with, in the first stage only. "untrained" is a new one.
- protocol, allowed_share: which secrets its training games could have. secrets: how many.
- held_out: how many validation and test secrets could not be among them.
- digests: of the word lists, the splits and these secrets.
- data: the file that was trained on, if any. Its name, sha256 and split, the number of rows, how
  many of them have no secret (unknown_rows), and the secrets of the others, joined by blanks.
- prompt, form: how the model was asked.
- reference: another model that it learnt from: name, sha256 of the files in its folder, stages.
- embedded: the name of the embedded model that it became a part of, if any.

The record of an adapter also has `base`: the digest of the model under it, and the name and the
absolute path of a local one.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.policy.models import UNTRAINED
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.files import check_all_entries, check_entries, read_object, write_json
from wordle_rl.runs.folder import given_name
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.words.lists import WordLists, words_digest
from wordle_rl.words.splits import Splits

RECORD = "wordle_rl.json"
_KINDS: dict[str, Any] = {  # the entries of a stage that are computed with
    "digests": dict[str, str],
    **dict.fromkeys(("protocol", "prompt", "form", "player"), str | None),
    **dict.fromkeys(("secrets", "held_out"), int),
    "allowed_share": float,
    **dict.fromkeys(("data", "reference"), dict),
}
UNKNOWN = "lineage unknown: nobody recorded what the model was trained on."
CLEAN = "No test secret was ever the secret of a training game."

Stage = dict[str, Any]


def stages_of(model: str | Path) -> list[Stage]:
    """The stages of a model, given its hub name or folder. Empty without a record.

    Raises ConfigError in one line when the record cannot be read.
    """
    file = Path(model) / RECORD
    if not file.is_file():
        return []
    try:
        return _check(file, read_object(file))
    except (ConfigError, OSError) as error:
        raise ConfigError(f"{error}; it should list the runs that made the model") from None


def write_stages(folder: Path, stages: Sequence[Stage]) -> None:
    """Write the stages into a model's folder, unless there are none."""
    if stages:
        _add_to_record(folder, {"stages": list(stages)})


def base_of(adapter: Path) -> dict[str, str]:
    """What an adapter's record says of the model under it. Empty without a record."""
    file = adapter / RECORD
    record = read_object(file) if file.is_file() else {}
    check_entries(file, record, {"base": dict[str, str]})
    return record.get("base", {})


def write_base(adapter: Path, base: Mapping[str, str]) -> None:
    """Write into an adapter's record what base_of() reads, unless there is nothing."""
    if base:
        _add_to_record(adapter, {"base": dict(base)})


def _add_to_record(folder: Path, entries: Mapping[str, Any]) -> None:
    file = folder / RECORD
    record = read_object(file) if file.is_file() else {}
    write_json(file, {"stages": [], **record, **entries})


def prompt_name(style: PromptStyle) -> str:
    """The style as the command line chooses it behind prompt=."""
    wording = f" prompt.wording={style.wording}" * (style.wording != "brief")
    return style.name + wording + " prompt.think=true" * style.think


def _check(file: Path, record: dict[str, Any]) -> list[Stage]:
    """The stages of a record, or of the reference of a stage."""
    check_all_entries(file, record, {"stages": list[dict]})
    for stage in record["stages"]:
        check_all_entries(file, stage, {"run": str})
        check_entries(file, stage, _KINDS)
        if "data" in stage:
            check_all_entries(file, stage["data"], {"secrets": str, "unknown_rows": int})
        if "reference" in stage:
            check_all_entries(file, stage["reference"], {"name": str})
            _check(file, stage["reference"])
    return record["stages"]


def is_clean(stage: Stage, words: WordLists, splits: Splits) -> bool:
    """Whether no validation or test secret of these splits could be a secret of its training games.

    Held-out secrets are the first in hash order. So a stage that held out as many or more of the
    same lists held out these ones, too. A record that names other secrets than its protocol allows
    is not clean. A stage on a file is clean if no row lacks its secret and none is held out. The
    stages of its reference must be clean, too.
    """
    stages = stage.get("reference", {"stages": []})["stages"]
    if not all(is_clean(other, words, splits) for other in stages):
        return False
    digests, num_held_out = stage.get("digests", {}), stage.get("held_out", -1)
    if "data" in stage:
        secrets = {*stage["data"]["secrets"].split()}
        known = bool(secrets) and not stage["data"]["unknown_rows"]
        matches = digests.get("secrets") == words_digest(secrets)
        return known and matches and not secrets & {*splits.test, *splits.val}
    if stage.get("protocol") not in ("split", "allowed") or digests.get("words") != words.digest:
        return False
    hash_order = splits.secrets("all")  # by hash
    candidates: Iterable[str] = {*words.allowed} - {*hash_order[:num_held_out]}
    if stage["protocol"] == "split" and not stage.get("allowed_share"):
        candidates = hash_order[num_held_out:][: stage.get("secrets")]
    held_out_all = num_held_out >= len(splits.test) + len(splits.val)
    return held_out_all and digests.get("secrets") == words_digest(candidates)


def describe_lineage(
    stages: Sequence[Stage], words: WordLists, splits: Splits, *, untrained: bool = False
) -> str:
    """One line: the stages, what secrets each could have, and whether they were held out."""
    if not stages:
        return f"lineage: an untrained model. {CLEAN}" if untrained else UNKNOWN
    start = stages[0].get("start")
    chain = []
    if start != UNTRAINED:
        chain.append(f"{start} (unknown)" if start else "unknown")
    chain += [f"{given_name(stage['run'])} ({describe_secrets(stage)})" for stage in stages]
    references = [f", reference {s['reference']['name']}" for s in stages if "reference" in s]
    names = [given_name(s["run"]) for s in stages if not is_clean(s, words, splits)]
    if names:
        runs = " and ".join(dict.fromkeys(names))
        verdict = f"The training games of {runs} could have validation or test secrets."
    elif _is_known(stages):
        verdict = CLEAN
    else:
        verdict = "No training game of these runs had a test secret. What came before is unknown."
    return f"lineage: {' -> '.join(chain)}{''.join(references)}. {verdict}"


def _is_known(stages: Sequence[Stage]) -> bool:
    """Whether a model, and each reference that it learnt from, began untrained."""
    fresh = bool(stages) and stages[0].get("start") == UNTRAINED
    return fresh and all(_is_known(s["reference"]["stages"]) for s in stages if "reference" in s)


def describe_secrets(stage: Stage) -> str:
    """The secrets that the training games of a stage could have, in a few words."""
    protocol, share = stage.get("protocol"), stage.get("allowed_share", 0.0)
    count = f"{stage['secrets']:,} " if "secrets" in stage else ""
    if "data" in stage:
        data = stage["data"]
        text = f"{data.get('file', 'a file')}: {len(data['secrets'].split()):,} secrets"
        suffix = f", and {data['unknown_rows']:,} rows without a secret"
        return text + suffix * bool(data["unknown_rows"])
    if protocol == "all":
        return f"all {count}answers"
    if protocol == "allowed" or share == 1.0:
        return f"{count}allowed words"
    if share:
        return f"{count}allowed words in {share:.0%} of the groups, else training answers"
    return f"{count}training answers" if protocol == "split" else "secrets unknown"
