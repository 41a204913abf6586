"""The config as a command composes it, and what conf/ offers."""

import functools
import pickle

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from wordle_rl.runs.config import expand
from wordle_rl.runs.paths import ROOT

GROUPS = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
OPTIONS = {
    group: sorted(path.stem for path in (ROOT / "conf" / group).glob("*.yaml")) for group in GROUPS
}


def composed(*overrides: str, name: str = "config") -> DictConfig:
    """The config conf/<name>.yaml with overrides as on the command line.

    Without experiment=, none is chosen, so that tests do not depend on what the demo sets.

    Hydra needs 0.15 s to put the files of the chosen options together, and the tests compose 800
    times. So each choice of options is composed once, and Hydra's own function sets the values.
    """
    prefixes = ("experiment=", "init_from=")
    if name == "config" and not any(override.startswith(prefixes) for override in overrides):
        overrides = ("experiment=none", *overrides)
    settings = expand(overrides)
    choices = [override for override in settings if _chooses(override)]
    rest = [override for override in settings if not _chooses(override)]
    values = OverridesParser.create().parse_overrides(rest)
    if any(value.is_hydra_override() or value.is_sweep_override() for value in values):
        return pickle.loads(_composed(name, *settings))
    config = pickle.loads(_composed(name, *choices))
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    return config


def _chooses(override: str) -> bool:
    """Whether it chooses an option of a group, by `model=tiny` or `~model`."""
    key = override.lstrip("+~").partition("=")[0].partition("@")[0]
    return key in (*GROUPS, "init_from")


@functools.cache
def _composed(name: str, *overrides: str) -> bytes:
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return pickle.dumps(compose(name, overrides=list(overrides)))
