"""Turns a config node into an object after checking its class and its settings.

A node names its class with `_target_`. Only dataclasses of the wanted kind are allowed, of this
package or named by the user himself, so a config of somebody else cannot run anything else.
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

PACKAGE, BACKENDS = "wordle_rl.", "wordle_rl.backends."  # which has no components
NAMED = "WORDLE_RL_NAMED"  # environment variable: what the user names, see config.admit_own
MOST = 1_000_000_000  # of anything that is counted: steps, tokens, games
MOST_GAMES = 1_000_000  # side by side; more would fill any memory
MOST_SAMPLES = 10_000  # games per secret


class ConfigError(ValueError):
    """A setting is wrong; the message is one line that names it and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Within:
    """The range of a setting that is a number, as in Annotated[float, Within(0, 1)].

    A round bracket in ends leaves out that end. Checked by instantiate, not by the class itself.
    """

    least: float
    most: float
    ends: Literal["[]", "(]", "[)"] = "[]"

    def __contains__(self, value: float) -> bool:
        above = self.least < value if self.ends[0] == "(" else self.least <= value
        return above and (value < self.most if self.ends[1] == ")" else value <= self.most)

    def __str__(self) -> str:
        least = f"above {self.least}" if self.ends[0] == "(" else f"{self.least}"
        most = f"below {self.most}" if self.ends[1] == ")" else f"{self.most}"
        return f"{least}..{most}"


Count = Annotated[int, Within(1, MOST)]
Share = Annotated[float, Within(0, 1)]
Seed = Annotated[int, Within(0, 2**63, "[)")]  # which every generator takes


def instantiate(key: str, node: Any, kind: type, **injected: Any) -> Any:
    """Make the object of a config node; injected values fill the fields of the same names, if any.

    key: the node's place in the config. kind: the class or protocol of the object; a node without
    `_target_` is of that class itself. Groups inside become the dataclasses that the fields want.
    Raises ConfigError, which names the key, for another class, and if a setting is missing, unknown
    or wrong.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"{key} must be a group of settings, not {node!r}")
    unnamed = "_target_" not in node and dataclasses.is_dataclass(kind)
    cls = kind if unnamed else _class(key, node.get("_target_"), kind)
    settings = {name: value for name, value in node.items() if name != "_target_"}
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if names := sorted(set(settings) - set(fields)):
        raise ConfigError(f"{key} has no setting {', '.join(names)}; it has {', '.join(fields)}")
    if names := sorted(set(settings) & set(injected)):
        raise ConfigError(f"{key}.{names[0]} is filled in by the program and cannot be set")
    hints = get_type_hints(cls, include_extras=True)
    for name, value in settings.items():
        path, types = f"{key}.{name}".lstrip("."), (hints[name], *get_args(hints[name]))
        kinds = (one for one in types if isinstance(one, type) and dataclasses.is_dataclass(one))
        group = next(kinds, None)
        if group is not None and isinstance(value, Mapping):
            settings[name] = value = instantiate(path, value, group)
        check_type(path, value, hints[name])
    values = settings | {name: value for name, value in injected.items() if name in fields}
    for name, field in fields.items():
        no_default = field.default is field.default_factory is dataclasses.MISSING
        if no_default and name not in values:
            raise ConfigError(f"{key}.{name} must be given: {key}.{name}=...")
    return cls(**values)


def instantiate_foreign(key: str, node: Any, kind: type, library: str) -> Any:
    """The object that Hydra's own instantiate makes of a node, for a class of another library.

    library: how its dotted names begin. Raises ConfigError for any other `_target_` that the user
    does not name himself, and for settings that the class refuses.
    """
    from hydra.utils import instantiate as build

    for path, target in _list_targets(key, node):
        if not str(target).startswith(library) and find_own(path, target) is None:
            raise ConfigError(
                f"{path} must be of {library}* or named by you, in the command or in a file of "
                f"its --config-dir, not {target!r}"
            )
    try:
        part = build(node, _convert_="all")
    except Exception as error:
        cause = error.__cause__ or error
        raise ConfigError(f"{key}: {type(cause).__name__}: {cause}") from error
    if not isinstance(part, kind):
        raise ConfigError(f"{key}._target_ must be a {kind.__name__}, not {node['_target_']}")
    return part


def _list_targets(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Every `_target_` in a node, with its path."""
    items = node.items() if isinstance(node, Mapping) else ()
    items = enumerate(node) if isinstance(node, list) else items
    for name, value in items:
        if name == "_target_":
            yield f"{path}.{name}", value
        yield from _list_targets(f"{path}.{name}", value)


