"""What a study will run: its settings and its command line become points and command lines.

The settings are those of conf/hydra/sweeper/study.yaml and conf/sweep/*.yaml.
"""

import hashlib
import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from optuna.distributions import CategoricalDistribution, distribution_to_json

from wordle_rl.runs.instantiate import MOST, ConfigError, Count, Seed, Within, instantiate
from wordle_rl.runs.paths import CONF, ROOT, runnable
from wordle_rl.sweeps.space import (
    ARM,
    Params,
    Scalar,
    Space,
    count_points,
    format_overrides,
    key_of,
    list_grid_points,
    list_probes,
    name_arm,
    parse_overrides,
    parse_params,
)

Compose = Callable[[Sequence[str]], dict[str, Any]]  # overrides -> the resolved config
_RESERVED_KEYS = ("output_dir", "resume", "sweep")  # set by the sweeper
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_Size = Annotated[float, Within(0, MOST)]
_NAME_LENGTH = 40  # characters of the settings in the name of a study that has none


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """How much each trial may play, equal for all arms of a study."""

    games: Count | None = None  # sets trainer.steps
    games_per_step: Count | None = None  # sets rollout.groups; None keeps the config's groups
    validations: Count = 10  # how often a trial reports, at equal numbers of games


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """How a study's arms are compared. Changing it does not change the study."""

    measure: Literal["wins", "guesses", "repeats_over_time", "idle_groups", "test_wins"] = "guesses"
    comparisons: dict[str, list[str | dict]] = field(default_factory=dict)  # name: [one, other]
    margin: _Size | None = None  # differences up to it count as none; None: the measure's own
    metrics: list[str] = field(default_factory=list)  # further columns, means of the last quarter

    def __post_init__(self) -> None:
        for name, pair in self.comparisons.items():
            if len(pair) != 2:
                raise ValueError(f"hydra.sweeper.analysis.comparisons.{name} must be two arms")


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """One study; conf/hydra/sweeper/study.yaml explains each setting."""

    name: str
    question: str = ""
    params: dict[str, object] = field(default_factory=dict)
    arms: dict[str, list[str]] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    needs: dict[str, str] = field(default_factory=dict)  # folder: the command that makes it
    default: dict[str, object] | None = None
    sampler: dict[str, object] | None = None  # None: a grid
    pruner: dict[str, object] | None = None
    budget: BudgetSettings = BudgetSettings()
    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    n_trials: Count | None = None
    confirm_seeds: list[Seed] = field(default_factory=list)
    folder: str | None = None
    jobs: Count = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"hydra.sweeper.name must be letters, digits and ._-, not {self.name!r}"
            )
        if (self.sampler is None) != (self.n_trials is None):
            raise ValueError(
                "hydra.sweeper.n_trials must be given with a sampler, and only then: a grid has "
                "its own points"
            )

    @property
    def place(self) -> Path:
        """The folder of the study: its files and its trials."""
        return ROOT / (self.folder or f"outputs/sweeps/{self.name}")


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The trials of a study as command lines."""

    settings: StudySettings
    space: Space
    points: Sequence[Params] | None  # of a grid, in their order; None with a sampler
    overrides: list[str]  # for every trial
    compose: Compose

    @property
    def n_trials(self) -> int:
        """How many trials there are: no more than points, where the space has a number of them."""
        return min(filter(None, (count_points(self.space), self.settings.n_trials)))

    def pick(self, row: Params) -> dict[str, Scalar]:
        """The parameters of a trial's row or of a point, in their order."""
        return {name: row[name] for name in self.space}

    def list_own(self, params: Params) -> list[str]:
        """The overrides of some parameters alone."""
        arms, own = self.settings.arms, dict(params)
        arm = own.pop(ARM, None)
        if arm not in (None, *arms):
            raise ConfigError(f"hydra.sweeper: arm must be one of {', '.join(arms)}, not {arm!r}")
        lines = arms[str(arm)] if arm is not None else []
        return [*lines, *format_overrides(own)]

    def build_run(self, params: Params) -> list[str]:
        """The overrides of a trial, output folder aside."""
        run = [*self.overrides, *self.list_own(params)]
        return [*run, *self._fit_budget(run)]

    def check(self, build: Callable[[dict[str, Any]], Any]) -> list[Any]:
        """Compose and build every value once, so that a wrong one is found before the first trial.

        build: raises ValueError for a config that cannot be trained. Returns its results.
        """
        probes = [*list_probes(self.space), self.settings.default or {}]
        return [build(self.compose(self.build_run(params))) for params in probes]

    def check_needs(self) -> None:
        """Raise ConfigError for an arm that begins with a folder which must be made before."""
        arms = getattr(self.space.get(ARM), "choices", ())
        overrides = [override for arm in arms for override in self.settings.arms.get(arm, ())]
        for folder, command in self.settings.needs.items():
            for value in (override.partition("=")[2] for override in overrides):
                if value.startswith(f"{folder}/") and not (ROOT / value).is_dir():
                    raise ConfigError(
                        f"{value}: no such folder; this makes what the study needs: "
                        f"{runnable(command)}"
                    )

    def identity(self) -> dict[str, Any]:
        """The settings that cannot change once a study has started, as JSON holds them."""
        settings = self.settings
        return {
            "space": {n: json.loads(distribution_to_json(item)) for n, item in self.space.items()},
            "arms": settings.arms,
            "overrides": self.overrides,
            "budget": vars(settings.budget),
            "default": settings.default,
            "grid": self.points is not None,
        }

    def check_identity(self, before: Mapping[str, Any] | None) -> None:
        """Raise ConfigError for a study that was started with other settings."""
        now = self.identity()
        if before is not None and before != now:
            keys = ", ".join(key for key in now if now[key] != before.get(key))
            raise ConfigError(
                f"study {self.settings.name} was started with another {keys}: old and new trials "
                "cannot be compared. Set another hydra.sweeper.name=..., or remove "
                f"{self.settings.place}"
            )

    def _fit_budget(self, run: Sequence[str]) -> list[str]:
        """Overrides that give a run the study's step size and games, unless it sets its own."""
        budget, rollout = self.settings.budget, self.compose(run)["rollout"]
        keys = {key_of(override) for override in run}
        size, groups, settings = rollout["num_generations"], rollout["groups"], {}
        if budget.games_per_step is not None and "rollout.groups" not in keys:
            groups, rest = divmod(budget.games_per_step, size)
            if rest or not groups:
                raise ConfigError(
                    f"hydra.sweeper.budget.games_per_step must be a multiple of "
                    f"rollout.num_generations={size}, not {budget.games_per_step}"
                )
            settings["rollout.groups"] = groups
        if budget.games is not None and "trainer.steps" not in keys:
            steps = budget.games // (groups * size)
            if steps < budget.validations:
                raise ConfigError(
                    f"hydra.sweeper.budget.games={budget.games} makes {steps} steps of "
                    f"{groups * size} games, too few for {budget.validations} validations"
                )
            interval = steps // budget.validations
            settings |= {"trainer.steps": steps, "trainer.validate_every": interval}
            settings |= {"trainer.checkpoint_every": interval}
        return [f"{key}={value}" for key, value in settings.items() if key not in keys]


