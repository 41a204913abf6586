"""How a command ends: an error of its user is one line, and the output is flushed.

Exit codes: 2 for wrong input, a full disk and a missing library, 1 when nobody reads the output any
more. Every other exception is a bug and keeps its traceback. The lines about Hydra's errors rely on
the texts of Hydra 1.3 and OmegaConf 2.3.
"""

import errno
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from wordle_rl.runs.paths import CONF, INSTALLED, ROOT, TRAIN, shorten

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, above a quota, above ulimit -f
_RUST = re.compile(r"\(os error (\d+)\)")  # how safetensors and tokenizers say it
_EXTRAS = {  # library: the extra that installs it
    **dict.fromkeys(("mlx", "mlx_lm"), "mlx"),
    **dict.fromkeys(("datasets", "pyarrow"), "data"),
    **{"bitsandbytes": "quantize", "wandb": "wandb", "gymnasium": "gym"},
}

_FOLLOWS = {  # setting: the one that it takes its value from
    "rollout.num_generations": "num_generations",
    "model.path": "model",
    "optim.lr": "model.learning_rate",
    "sampling.max_tokens": "model.max_tokens",
}


class Failed(SystemExit):
    """Ends a command for a reason that fits in one line, `message`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(code)
        self.message = message


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with one line on standard error."""
    message = _name_as_typed(" ".join(message.split()))
    print(f"error: {message}", file=sys.stderr, flush=True)
    raise Failed(message, code)


def _name_as_typed(message: str) -> str:
    """Call a setting that takes its value from another one as the command line does."""
    keys = {argument.partition("=")[0].lstrip("+") for argument in sys.argv[1:]}
    for key, source in _FOLLOWS.items():
        if source in keys and key not in keys:
            message = re.sub(rf"\b{re.escape(key)}\b", source, message)
    return message


@contextmanager
def whole_command() -> Iterator[None]:
    """Wrap a whole command: an error of the user ends it in one line, see describe()."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # its buffer would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if (line := describe(error)) is None:
            raise
        fail(line)


@contextmanager
def user_errors() -> Iterator[None]:
    """Wrap what only reads and checks input: every ValueError there is about a wrong value."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        line = describe(error) or (str(error) if isinstance(error, ValueError) else None)
        if line is None:
            raise
        fail(line)


def describe(error: Exception) -> str | None:
    """The line about an error of the user, None for any other error."""
    if reason := full_disk(error):
        return (
            f"{reason}: make room, then continue with {TRAIN} resume=<run folder>, or start again; "
            "what was saved before is whole"
        )
    if isinstance(error, ImportError):
        return missing(error)
    module = type(error).__module__.partition(".")[0]
    if module in ("hydra", "omegaconf"):
        return describe_hydra_error(error)
    if module == "yaml":
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error) if isinstance(error, ValueError) and module == "wordle_rl" else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def full_disk(error: BaseException) -> str | None:
    """The system's words for a full disk when the error or one of its causes is one; else None."""
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        if match := _RUST.search(str(cause)):
            number = int(match[1])
        if number in _FULL_DISK:
            return os.strerror(number)
    return None


# -- libraries ------------------------------------------------------------------------------------


def missing(error: ImportError) -> str | None:
    """One line of advice for a failed import; None when the fault is another one."""
    for cause in _causes(error):  # transformers raises an error of its own
        library = (getattr(cause, "name", None) or "").partition(".")[0]
        if isinstance(cause, ModuleNotFoundError) and library not in ("", "wordle_rl"):
            return advice(library)
    return None


def advice(library: str) -> str:
    """One line of advice for a library that is not installed."""
    extra = _EXTRAS.get(library)
    venv = ROOT / ".venv"  # by make demo
    other = Path(sys.prefix).resolve() != venv.resolve()
    if extra is None and other and (venv / "bin" / "python").exists():
        return (
            f"{library} is not installed for {sys.executable}, but the project has an environment: "
            f"source {shlex.quote(str(shorten(venv)))}/bin/activate"
        )
    return f"{library} is not installed: {install_command(extra)}"