def find_own(key: str, name: object) -> Any:
    """The object of a dotted name that the user names himself, None for any other name.

    Raises ConfigError, which names the key, if it cannot be imported.
    """
    names, module = os.environ.get(NAMED, "").split(), str(name).rpartition(".")[0]
    return _load(key, str(name)) if {name, f"{module}.*"} & {*names} else None


def _load(what: str, target: str) -> Any:
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{what}: {error}") from error


def option_of(part: object) -> str:
    """The config option of a part, which is the name of the file with its class."""
    return type(part).__module__.rpartition(".")[2]


def check_type(key: str, value: Any, hint: Any) -> None:
    """Raise ConfigError unless a value is of an annotated type; a float is a finite number."""
    if not _fits(value, hint):
        raise ConfigError(f"{key} must be {_type_name(hint)}, not {value!r}")


def check_choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError unless the value of a setting is one of the allowed ones."""
    if value not in allowed:
        raise ConfigError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a config value is of an annotated type; types that YAML lacks always fit."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fits(value, arguments[0]) and value in arguments[1]
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if hint is float:  # false for NaN, and for true, whose type is bool
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    if hint is int:
        return type(value) is int
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, arguments[1]) for v in value.values())
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def _type_name(hint: Any) -> str:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return f"a whole number {arguments[1]}" if arguments[0] is int else str(arguments[1])
    if get_origin(hint) is Literal:
        choices = ", ".join(map(str, arguments))
        return f"one of {choices}" if len(arguments) > 1 else choices
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    if get_origin(hint) is list:
        return f"a list of {_type_name(arguments[0])}"
    if get_origin(hint) is dict:
        return f"names with {_type_name(arguments[1])} each"
    if dataclasses.is_dataclass(hint):
        return "a group of settings"
    names = {Any: "a value", int: "a whole number", float: "a number", bool: "true or false"}
    others = {str: "text", NoneType: "null", dict: "names with values"}
    return {**names, **others}.get(hint, str(hint))


def _class(key: str, target: Any, kind: type) -> type:
    """The class of a `_target_`. Raises ConfigError naming the key when it is not allowed."""
    what = f"{key}._target_ must be a dataclass of kind {kind.__name__}, of {PACKAGE}* or named by "
    what += "you, in the command or in a file of its --config-dir"
    error = ConfigError(f"{what}, not {target!r}")
    cls = user_class = find_own(f"{key}._target_", target)
    if user_class is None:
        if not str(target).startswith(PACKAGE) or str(target).startswith(BACKENDS):
            raise error
        cls = _load(what, str(target))
    if not isinstance(cls, type) or (user_class is None and not cls.__module__.startswith(PACKAGE)):
        raise error
    if not dataclasses.is_dataclass(cls):
        raise ConfigError(f"{what}: {target} lacks @dataclass")
    gaps = set(getattr(cls, "__abstractmethods__", ()))
    if getattr(kind, "_is_protocol", False):
        members = {name for name in vars(kind) if not name.startswith("_") or name == "__call__"}
        gaps |= members - {*dir(cls), *(f.name for f in dataclasses.fields(cls))}
    elif not issubclass(cls, kind):
        raise error
    if gaps:
        raise ConfigError(f"{what}: {target} lacks {', '.join(sorted(gaps))}")
    return cls
