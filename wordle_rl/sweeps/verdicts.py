"""What a study found, from study.json and games.csv.xz alone.

Arms are compared at equal seeds and secrets. The standard error is clustered by both, because all
games of a seed share one training run, and all games on a secret its difficulty (Cameron, Gelbach &
Miller 2011, doi.org/10.1198/jbes.2010.07136). Student's t has a degree of freedom for each seed but
one. Holm's correction (Scand. J. Statist. 6, 1979) is over all comparisons of the study.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
from optuna.distributions import json_to_distribution

from wordle_rl.runs.paths import TRAIN
from wordle_rl.sweeps.record import CONFIRMATION, GAMES, RECORD, SEARCH, name_trial, read_record
from wordle_rl.sweeps.space import ARM, Space, name_arm
from wordle_rl.sweeps.trial import COMPLETE, RUNNING, WINS

Frame: TypeAlias = Any  # a pandas DataFrame, and a Series; their type stubs refuse what we do
Column: TypeAlias = Any
ERROR = 0.05  # chance that a study of equal arms calls any of them different
POWER = 0.8  # chance to find a difference of the size that the resolution names
UNDECIDED = "undecided"
NOTHING = "nothing to compare"  # all games lost, or no spread at all
_FIGURES = (  # numbers of a trial
    *(WINS, "games", "seconds", "no_spread"),
    *("test_win_rate", "test_mean_guesses_with_losses"),
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number for each game, or for each trial."""

    title: str
    unit: str = "points"  # of a difference
    scale: float = 100.0  # from the number to the unit
    digits: int = 1
    margin: float = 2.0  # differences up to it count as none, unless the study says otherwise
    higher: str = "more"  # the verdict on an arm that has more of it
    lower: str = "less"
    of_games: Callable[[Frame], Column] | None = None
    figure: str | None = None  # column of the trials, for those whose games are not kept
    over_time: bool = False  # of the games of all validations after the start, not the last alone


def _count_repeats(guesses: str) -> int:
    words = [word for word in guesses.split() if word != "-"]
    return len(words) - len(set(words))


