"""One group of a step for a page: its guesses turn by turn, as docs/GRPO.md tells one."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd

from wordle_rl.evaluation.boards import NOTES
from wordle_rl.policy.sampling import describe_drawing

_NONE = "–"
_OF_GAMES = "game"  # rollout=game; the other kinds draw several guesses in one state


class GroupStory(NamedTuple):
    """What a page says about a group."""

    title: str
    sentences: list[str]
    tables: list[tuple[str, pd.DataFrame]]  # of each turn, its caption and a row for each guess


def tell_group(group: Mapping[str, Any]) -> GroupStory:
    """The story of a record of groups.jsonl."""
    guesses = group["guesses"]
    names = dict.fromkeys(name for one in guesses for name, v in one["parts"].items() if v)
    tables = []
    for turn, mean in enumerate(group["means"]):
        rows = [one for one in guesses if one["turn"] == turn]
        number = group["turns_used"] + turn + 1
        caption = f"Turn {number}, where the mean reward is {mean:.4f}"
        tables.append((caption, _table_of(rows, [*names])))
    return GroupStory(f"One group of step {group['step']}", [*_explain(group)], tables)


def _explain(group: Mapping[str, Any]) -> list[str]:
    guesses, whole = group["guesses"], group["kind"] == _OF_GAMES
    number = len({one["game"] for one in guesses})
    what = f"played {number} games on it" if whole else f"drew {number} guesses in one state"
    teaches = group["by_letter"] or any(one["advantage"] for one in guesses)
    role = "the first group of the step that teaches" if teaches else "a group that teaches nothing"
    lines = [
        f"The secret is {group['secret'].upper()}. The policy {what}, "
        f"{describe_drawing(group['temperature'])}. It is {role}.",
        f"The reward of a guess is {_describe_reward(group)}, the sum of its parts beside it. What "
        f"algorithm={group['algorithm']} made of the rewards is the advantage from which the "
        "update learnt.",
        "The probability of a guess is that of its whole answer, all tokens together, as the "
        f"policy draws. The update between the two learnt from all {group['groups']} groups of the "
        "step. docs/GRPO.md follows such a group line by line.",
    ]
    if group["by_letter"]:
        lines.append("Letters have advantages of their own, which are added and not shown.")
    return lines


def _describe_reward(group: Mapping[str, Any]) -> str:
    if group["credit"] == "game":
        return "what its whole game earned"
    if group["kind"] != _OF_GAMES or group["discount"] == 0:
        return "what it earned by itself"
    if group["discount"] == 1:
        return "what it and the later guesses of its game earned"
    return (
        "what it and the later guesses of its game earned, each turn later discounted by "
        f"{group['discount']:g}"
    )


def _table_of(rows: Sequence[Mapping[str, Any]], parts: Sequence[str]) -> pd.DataFrame:
    records = [
        {
            "game": str(row["game"]),
            "clues so far": ", ".join(_show(word, marks) for word, marks in row["clues"]),
            "guess": f"{_show(row['guess'], row['marks'])} {NOTES[row['kind']]}".strip(),
            **{name: f"{row['parts'].get(name, 0.0):.4f}" for name in parts},
            "reward": f"{row['reward']:.4f}",
            "advantage": f"{row['advantage']:+.3f}",
            "tokens": str(row["tokens"]),
            "probability before": describe_probability(row["before"]),
            "after": describe_probability(row["after"]),
            "change": _describe_change(row["before"], row["after"]),
        }
        for row in rows
    ]
    frame = pd.DataFrame(records).set_index("game")
    begun = any(row["clues"] for row in rows)
    return frame if begun else frame.drop(columns="clues so far")


def _show(word: str | None, marks: str | None) -> str:
    """A guess with its marks, which do not break between two lines."""
    text = (marks or "").replace("-", "\u2011")
    return f"{(word or '').upper()}\u00a0{text}".strip()


def describe_probability(logprob: float | None) -> str:
    """A probability from its natural log, however small. None: it was no number."""
    return _NONE if logprob is None else f"{Decimal(logprob).exp():.3g}"


def _describe_change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return _NONE
    return f"×\u00a0{describe_probability(after - before)}"