def install_command(extra: str | None = None) -> str:
    """How to install the package, with one of its extras, for the Python that runs."""
    options, package = ("", "wordle-grpo") if INSTALLED else ("-c constraints.txt -e ", ".")
    requirement = f"'{package}[{extra}]'" if extra else package
    return f"{shlex.quote(sys.executable)} -m pip install {options}{requirement}"


# -- Hydra ----------------------------------------------------------------------------------------


def describe_hydra_error(error: Exception) -> str:
    """The line about an error of Hydra or OmegaConf: what is allowed in its place."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    cause = error.__cause__
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override}: settings are given as key=value; a value with blanks or any of "
            "()[]{}:=~ needs quotes, such as \"name='my run'\""
        )
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        options = sorted(error.options)
        hint = "".join(f"; did you mean {name}?" for name in get_close_matches(option, options, 1))
        if group == "model":
            hint += "; it may be a hub name such as Qwen/Qwen3-0.6B, or a folder, too"
        if group == "num_generations":
            hint = "; it may be any other whole number, too"
        return f"{group} must be one of {', '.join(options)}, not {option!r}{hint}"
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        return _describe_unknown_key(cause.full_key, cause.parent_node)
    if match := re.match(r"Ambiguous value for argument '(\S+=\d+),(0\d+)'\n", str(error)):
        return f"{match[1]},{match[2]}: write {match[1]}.{match[2]}, as a comma separates values"
    if match := re.match("Ambiguous value for argument '(.*)'\n", str(error)):
        return f"{match[1]}: give one value, or compare several in a study: {TRAIN} -m {match[1]}"
    if match := re.match(r"You must specify '(\w+)'", str(error)):
        return f"{match[1]} must be given: {match[1]}=<option, hub name or folder>, see --help"
    if match := re.match("Could not override '(.*)'. No match in the defaults list", str(error)):
        return f"there is no choice {match[1]} in this command, see --help"
    return re.sub(r"To append to .*|full_key: \S+|object_type=\S+", "", f"{error} {cause or ''}")


def _describe_unknown_key(key: str, node: Any) -> str:
    """node: the group of settings that lacks the key, or None."""
    from omegaconf import OmegaConf

    group, _, name = key.rpartition(".")
    keys = [str(k) for k in node or {} if k not in ("hydra", "_target_")]
    if group == "model.lora":
        return (
            f"there is no setting {key} where {group} is null: 'model.lora={{rank: 16, alpha: 32}}'"
        )
    if not keys:
        return f"there is no setting {key}: {group} is a single value"
    paths = {"experiment": "experiment", "sweep": "sweep"}  # not kept in the composed config
    root: Any = OmegaConf.to_container(node._get_root())
    for path in _list_paths(root):
        paths.setdefault(path.rpartition(".")[2], path)
    matches = [f"{group}.{match}".lstrip(".") for match in get_close_matches(name, keys, 1, 0.7)]
    matches = matches or [paths[end] for end in get_close_matches(name, paths, 1, 0.75)]
    hint = f", did you mean {matches[0]}?" if matches else ";"
    files = sorted((CONF / group).glob("*.yaml")) if group else []
    stems = [f.stem for f in files if re.search(rf"^{re.escape(name)}:", f.read_text(), re.M)]
    note = f"; it is for {' and '.join(f'{group}={option}' for option in stems)}" if stems else ""
    text = f"{group or 'the config'} has {', '.join(sorted(keys))}"
    return f"there is no setting {key}{hint} {text}{note}"


def _list_paths(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted paths of all settings in a config."""
    for key, value in node.items():
        if key not in ("hydra", "_target_"):
            yield f"{prefix}{key}"
            if isinstance(value, Mapping):
                yield from _list_paths(value, f"{prefix}{key}.")
