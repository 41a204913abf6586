"""The lineage of a model: which secrets the training games of each of its stages could have.

It is read from the record in the model's folder (wordle_rl.policy.stages). The record says what the
runs of this package did. What an earlier model was trained on elsewhere is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from wordle_rl.policy.settings import UNTRAINED
from wordle_rl.policy.stages import Stage
from wordle_rl.runs.folder import given_name
from wordle_rl.words.lists import WordLists, words_digest
from wordle_rl.words.splits import Splits

UNKNOWN = "lineage unknown: nobody recorded what the model was trained on."
CLEAN = "No test secret was ever the secret of a training game."


def is_clean(stage: Stage, words: WordLists, splits: Splits) -> bool:
    """Whether no validation or test secret of these splits could be a secret of its training games.

    Held-out secrets are the first in hash order. So a stage that held out as many or more of the
    same lists held out these ones, too. A record that names other secrets than its protocol allows
    is not clean. A stage on a file is clean if no row lacks its secret and none is held out.
    """
    digests = stage.get("digests", {})
    if "data" in stage:
        return _is_clean_data(stage, splits)
    if stage.get("protocol") not in ("split", "allowed"):
        return False
    if digests.get("words") != words.digest:
        return False
    if stage.get("held_out", -1) < len(splits.test) + len(splits.val):
        return False
    return digests.get("secrets") == words_digest(_list_secrets(stage, words, splits))


def _is_clean_data(stage: Stage, splits: Splits) -> bool:
    """Whether a stage on a file names the secrets of all its rows, and none is held out."""
    secrets = {*stage["data"]["secrets"].split()}
    if stage["data"]["unknown_rows"] or not secrets:
        return False
    if stage.get("digests", {}).get("secrets") != words_digest(secrets):
        return False
    return not secrets & {*splits.test, *splits.val}


def _list_secrets(stage: Stage, words: WordLists, splits: Splits) -> Sequence[str]:
    """The secrets that a stage on the same lists could have, by its protocol and numbers."""
    ordered, held = splits.secrets("all"), stage["held_out"]  # ordered: by hash
    if stage["protocol"] == "split" and not stage.get("allowed_share"):
        return ordered[held:][: stage.get("secrets")]
    return sorted({*words.allowed} - {*ordered[:held]})


def describe_lineage(
    stages: Sequence[Stage], words: WordLists, splits: Splits, *, untrained: bool = False
) -> str:
    """One line: the stages, what secrets each could have, and whether they were held out.

    untrained: whether a model without stages is a new one.
    """
    if not stages:
        return f"lineage: an untrained model. {CLEAN}" if untrained else UNKNOWN
    start = stages[0].get("start")
    chain = [] if start == UNTRAINED else [f"{start} (unknown)" if start else "unknown"]
    chain += [f"{given_name(stage['run'])} ({describe_secrets(stage)})" for stage in stages]
    unclean = [given_name(s["run"]) for s in stages if not is_clean(s, words, splits)]
    if unclean:
        named = " and ".join(dict.fromkeys(unclean))
        verdict = f"The training games of {named} could have validation or test secrets."
    elif start == UNTRAINED:
        verdict = CLEAN
    else:
        verdict = "No training game of these runs had a test secret. What came before is unknown."
    return f"lineage: {' -> '.join(chain)}. {verdict}"


def describe_secrets(stage: Stage) -> str:
    """The secrets that the training games of a stage could have, in a few words."""
    protocol, share = stage.get("protocol"), stage.get("allowed_share", 0.0)
    count = f"{stage['secrets']:,} " if "secrets" in stage else ""
    if "data" in stage:
        data = stage["data"]
        secrets, unknown = len(data["secrets"].split()), data["unknown_rows"]
        parts = [f"{secrets:,} secret{'s' * (secrets != 1)}"] if secrets else []
        if unknown:
            parts.append(f"{unknown:,} row{'s' * (unknown != 1)} without a secret")
        return f"{data.get('file', 'a file')}: {' and '.join(parts)}"
    if protocol == "all":
        return f"all {count}answers"
    if protocol == "allowed" or share == 1.0:
        return f"{count}allowed words"
    if share:
        return f"{count}allowed words in {share:.0%} of the groups, else training answers"
    return f"{count}training answers" if protocol == "split" else "secrets unknown"
