"""Why a run does not learn, from its metrics: a rule of a few lines for each cause.

A rule compares the first third of the steps with the last third, or looks at the last third alone.
What it calls a change is at least three standard errors, which come from the differences of
neighbouring steps, so that a trend does not count as noise. A rule that lacks a metric is silent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import Z95

Values = np.ndarray[Any, np.dtype[np.float64]]

LEAST_STEPS = 6  # with fewer nothing can be told
_CLEAR = 3.0  # standard errors of a change
_SILENT = "no known cause, and no clear rise: what counts is the test, which is not read here"
_SAME = 0.3  # of validation: greedy games that a policy which does not move plays again
_LOSS = 2.0  # of a change of wins: the same secrets are played before and after
_NOISY = 10.0  # steps in a noise scale: runs that learn have up to four
_FEW_GUESSES = 50
_WINS = ("val/win_rate", "train/win_rate")


@dataclass(frozen=True)
class Finding:
    """One cause, with what shows it and what to change.

    strength: how far beyond the rule's limit, 1 at the limit. Findings are told in this order.
    """

    cause: str
    strength: float
    seen: str
    change: str


class Curves:
    """The metrics of a run: for each name its values, one for each step that has it."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.steps = 0
        values: dict[str, list[float]] = {}
        for row in rows:
            self.steps += row.get("step", 1) > 0
            for name, value in row.items():
                if isinstance(value, (int, float)) and math.isfinite(value):
                    values.setdefault(name, []).append(float(value))
        self._values = {name: np.array(curve) for name, curve in values.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> Values:
        return self._values.get(name, np.array([]))

    @property
    def parts(self) -> list[str]:
        """The names of the rewards, without what stands before them."""
        return [name.removeprefix("reward/") for name in self._values if name[:7] == "reward/"]

    def start(self, name: str) -> float:
        """The first value; NaN without the metric."""
        return float(self.all(name)[0]) if name in self else math.nan

    def mean(self, name: str) -> float:
        """Mean of all steps; NaN without the metric."""
        return float(self.all(name).mean()) if name in self else math.nan

    def _thirds(self, name: str) -> tuple[Values, Values]:
        curve = self.all(name)
        part = max(1, len(curve) // 3)
        return curve[:part], curve[-part:]

    def first(self, name: str) -> float:
        """Mean of the first third of the steps; NaN without the metric."""
        third = self._thirds(name)[0]
        return float(third.mean()) if len(third) else math.nan

    def last(self, name: str) -> float:
        """Mean of the last third of the steps; NaN without the metric."""
        third = self._thirds(name)[1]
        return float(third.mean()) if len(third) else math.nan

    def rise(self, name: str) -> float:
        """The last third minus the first, in standard errors; 0 with fewer than six values."""
        curve = self.all(name)
        if len(curve) < LEAST_STEPS:
            return 0.0
        noise = math.sqrt(float(np.mean(np.diff(curve) ** 2)) / 2)  # of one step
        error = noise * math.sqrt(2 / (len(curve) // 3))
        change = self.last(name) - self.first(name)
        if error == 0:
            return math.copysign(math.inf, change) if change else 0.0
        return change / error

    @property
    def progress(self) -> float:
        """The rise of the reward, or without one that of wins, in standard errors."""
        return next((self.rise(name) for name in ("reward/mean", *_WINS) if name in self), 0.0)

    @property
    def wins(self) -> float:
        """The rise of wins in standard errors, of training or of validation, whichever is less.

        Validation is compared with the start, as a run can lose what it had in its first steps.
        """
        rises = [self.rise("train/win_rate"), self.rise_of_validation]
        changes = [rise for rise in rises if rise]  # 0: too few values, or none
        return min(changes, default=0.0)

    @property
    def never_wins(self) -> bool:
        """Whether training games are known and none of them was won."""
        wins = self.all("train/win_rate")
        return len(wins) > 0 and not wins.any()

    @property
    def rise_of_validation(self) -> float:
        """The last validation's wins minus the first's, in standard errors; 0 with fewer."""
        wins, low, high = (self.all(f"val/win_rate{end}") for end in ("", "_low", "_high"))
        if len(wins) < 2 or not len(wins) == len(low) == len(high):
            return 0.0
        errors = (high - low)[[0, -1]] / (2 * Z95)
        return float((wins[-1] - wins[0]) / np.hypot(*errors))


def diagnose(curves: Curves, settings: Mapping[str, Any]) -> list[Finding]:
    """What keeps a run from learning, the strongest first; empty when it learns or none is seen.

    settings: of the run, by name, as far as they are known. While reward and wins rise, only what
    can spoil such a run is told.
    """
    if curves.steps < LEAST_STEPS:
        return [
            Finding(
                "too few steps",
                1.0,
                f"{curves.steps} steps; a trend needs {LEAST_STEPS} or more",
                "let it train on",
            )
        ]
    rules = _ALWAYS if is_healthy(curves) else (*_ALWAYS, *_UNLESS_IT_LEARNS)
    findings = [finding for rule in rules for finding in rule(curves, settings)]
    return sorted(findings, key=lambda finding: -finding.strength)


def is_healthy(curves: Curves) -> bool:
    """Whether the reward or wins rise, neither falls, and some game is won.

    Greedy validation may gain where the wins of drawn games hardly do, and two rises that are not
    clear by themselves may be clear together.
    """
    validation = curves.rise_of_validation
    rises = (curves.progress, curves.rise("train/win_rate"))
    joint_rise = (curves.progress + validation) / math.sqrt(2)
    learns = max(rises) >= _CLEAR or max(validation, joint_rise) >= _LOSS
    return learns and min(curves.progress, curves.wins) > -_LOSS and not curves.never_wins


def describe_health(curves: Curves) -> str:
    """One line about a run for which diagnose() found nothing."""
    return "healthy: the reward rises and wins do not fall" if is_healthy(curves) else _SILENT


def numeric_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a run by name, with numbers where they are some."""
    return {key: _number(value) for key, value in settings.items()}


def _number(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


Findings = Iterator[Finding]


def _collapse(curves: Curves, _: Mapping[str, Any]) -> Findings:
    name = "train/most_common_later_guess"
    share, before = curves.last(name), curves.first(name)
    if share > 0.25 and share > 1.5 * before:
        yield Finding(
            "a favourite word",
            share / 0.25,
            f"one word is {share:.0%} of later guesses, {before:.0%} at first; below 10 % is usual",
            "reward=phase2 (a repeat costs), a smaller optim.lr, algorithm.entropy",
        )


def _hacking(curves: Curves, _: Mapping[str, Any]) -> Findings:
    learns = curves.rise("train/win_rate") >= _CLEAR  # then validation fell alone: _memorised
    rises = curves.progress >= _CLEAR and curves.wins <= -_LOSS
    holds = curves.progress > 0 and curves.wins <= -_CLEAR  # as high as it can be
    if (rises or holds) and not learns:
        skip = ("mean", "std", "min", "max", "below_0", "guess")
        parts = [f"reward/{part}" for part in curves.parts if part not in skip]
        reward = max(parts, key=lambda one: curves.last(one) - curves.first(one), default="reward")
        yield Finding(
            "reward rises while wins fall",
            -curves.wins / _LOSS,
            f"{_tell_wins(curves)}; what rises most is {reward}",
            "pay the win more, or that part less (reward.components)",
        )


def _tell_wins(curves: Curves) -> str:
    val, train = curves.all("val/win_rate"), "train/win_rate"
    text = f"training wins {curves.first(train):.1%} -> {curves.last(train):.1%}"
    return f"{text}, validation {val[0]:.1%} -> {val[-1]:.1%}" if len(val) > 1 else text


def _memorised(curves: Curves, _: Mapping[str, Any]) -> Findings:
    val, low, high = (curves.all(f"val/win_rate{end}") for end in ("", "_low", "_high"))
    if not len(val) or len(low) != len(val) or curves.rise("train/win_rate") < _CLEAR:
        return
    drop, width = float(val.max() - val[-1]), float(high[-1] - low[-1]) / 2
    if drop > width:
        yield Finding(
            "training secrets learnt by heart",
            drop / width,
            f"training wins rise to {curves.last('train/win_rate'):.1%}, validation fell from "
            f"{val.max():.1%} to {val[-1]:.1%} (half its interval: {width:.1%})",
            "stop at the best validation (it is kept), or words.train with more secrets",
        )


def _sampler(curves: Curves, _: Mapping[str, Any]) -> Findings:
    gap = curves.last("policy/sampler_gap")
    if gap > 0.02:
        yield Finding(
            "sampler and trainer differ",
            gap / 0.02,
            f"log-probabilities differ by {gap:.3f} nats a token; below 0.005 is usual",
            "one precision for both, a smaller trainer.lag, algorithm.importance_cap=2",
        )


def _unread(curves: Curves, settings: Mapping[str, Any]) -> Findings:
    compliance, non_words = curves.last("train/format"), curves.last("train/non_words")
    cap, length = settings.get("model.max_tokens"), curves.last("tokens/per_answer")
    cut = curves.last("tokens/cut")
    full = isinstance(cap, (int, float)) and length >= 0.95 * cap and compliance < 0.9
    if cut > 0.2 or full:
        text = f"{cut:.0%} of answers" if cut > 0.2 else f"answers of {length:.1f} tokens of {cap}"
        yield Finding("answers are cut", 3.0, text, "a larger model.max_tokens, a shorter prompt")
    if max(compliance, curves.start("train/format")) < 0.5:  # not one that forgot it: the rate
        yield Finding(
            "answers cannot be read",
            2.0,
            f"{compliance:.0%} of answers hold a guess",
            "imitate first (experiment=imitate), or show examples (prompt.wording=shown)",
        )
    elif non_words > 0.7 * compliance:
        yield Finding(
            "guesses are no words",
            non_words / (0.7 * compliance),
            f"{non_words / compliance:.0%} of readable guesses are in no list",
            "imitate first (experiment=imitate), reward=free, or sampling.grammar=words",
        )


def _no_spread(curves: Curves, settings: Mapping[str, Any]) -> Findings:
    by_turn = "turns/zero_spread" in curves and settings.get("rollout.credit") != "game"
    share = curves.mean("turns/zero_spread" if by_turn else "groups/zero_spread")
    if share > 1 / 3:
        win_rate = curves.last("train/win_rate")
        yield Finding(
            "groups without spread",
            0.5 + share,
            f"in {share:.0%} of groups all rewards are equal, so they teach nothing",
            "nothing is left to learn: harder secrets"
            if win_rate > 0.9
            else "a larger num_generations or sampling.temperature, a reward that pays parts",
        )


def _no_win(curves: Curves, _: Mapping[str, Any]) -> Findings:
    if curves.never_wins:
        yield Finding(
            "a start that never wins",
            1.5,
            f"no win in {curves.steps} steps",
            "imitate first (experiment=imitate), or begin games late (history=upto4)",
        )


def _certainty(curves: Curves) -> str:
    """The metric of how sure the policy is: mean surprise of drawn tokens, or their entropy."""
    return "policy/surprise" if "policy/surprise" in curves else "policy/entropy"


def _rate_high(curves: Curves, settings: Mapping[str, Any]) -> Findings:
    name = _certainty(curves)
    before, after, clipping = curves.first(name), curves.last(name), curves.last("policy/clipped")
    signs = {}  # what shows it -> how far beyond its limit
    if curves.progress < -_CLEAR:
        reward = f"{curves.first('reward/mean'):.3g} -> {curves.last('reward/mean'):.3g}"
        signs[f"the reward fell ({reward})"] = -curves.progress / _CLEAR
    if curves.wins <= -_CLEAR and curves.progress <= 0:
        signs[_tell_wins(curves)] = -curves.wins / _CLEAR
    if before > 0 and after > 0 and (curves.progress <= 0 or curves.wins < 0):
        signs[f"{name} {before:.2f} -> {after:.2f}, while reward or wins fell or stood still"] = (
            max(before / after, after / before) / 1.5
        )
    signs[f"{clipping:.0%} of tokens are clipped"] = clipping / 0.3
    alarms = {text: strength for text, strength in signs.items() if strength > 1}
    if alarms:
        yield Finding(
            "the rate is too high",
            min(max(alarms.values()), 1.0 if curves.progress >= _CLEAR else math.inf),
            "; ".join(alarms),
            f"a third of optim.lr ({_tell_rate(curves, settings)}), or more games a step",
        )


def _unmoved(curves: Curves, settings: Mapping[str, Any]) -> Findings:
    name = _certainty(curves)
    still = max(abs(curves.rise(name)), abs(curves.progress)) < _CLEAR
    if name not in curves or not still or curves.steps < 10:
        return
    before, after = curves.first(name), curves.last(name)
    change = abs(after - before) / abs(before) if before else 0.0
    if change > 0.05:  # it moves, and the noise of few steps hides it
        return
    beta = settings.get("algorithm.beta") or 0.0
    if isinstance(beta, (int, float)) and beta >= 0.2:
        yield Finding(
            "KL holds the policy",
            beta / 0.2,
            f"neither surprise nor reward moves at algorithm.beta={beta:g}; 0 to 0.04 is usual",
            "a smaller algorithm.beta",
        )
    elif change < 0.01 or abs(curves.rise_of_validation) < _SAME:
        yield Finding(
            "the rate is too low",
            1.0,
            f"neither surprise nor reward has moved in {curves.steps} steps",
            f"three times optim.lr ({_tell_rate(curves, settings)})",
        )


def _noise(curves: Curves, _: Mapping[str, Any]) -> Findings:
    agreement, guesses = curves.all("update/agreement"), curves.last("update/guesses")
    if not guesses > 0 or curves.steps < 10:
        return
    scale = 0.0
    if len(agreement) >= LEAST_STEPS:
        error = float(agreement.std(ddof=1)) / math.sqrt(len(agreement))
        bound = float(agreement.mean()) + 2 * error
        scale = guesses / 2 * (1 / bound - 1) if bound > 0 else math.inf
    if scale > _NOISY * guesses or guesses < _FEW_GUESSES:
        text = f"noise scale at least {scale:.0f}" if scale else "noise scales are thousands"
        yield Finding(
            "a step is smaller than its noise",
            1.0,  # the last that is told, as steps of other sick runs are noisy, too
            f"{guesses:.0f} guesses a step, {text}",
            "a larger rollout.groups, or a smaller optim.lr with more steps",
        )


def _tell_rate(curves: Curves, settings: Mapping[str, Any]) -> str:
    rate = settings.get("optim.lr") or max(curves.all("lr"), default=None)
    return "its value is not in the log" if rate is None else f"now {rate:.2g}"


_ALWAYS = (_collapse, _hacking, _memorised, _sampler)
_UNLESS_IT_LEARNS = (_unread, _no_spread, _no_win, _rate_high, _unmoved, _noise)