def plan_study(node: Mapping[str, Any], arguments: Sequence[str], compose: Compose) -> StudyPlan:
    """The study of a hydra.sweeper node and the overrides beside it. Raises ConfigError.

    Without a name, the swept arguments are the study; a grid's first arm is the default if none is.
    """
    overrides = [argument for argument in arguments if not argument.startswith("sweep=")]
    sweeps, constants = parse_overrides(overrides)
    if node.get("name") is None:
        node = {**node, "name": _name_ad_hoc(sorted(sweeps), overrides)}
    values = {key: value for key, value in node.items() if key not in ("_target_", "_recursive_")}
    settings: StudySettings = instantiate("hydra.sweeper", values, StudySettings)
    space, singles = parse_params(settings.params)
    if settings.arms and ARM not in {**space, **sweeps}:
        space = {ARM: CategoricalDistribution(tuple(settings.arms)), **space}
    space = _merge(space, sweeps, {key_of(override) for override in constants})
    _check_free([*constants, *(f"{name}=" for name in space)], settings)
    if not space:
        raise ConfigError(
            "-m runs a study: give a setting several values, such as optim.lr=1e-4,1e-3, or name a "
            f"study with sweep=, out of {', '.join(list_studies())}"
        )
    points, default = None, settings.default
    question = f"Which values of {', '.join(space)} do best?"
    if settings.sampler is None:
        points = list_grid_points(space)
        question = _ask(points, space)
        arm = {name: value for name, value in points[0].items() if name != "seed"}
        default = {**arm, **(default or {})}
    return StudyPlan(
        settings=replace(settings, question=settings.question or question, default=default),
        space=space,
        overrides=[*settings.overrides, *singles, *constants],
        points=points,
        compose=compose,
    )


def _merge(space: Space, sweeps: Space, keys: Container[str]) -> Space:
    """The parameters of a study and those beside it, which win, without those that were fixed."""
    # A parameter has one name, however the command line writes it.
    names = {key_of(name): name for name in ["seed", *space]}
    params = {names.get(key_of(name), name): item for name, item in sweeps.items()}
    union = {**space, **params}
    return {name: item for name, item in union.items() if key_of(name) not in keys}


def _check_free(overrides: Sequence[str], settings: StudySettings) -> None:
    """Raise ConfigError for an override that the study sets itself, or that trials do not share."""
    arms = {key_of(override): arm for arm, lines in settings.arms.items() for override in lines}
    for override in overrides:
        if (key := key_of(override)) in _RESERVED_KEYS:
            raise ConfigError(f"{override}: a study sets {', '.join(_RESERVED_KEYS)} itself")
        if key in arms:
            hints = {"trainer.steps": "; hydra.sweeper.budget.games=<fewer> shortens its trials"}
            raise ConfigError(
                f"{override}: the study's arm {arms[key]!r} sets {key} itself, so leave it out, "
                f"or compare values of {key} without sweep={hints.get(key, '')}"
            )
        if override == "init_from=latest":
            raise ConfigError(f"{override}: name the run, which is the same for all trials")


def _ask(points: Sequence[Params], space: Space) -> str:
    """The question of a grid without one, whose first arm is the default."""
    base, *others = dict.fromkeys(name_arm(point, space) for point in points)
    if not others:
        return "How much do runs differ from seed to seed?"
    return f"Does {' or '.join(others)} do better than {base}?"


def list_studies() -> list[str]:
    """The studies in conf/sweep."""
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def _name_ad_hoc(names: Sequence[str], arguments: Sequence[str]) -> str:
    """The name of a study that the command line alone describes.

    The same arguments make the same name, so the command continues its study.
    """
    label = re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(names)).strip("-.")[:_NAME_LENGTH] or "study"
    digest = hashlib.sha256("\n".join(sorted(arguments)).encode("utf-8", "surrogateescape"))
    return f"{label}-{digest.hexdigest()[:8]}"
