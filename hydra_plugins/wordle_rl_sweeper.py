"""How Hydra starts a study: python train.py -m sweep=<study> [overrides for every trial].

Without sweep=, the settings with several values make an ad hoc study: -m optim.lr=1e-4,1e-3.
Hydra imports every module of this namespace at each start, so Optuna is imported late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from wordle_rl.runs.config import quoted
from wordle_rl.runs.errors import fail, user_errors


class StudySweeper(Sweeper):
    """Reads hydra.sweeper and the command line, and hands both to wordle_rl.sweeps."""

    def __init__(self, **_: Any) -> None:
        self.config = self.hydra_context = self.launcher = None  # read from the config in setup()
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Run a study. arguments: the overrides of the command line without hydra's own."""
        from wordle_rl.commands.build import build_experiment

        with user_errors():
            plan = self.plan_study(arguments)
            plan.check(build_experiment)
            from wordle_rl.sweeps.page import show_study
            from wordle_rl.sweeps.power import check_power
            from wordle_rl.sweeps.run import StudyStopped, run_study

            if not (plan.settings.place / "study.json").exists():
                check_power(plan)
            try:
                run_study(plan)
            except StudyStopped as error:
                fail(str(error), code=1)
            show_study(plan.settings.place)

    def plan_study(self, arguments: Sequence[str]) -> Any:
        """The study as a StudyPlan. Raises ConfigError."""
        from wordle_rl.sweeps.plan import plan_study

        assert self.config is not None
        node: Any = OmegaConf.to_container(self.config.hydra.sweeper, resolve=True)
        return plan_study(node, arguments, self._compose)

    def _compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved config of a trial's overrides."""
        from wordle_rl.commands.build import resolve

        assert self.hydra_context is not None and self.config is not None
        if (found := self._composed.get(tuple(overrides))) is not None:
            return found
        cfg = self.hydra_context.config_loader.load_configuration(
            config_name=self.config.hydra.job.config_name,
            overrides=[quoted(override) for override in overrides], run_mode=RunMode.RUN,
        )  # fmt: skip
        OmegaConf.set_struct(cfg, False)
        cfg.pop("hydra")
        return self._composed.setdefault(tuple(overrides), resolve(cfg))
