"""What goes wrong while a model is loaded, as one line for the user; for every backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wordle_rl.runs.errors import full_disk, missing
from wordle_rl.runs.instantiate import ConfigError


@contextmanager
def explain_load_errors(location: str, *, on_disk: bool, library: str = "") -> Iterator[None]:
    """Turn any error in the block into a ConfigError of one line.

    on_disk: whether the model's files are here, so that an error is about their content and not
    about the network. library: the one that reads them. A full disk and a library that is not
    installed have messages of their own, and pass through.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # the parsers of three libraries raise all kinds for bad files
        if full_disk(error) or (isinstance(error, ModuleNotFoundError) and missing(error)):
            raise
        if on_disk:
            reason = " ".join(str(error).split())[:200]
            by = f" by {library}" if library else ""
            raise ConfigError(f"model.path={location} cannot be loaded{by}: {reason}") from error
        raise ConfigError(
            f"model.path={location} is neither a folder nor in the local cache, and the hub cannot "
            f"be reached: connect and run `hf download {location}`, or give a folder that holds it"
            " with model.path=/path/to/it"
        ) from error
