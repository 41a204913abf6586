"""How Hydra starts a study: python train.py -m sweep=<study> [overrides for every trial].

Without sweep=, the settings with several values make an ad hoc study: -m optim.lr=1e-4,1e-3.
Hydra imports every module of this namespace at each start, so Optuna is imported late.
"""

from collections.abc import Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from wordle_rl.runs.config import compose_config
from wordle_rl.runs.errors import user_errors


class StudySweeper(Sweeper):
    """Hands hydra.sweeper and the command line to wordle_rl.sweeps."""

    def __init__(self, **_: Any) -> None:
        self.config: Any = None  # from setup()
        self._configs: dict[tuple[str, ...], dict[str, Any]] = {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.config = config

    def sweep(self, arguments: list[str]) -> None:
        """Run a study. arguments: the overrides of the command line without hydra's own."""
        from wordle_rl.backends.sizes import is_large
        from wordle_rl.commands.build import build_experiment
        from wordle_rl.sweeps.run import run_study
        from wordle_rl.training.validation import SMALL
        from wordle_rl.training.work import plan_work

        def count(config: dict[str, Any]) -> Any:
            setup = build_experiment(config)
            return plan_work(setup, SMALL * is_large(setup.model))

        with user_errors():
            run_study(self.plan(arguments), count)

    def plan(self, arguments: Sequence[str]) -> Any:
        """The study as a StudyPlan. Raises ConfigError."""
        from wordle_rl.commands.build import check_package
        from wordle_rl.sweeps.plan import plan_study

        check_package(self.config)
        node: Any = OmegaConf.to_container(self.config.hydra.sweeper, resolve=True)
        return plan_study(node, arguments, self._compose)

    def _compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved config of a trial's overrides."""
        from wordle_rl.commands.build import resolve

        if (key := tuple(overrides)) not in self._configs:
            cfg = compose_config(self.config.hydra.job.config_name, overrides)
            self._configs[key] = resolve(cfg)
        return self._configs[key]