MEASURES = {
    "wins": Measure(
        title="games won",
        higher="better",
        lower="worse",
        of_games=lambda games: games.won,
        figure="val_win_rate",
    ),
    "guesses": Measure(
        title="guesses, a lost game counts as one more than it has",
        unit="guesses",
        scale=1.0,
        digits=2,
        margin=0.15,
        higher="worse",
        lower="better",
        of_games=lambda games: games.score,
    ),
    "repeats_over_time": Measure(
        title="share of a game's guesses that repeat an earlier one",
        over_time=True,
        of_games=lambda games: games.guesses.map(_count_repeats).astype(int) / games.turns,
    ),
    "idle_groups": Measure(title="groups whose games all have the same reward", figure="no_spread"),
    "test_wins": Measure(
        title="test games won by the best checkpoint",
        higher="better",
        lower="worse",
        figure="test_win_rate",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """The files of a study.

    trials: a row for each, with its figures, `seed` (0 without one), `arm` (its name) and `curve`
    (games and wins, 0..1, of each validation). games: the rows of games.csv.xz with their outcomes.
    """

    folder: Path
    about: Mapping[str, Any]  # study.json: name, question, command, identity and analysis
    space: Space
    trials: Frame
    games: Frame

    @property
    def name(self) -> str:
        return self.about["name"]

    @property
    def measure(self) -> Measure:
        return MEASURES[self.about["analysis"].get("measure") or "guesses"]

    @property
    def margin(self) -> float:
        """The largest difference that counts as none, in the measure's unit."""
        margin = self.about["analysis"].get("margin")
        return self.measure.margin if margin is None else float(margin)

    @property
    def default(self) -> str | None:
        """The name of the default's arm."""
        default = self.about["identity"].get("default")
        return name_arm(default, self.space) if default else None

    def select(self, part: str) -> Frame:
        """The trials of a round, of equal ones (arm, seed and state) the first alone."""
        trials = self.trials[self.trials["round"] == part]
        return trials.drop_duplicates(["arm", "seed", "state"])


def read_study(folder: Path) -> Study:
    """The study in a folder. Raises ValueError in one line."""
    if not (about := read_record(folder)):
        raise ValueError(f"{folder}: has no study.json, which {TRAIN} -m sweep=... writes")
    rows = [row for row in about["trials"] if row["state"] != RUNNING]
    if not rows:
        raise ValueError(f"{folder / RECORD}: has no trials, so the study did not run yet")
    specs = about["identity"]["space"]
    space: Any = {name: json_to_distribution(json.dumps(item)) for name, item in specs.items()}
    defaults = {**dict.fromkeys(_FIGURES, math.nan), "lineage": "", "curve": [], "metrics": {}}
    trials: Any = pd.DataFrame(
        {
            **defaults,
            **{name: value for name, value in row.items() if value is not None},
            "seed": int(row.get("seed") or 0),
            "arm": name_trial(row, space),
        }
        for row in rows
    )
    games = pd.DataFrame(columns=["round", "trial", "arm", "seed", "step", "secret", "guesses"])
    if (folder / GAMES).is_file():
        games = pd.read_csv(folder / GAMES, dtype={"arm": str}, keep_default_na=False)
    games = add_outcomes(games)
    scores = games[games.final].groupby(["round", "trial"]).score.mean()
    trials = trials.join(scores.rename("guesses").astype(float), on=["round", "trial"])
    return Study(folder=folder, about=about, space=space, trials=trials, games=games)


def add_outcomes(games: Frame) -> Frame:
    """The games with `turns`, `won`, `score` in guesses, and whether they are a trial's `final`."""
    won = games.guesses.str.rsplit(" ", n=1).str[-1] == games.secret
    turns = games.guesses.str.count(" ") + 1
    final = games.step == games.groupby(["round", "trial"]).step.transform("max")
    return games.assign(turns=turns, won=won, score=turns + ~won, final=final)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean difference between two arms, and how well it is known."""

    mean: float
    error: float  # standard error
    seed_variance: float  # between seeds, of the difference's mean over secrets
    seeds: int
    secrets: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A comparison with its verdict. Differences are in the measure's unit."""

    name: str
    difference: float
    low: float  # ends of the interval at the level that Holm's correction leaves
    high: float
    p: float  # after the correction
    verdict: str
    resolution: float  # difference that would be found with a chance of 80 %
    seeds: int
    secrets: int


def judge(study: Study) -> list[Effect]:
    """The verdicts on a grid's comparisons, corrected together, and on fresh seeds if they ran."""
    identity, requests = study.about["identity"], study.about["analysis"].get("comparisons") or {}
    pairs = {}
    if identity["grid"]:
        arms = study.select(SEARCH).arm.unique()
        pairs, _ = pair_arms(arms, study.space, identity.get("default"), requests)
    confirmation = {"winner against default, fresh seeds": ("winner", "default")}
    return [*_compare(study, SEARCH, pairs), *_compare(study, CONFIRMATION, confirmation)]


def _compare(study: Study, part: str, pairs: Mapping[str, tuple[str, str]]) -> list[Effect]:
    arms, losers = {arm for pair in pairs.values() for arm in pair}, set()
    cells = measure_cells(study, part, study.measure).reindex(columns=[*arms])
    if study.measure in (MEASURES["wins"], MEASURES["guesses"]):
        wins = measure_cells(study, part, MEASURES["wins"]).max()
        losers = {*wins.index[wins == 0.0]}
    spreads = {}
    for name, pair in pairs.items():
        spread = measure_spread(*(cells[arm] for arm in pair))
        if spread is not None:  # arms that win nothing have nothing to compare
            spreads[name] = replace(spread, error=0.0) if {*pair} <= losers else spread
    return find_verdicts(spreads, study.measure, study.margin)


def pair_arms(
    arms: Sequence[str],
    space: Space,
    default: Mapping[str, Any] | None,
    comparisons: Mapping[str, Any],
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """The names of the two arms of each comparison, and the comparisons of arms not played.

    default: fills in what a comparison leaves out. Where no comparison is left, every arm is
    compared with it, or with the first arm if it was not played.
    """
    default = default or {}
    pairs, omissions = {}, []
    for name, pair in comparisons.items():
        one, other = (
            name_arm({**default, **({ARM: arm} if isinstance(arm, str) else arm)}, space)
            for arm in pair
        )
        if {one, other} <= {*arms}:
            pairs[name] = (one, other)
        else:
            omissions.append(name)
    if not pairs:
        base, *_ = [arm for arm in arms if arm == name_arm(default, space)] or arms
        pairs = {f"{arm} against {base}": (arm, base) for arm in arms if arm != base}
    return pairs, omissions


def find_winner(study: Study) -> int | None:
    """The first trial of the best arm with all seeds, by guesses if measured, else by wins."""
    trials = study.select(SEARCH)
    trials = trials[trials.state == COMPLETE]
    score = -trials.guesses if study.measure is MEASURES["guesses"] else trials[WINS]
    arms = trials.assign(score=score).dropna(subset="score").groupby("arm", sort=False)
    arms = arms.agg(seeds=("seed", "size"), score=("score", "mean"), trial=("trial", "first"))
    best = arms.nlargest(1, ["seeds", "score"]).trial
    return int(best.iloc[0]) if len(best) else None


def measure_cells(study: Study, part: str, measure: Measure) -> Frame:
    """A measure for each `seed` and `secret` of a round, a column for each arm.

    It is that of the last validation, or of all. Without games, a trial has its figure for the
    measure, if any, with the secret "".
    """
    trials = study.select(part)
    trials = trials[trials.state == COMPLETE]
    games = study.games[(study.games["round"] == part) & study.games.trial.isin(trials.trial)]
    if measure.of_games is None or games.empty:
        cells = trials.assign(secret="", value=trials.get(measure.figure, math.nan))
    else:
        games = games[games.step > 0 if measure.over_time else games.final]
        cells = games.assign(value=measure.of_games(games).astype(float))
    cells = cells.dropna(subset="value")
    return cells.groupby(["arm", "seed", "secret"]).value.mean().unstack("arm")


def measure_spread(one: Column, other: Column) -> Spread | None:
    """The difference `one` - `other` over common cells (`seed`, `secret`); None with one seed."""
    gaps = (one - other).dropna()
    seeds, secrets = (gaps.index.get_level_values(n).nunique() for n in ("seed", "secret"))
    if seeds < 2:
        return None
    variance = float(gaps.groupby(level="seed").mean().var())
    square = variance / seeds
    if secrets > 1:
        by_seed, by_secret, by_cell = (
            _squared_error(gaps, by) for by in ("seed", "secret", ["seed", "secret"])
        )
        # By chance the error of both may be smaller than the error of one, which is then better.
        square = max(square, by_secret, by_seed + by_secret - by_cell)
    return Spread(
        mean=float(gaps.mean()),
        error=math.sqrt(square),
        seed_variance=variance,
        seeds=seeds,
        secrets=secrets,
    )


def _squared_error(gaps: Column, levels: str | list[str]) -> float:
    """Of the mean, where numbers at the same place of these levels are a cluster."""
    sums = (gaps - gaps.mean()).groupby(level=levels).sum()
    return float((sums**2).sum()) / len(gaps) ** 2 * len(sums) / (len(sums) - 1)


def find_verdicts(spreads: Mapping[str, Spread], measure: Measure, margin: float) -> list[Effect]:
    """The effects of comparisons that are corrected together. margin: counts as no difference.

    A comparison without any error, such as of arms that won every game, has nothing to compare.
    """
    from scipy.stats import t

    # The chance of such a mean if there were no difference.
    chances = {
        name: float(2 * t.sf(abs(one.mean) / one.error, one.seeds - 1)) if one.error else 1.0
        for name, one in spreads.items()
    }
    effects: dict[str, Effect] = {}
    p, level, rest = 0.0, ERROR, len(spreads)
    for name in sorted(spreads, key=chances.__getitem__):
        spread = spreads[name]
        # Once one fails, all after it keep its level, so that interval and verdict agree.
        level = ERROR / rest if p <= ERROR else level
        p = max(p, min(rest * chances[name], 1.0))
        rest -= 1
        half = t.ppf(1 - level / 2, spread.seeds - 1) * spread.error
        low, high = (float(measure.scale * (spread.mean + way * half)) for way in (-1, 1))
        verdict = UNDECIDED
        if not spread.error:
            verdict = NOTHING
        elif p <= ERROR:
            verdict = measure.higher if spread.mean > 0 else measure.lower
        elif -margin <= low and high <= margin:
            verdict = f"equal within {margin:g}"
        effects[name] = Effect(
            name=name,
            difference=measure.scale * spread.mean,
            low=low,
            high=high,
            p=p,
            verdict=verdict,
            resolution=measure.scale * find_resolution(spread, comparisons=len(spreads)),
            seeds=spread.seeds,
            secrets=spread.secrets,
        )
    return [effects[name] for name in spreads]


def find_resolution(spread: Spread, *, comparisons: int) -> float:
    """The difference that a study finds with a chance of 80 %, in the unit of the spread's error.

    comparisons: the study's, whose first step of Holm's correction the difference must pass.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if spread.error == 0.0:
        return 0.0
    freedom = spread.seeds - 1
    least = t.ppf(1 - ERROR / comparisons / 2, freedom)
    # The chance that a t this many standard errors off passes the least one.
    size: Any = brentq(lambda shift: nct.sf(least, freedom, shift) - POWER, 0.0, 10 * least)
    return float(size) * spread.error
