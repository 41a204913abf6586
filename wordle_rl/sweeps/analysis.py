"""What a study found, from study.json, results.csv and games.csv.xz alone.

Arms are compared at equal seeds and equal secrets. The standard error is clustered both by seed and
by secret, because all games of a seed share one training run, and all games on a secret share its
difficulty (Cameron, Gelbach & Miller 2011, doi.org/10.1198/jbes.2010.07136). Student's t has the
degrees of freedom of Satterthwaite's approximation: few where seeds differ most, more where secrets
do. Holm's correction is over all comparisons of the study.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import TRAIN
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.records import (
    CONFIRMATION,
    GAMES,
    SEARCH,
    TABLE,
    format_arm,
    read_record,
    read_trials,
)
from wordle_rl.sweeps.space import parse_params

ERROR = 0.05  # chance that a study of equal arms calls any of them different
POWER = 0.8  # chance to find a difference of the size that the resolution names
UNDECIDED = "undecided"
CONFIRMED = "winner against default, fresh seeds"
WINS = "val_win_rate"
_NUMBERS = (WINS, "best_step", "games", "seconds", "games_per_second", "no_spread",
            "test_win_rate", "test_mean_guesses_with_losses")  # fmt: skip
Arm = Mapping[str, Any]  # parameters without the seed
Frame: TypeAlias = Any  # a pandas DataFrame, and a Series; their type stubs refuse what we do
Column: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number for each game, or for each trial."""

    title: str
    unit: str  # of a difference
    scale: float = 1.0  # from the number to the unit
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


def _share_repeats(games: Frame) -> Column:
    return games.guesses.map(_count_repeats).astype(int) / games.turns


def _share_refused(games: Frame) -> Column:
    return games.guesses.str.count(r"!|(?<!\S)-") / games.turns


_REPEATS: Any = {
    "title": "share of a game's guesses that repeat an earlier one", "unit": "points",
    "scale": 100.0, "of_games": _share_repeats,
}  # fmt: skip
MEASURES = {
    "wins": Measure(
        title="games won", unit="points", scale=100.0, higher="better", lower="worse",
        of_games=lambda games: games.won, figure=WINS,
    ),
    "guesses": Measure(
        title="guesses, a lost game counts as one more than it has", unit="guesses", digits=2,
        margin=0.15, higher="worse", lower="better",
        of_games=lambda games: games.turns + ~games.won,
    ),
    "repeats": Measure(**_REPEATS),
    "repeats_over_time": Measure(**_REPEATS, over_time=True),
    "refused": Measure(
        title="share of a game's answers that are no legal guess", unit="points", scale=100.0,
        of_games=_share_refused,
    ),
    "idle_groups": Measure(
        title="groups whose games all have the same reward", unit="points", scale=100.0,
        figure="no_spread",
    ),
    "test_wins": Measure(
        title="test games won by the best checkpoint", unit="points", scale=100.0,
        higher="better", lower="worse", figure="test_win_rate",
    ),
    "minutes": Measure(
        title="minutes of training", unit="minutes", scale=1 / 60, digits=2, margin=0.1,
        figure="seconds",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Study:
    """The files of a study.

    trials: a row for each trial, with the columns of results.csv from val_win_rate on, and `round`,
    `trial`, `state`, `seed` (0 without one), `arm` (its parameters without the seed), `key` (a text
    for each arm) and `curve` (games and wins, 0..1, of each validation). games: a row for each
    validation game with the columns of games.csv.xz, and `key`, `won` and `turns`.
    """

    name: str
    question: str
    command: Sequence[str]  # that started it
    identity: Mapping[str, Any]
    analysis: Mapping[str, Any]  # settings of its comparisons; may be empty
    trials: Frame
    games: Frame

    @property
    def measure(self) -> Measure:
        return MEASURES[self.analysis.get("measure") or "wins"]

    @property
    def margin(self) -> float:
        """The largest difference that counts as none, in the measure's unit."""
        margin = self.analysis.get("margin")
        return self.measure.margin if margin is None else float(margin)

    def select(self, part: str) -> Frame:
        """The trials of a round."""
        return self.trials[self.trials["round"] == part]


def read_study(folder: Path) -> Study:
    """The study in a folder. Raises ValueError in one line."""
    if (about := read_record(folder)) is None:
        raise ValueError(f"{folder}: has no study.json, which {TRAIN} -m sweep=... writes")
    if not (folder / TABLE).is_file():
        raise ValueError(f"{folder}: has no {TABLE}, so the study did not run yet")
    identity = about["identity"]
    try:
        trials = _read_trials(folder / TABLE, identity["params"])
    except (KeyError, ValueError) as error:
        raise FolderError(f"{folder / TABLE}: not a table of trials: {error}") from None
    games = _read_games(folder / GAMES, trials)
    return Study(
        name=about["name"], question=about["question"], command=about["command"],
        identity=identity, analysis=about.get("analysis", {}), trials=trials, games=games,
    )  # fmt: skip


def _read_trials(path: Path, searched: Mapping[str, Any]) -> Frame:
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    params = [*table.columns[3 : table.columns.get_loc(WINS)]]
    points = [
        # The search leaves the parameters of the confirmation empty, and the other way round.
        {name: _read_value(name, row[name]) for name in params
         if row[name] or (row["round"] == SEARCH and name in searched)}
        for row in table.to_dict("records")
    ]  # fmt: skip
    arms = [{name: v for name, v in point.items() if name != "seed"} for point in points]
    return table.drop(columns=params).assign(
        **{name: pd.to_numeric(table[name]) for name in ("trial", *_NUMBERS)},
        curve=[json.loads(text or "[]") for text in table.curve],
        seed=[int(point.get("seed") or 0) for point in points],
        arm=arms,
        key=[*map(key_of, arms)],
    )


def _read_value(name: str, text: str) -> Any:
    """A parameter's value from its text; names of arms may look like numbers."""
    for kind in () if name == ARM else (int, float):
        with suppress(ValueError):
            return kind(text)
    return text if name == ARM else {"": None, "True": True, "False": False}.get(text, text)


def _read_games(path: Path, trials: Frame) -> Frame:
    columns = ["round", "trial", "arm", "seed", "step", "secret", "guesses"]
    games = pd.DataFrame(columns=pd.Index(columns))
    if path.is_file():
        games = pd.read_csv(path, dtype={"arm": str}, keep_default_na=False)
    games = games.merge(trials[["round", "trial", "key"]], on=["round", "trial"])
    turns = games.guesses.str.count(" ") + 1
    won = games.guesses.str.rsplit(" ", n=1).str[-1] == games.secret
    return games.assign(turns=turns, won=won)


def key_of(arm: Arm) -> str:
    """A text that is equal for arms that a config treats alike: 1 and 1.0, but not true."""
    return json.dumps(
        {
            name: value if isinstance(value, bool) or not isinstance(value, int) else float(value)
            for name, value in sorted(arm.items())
        }
    )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean difference between two arms, and how well it is known."""

    mean: float
    error: float  # standard error
    seed_variance: float  # between seeds, of the difference's mean over secrets
    seeds: int
    secrets: int

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error."""
        by_seed = self.seed_variance / self.seeds
        rest = max(self.error**2 - by_seed, 0.0)
        if rest == 0.0:
            return self.seeds - 1
        parts = by_seed**2 / (self.seeds - 1) + rest**2 / max(self.secrets - 1, 1)
        return (by_seed + rest) ** 2 / parts


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


def judge_study(folder: Path) -> list[Effect]:
    """The effects of a study's comparisons, the one with fresh seeds last. Raises ValueError."""
    return compare(read_study(folder))


def compare(study: Study) -> list[Effect]:
    """The effects of a grid's comparisons, corrected together, and of fresh seeds if they ran."""
    pairs: dict[str, tuple[Arm, Arm]] = {}
    if study.identity.get("grid"):
        search = study.select(SEARCH)
        arms = [*search.drop_duplicates("key").arm]
        comparisons = study.analysis.get("comparisons") or {}
        pairs = list_pairs(arms, study.identity.get("default"), comparisons, strict=False)
    fresh = {CONFIRMED: ({ARM: "winner"}, {ARM: "default"})}
    return [*_judge(study, SEARCH, pairs), *_judge(study, CONFIRMATION, fresh)]


def list_pairs(
    arms: Sequence[Arm], default: Arm | None, comparisons: Mapping[str, Any], *, strict: bool = True
) -> dict[str, tuple[Arm, Arm]]:
    """The two arms of each comparison by its name.

    arms: all of the study. default: fills in what a comparison leaves out. Without comparisons,
    every arm is compared with it. strict: whether an arm that the study has not raises ConfigError.
    Otherwise its comparison is left out, as in a study that was narrowed on the command line.
    """
    default = default or {}
    known = {key_of(arm) for arm in arms}
    if not comparisons:
        others = [arm for arm in arms if default and key_of(arm) != key_of(default)]
        return {
            f"{format_arm(arm)} against {format_arm(default)}": (arm, default) for arm in others
        }
    found = {}
    for name, pair in comparisons.items():
        one, other = ({**default, **({ARM: arm} if isinstance(arm, str) else arm)} for arm in pair)
        missing = [arm for arm in (one, other) if key_of(arm) not in known]
        if missing and strict:
            raise ConfigError(
                f"hydra.sweeper.analysis.comparisons.{name}: {format_arm(missing[0])} is no arm of "
                f"this study, which has {'; '.join(map(format_arm, arms))}"
            )
        if not missing:
            found[name] = (one, other)
    return found


def _judge(study: Study, part: str, pairs: Mapping[str, tuple[Arm, Arm]]) -> list[Effect]:
    cells = measure_cells(study, part, study.measure)
    spreads = {
        name: measure_spread(*(pick_arm(cells, arm) for arm in pair))
        for name, pair in pairs.items()
    }
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    return judge(known, study.measure, study.margin)


def measure_cells(study: Study, part: str, measure: Measure) -> Column:
    """A measure for each arm, seed and secret (`key`, `seed`, `secret`) of a round.

    Of a trial's last validation, or of all for a measure over time. A trial without games has one
    number, with the secret "", if it has a figure for the measure.
    """
    trials = study.select(part)
    trials = trials[trials.state == "complete"]
    games = study.games[(study.games["round"] == part) & study.games.trial.isin(trials.trial)]
    if measure.of_games is None:
        games = games[:0]
    else:
        first = 1 if measure.over_time else games.groupby("trial").step.transform("max")
        games = games[games.step >= first]
        games = games.assign(value=measure.of_games(games).astype(float))
    whole = trials[~trials.trial.isin(games.trial)].assign(secret="")
    whole = whole.assign(value=whole[measure.figure] if measure.figure else math.nan)
    columns = ["key", "seed", "secret", "value"]
    cells = pd.concat([frame.reindex(columns=columns) for frame in (games, whole) if len(frame)]
                      or [whole.reindex(columns=columns)])  # fmt: skip
    return cells.dropna().groupby(columns[:-1]).value.mean()


def pick_arm(cells: Column, arm: Arm) -> Column:
    """The cells (`seed`, `secret`) of an arm."""
    return cells[cells.index.get_level_values("key") == key_of(arm)].droplevel("key")


def measure_spread(one: Column, other: Column) -> Spread | None:
    """The difference `one` - `other` over common cells (`seed`, `secret`); None with one seed.

    A secret that an arm did not play at some seed is left out there.
    """
    gaps = (one - other).dropna()
    seeds, words = (pd.factorize(gaps.index.get_level_values(n))[0] for n in ("seed", "secret"))
    count, secrets = len(set(seeds)), len(set(words))
    if count < 2:
        return None
    between = float(gaps.groupby(level="seed").mean().var(ddof=1))
    error = math.sqrt(between / count)
    if secrets > 1 and gaps.any():
        # By chance the error of both may be smaller than the error of one, which is then better.
        both = np.column_stack([seeds, words])
        error = max(error, *(_clustered_error(gaps.to_numpy(), by) for by in (words, both)))
    return Spread(mean=float(gaps.mean()), error=error, seed_variance=between, seeds=count,
                  secrets=secrets)  # fmt: skip


def _clustered_error(gaps: np.ndarray, groups: np.ndarray) -> float:
    """Standard error of the mean.

    groups: the cluster of each number, or a column for each way in which it is clustered.
    """
    from statsmodels.regression.linear_model import OLS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few clusters, which the t distribution allows for
        fit = OLS(gaps, np.ones_like(gaps)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    return math.sqrt(max(float(np.asarray(fit.cov_params())[0, 0]), 0.0))


def judge(spreads: Mapping[str, Spread], measure: Measure, margin: float) -> list[Effect]:
    """The effects of a study's comparisons.

    margin: differences up to it count as none, in the measure's unit.
    """
    from scipy.stats import t
    from statsmodels.stats.multitest import multipletests

    if not spreads:
        return []
    alone = [_find_p(spread) for spread in spreads.values()]
    found: Any = multipletests(alone, alpha=ERROR, method="holm")
    rejected, corrected = found[0], found[1]
    levels, passed = {}, 0  # the level at which each was tested, so that interval and verdict agree
    for number in np.argsort(alone, kind="stable"):
        levels[number] = ERROR / (len(alone) - passed)
        passed += rejected[number]
    effects = []
    for number, (name, spread) in enumerate(spreads.items()):
        half = float(t.ppf(1 - levels[number] / 2, spread.freedom)) * spread.error
        low, high = (measure.scale * (spread.mean + way * half) for way in (-1, 1))
        verdict = UNDECIDED
        if rejected[number]:
            verdict = measure.higher if spread.mean > 0 else measure.lower
        elif -margin <= low and high <= margin:
            verdict = f"equal within {margin:g}"
        effects.append(
            Effect(
                name=name, difference=measure.scale * spread.mean, low=low, high=high,
                p=float(corrected[number]), verdict=verdict, seeds=spread.seeds,
                secrets=spread.secrets,
                resolution=measure.scale * find_resolution(spread, comparisons=len(spreads)),
            )
        )  # fmt: skip
    return effects


def _find_p(spread: Spread) -> float:
    """The chance of such a mean if there were no difference."""
    from scipy.stats import t

    if spread.error == 0.0:
        return 0.0 if spread.mean else 1.0
    return float(2 * t.sf(abs(spread.mean) / spread.error, spread.freedom))


def find_resolution(spread: Spread, *, comparisons: int) -> float:
    """The difference that a study finds with a chance of 80 %, in the unit of the spread's error.

    comparisons: the study's, whose first step of Holm's correction the difference must pass.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if spread.error == 0.0:
        return 0.0
    least = t.ppf(1 - ERROR / comparisons / 2, spread.freedom)
    # The chance that a t this many standard errors off passes the least one.
    size: Any = brentq(lambda away: nct.sf(least, spread.freedom, away) - POWER, 0.0, 10 * least)
    return float(size) * spread.error


def find_start(trials: Frame) -> Column | None:
    """The wins (0..1) of the common start at each seed; None if arms begin with other models."""
    begun = trials[[bool(curve) and curve[0][0] == 0 for curve in trials.curve]]
    wins = begun.curve.map(lambda curve: curve[0][1]).groupby(begun.seed)
    return wins.first() if len(begun) and (wins.nunique() == 1).all() else None


def estimate_importance(folder: Path, study: Study) -> list[str]:
    """Each parameter's share in what sets the trials of a search apart; empty for a grid.

    Where trials were pruned, all are judged by their first validation: the few that ran to their
    end are alike.
    """
    import optuna

    if study.identity.get("grid"):
        return []
    texts = study.identity["params"]
    space, _ = parse_params({name: text for name, text in texts.items() if name != ARM})
    if ARM in texts:
        space[ARM] = optuna.distributions.CategoricalDistribution([*study.identity["arms"]])
    trials = read_trials(folder, SEARCH, space).values()
    pruned = any(trial.value is None for trial in trials)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = optuna.create_study(direction="maximize")
    for trial in trials:
        value = trial.intermediate_values.get(1) if pruned else trial.value
        if value is not None:
            about = {"params": trial.params, "distributions": trial.distributions}
            search.add_trial(optuna.trial.create_trial(value=value, **about))
    if len(space) < 2 or len({trial.value for trial in search.trials}) < 2:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(search, evaluator=evaluator)
    return [f"{name.rpartition('.')[2]} {100 * share:.0f} %" for name, share in shares.items()]
