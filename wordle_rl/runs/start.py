"""Prepares the process for a command, before it imports anything slow: signals, streams, libraries.

Imports only the quickest modules of the standard library, so that a Ctrl-C right after the start
finds its handler. This file also parses under older versions of Python, so it can refuse them with
a clear message.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import threading
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OLDEST = (3, 11)
_LIBRARIES = ("numpy", "omegaconf", "hydra")  # without which no command runs
_NEAREST = {"✓": "v", "…": "...", "█": "#", "▏": "|", "±": "+-"}
_IMPORT = "<frozen importlib._bootstrap>"  # file of the frames of an import


class Failed(SystemExit):
    """Ends a command for a reason that fits in one line, `message`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(code)
        self.message = message


def begin(*more: str) -> None:
    """Prepare the process for a command; call it first.

    more: libraries that this command needs besides those of every command. Until other handlers
    are installed, Ctrl-C ends the process with 130 and SIGTERM with 143, without a traceback. A
    second call only looks for more libraries.
    """
    if isinstance(sys.stdout, Output):
        check_python(*more)
        return
    for signum in _SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # as for a job in the background
            signal.signal(signum, _stop)
    _open_streams()
    codecs.register_error("nearest", nearest)
    assert isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stderr, io.TextIOWrapper)
    sys.stdout = sys.__stdout__ = Output(sys.stdout)
    sys.stderr.reconfigure(errors="nearest")
    check_python(*more)


def check_python(*more: str) -> None:
    """End the command unless Python is new enough and all needed libraries are installed."""
    import importlib.util

    if sys.version_info[:2] < _OLDEST:
        _refuse(f"Python {_OLDEST[0]}.{_OLDEST[1]} or newer is needed, not this one")
    for name in (*_LIBRARIES, *more):
        if importlib.util.find_spec(name) is None:
            _refuse(f"{name} is not installed")


def end_at_once() -> None:
    """Let a signal end the process at once from now on: nothing is left to clean up."""
    for signum in _SIGNALS:
        if signal.getsignal(signum) is _stop:
            signal.signal(signum, _exit)


def nearest(error: UnicodeError) -> tuple[str | bytes, int]:
    """For codecs.register_error: a replacement for a character that a terminal cannot show.

    Bytes of a file name that are not text stay as they are.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter, end = error.object[error.start], error.start + 1
    if "\udc80" <= letter <= "\udcff":
        return bytes([ord(letter) - 0xDC00]), end
    return _NEAREST.get(letter, "?"), end


class Output(io.TextIOWrapper):
    """A standard output that ends the command when it cannot be written.

    Without its reader the command ends silently with exit code 1, else with a line and code 2. When
    another thread notices, the command ends at the next output of the main thread.
    """

    _failure: Failed | None = None

    def __init__(self, stream: io.TextIOWrapper) -> None:
        """stream: the standard output so far, which becomes unusable."""
        encoding, lines = stream.encoding, stream.line_buffering
        through = stream.write_through
        super().__init__(
            stream.detach(), encoding, "nearest", line_buffering=lines, write_through=through
        )

    def write(self, text: str) -> int:
        try:
            written = super().write(text)
        except OSError as error:
            written = self._note(error)
        self._end()
        return written

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._note(error)
        self._end()

    def _note(self, error: OSError) -> int:
        _let_go(self.fileno())
        if isinstance(error, BrokenPipeError):
            self._failure = Failed("the reader of the standard output has left", 1)
        else:
            message = f"the standard output cannot be written ({error.strerror})"
            say(f"error: {message}")
            self._failure = Failed(message, 2)
        return 0

    def _end(self) -> None:
        """Raise the failure, once, in the main thread."""
        if self._failure is not None and threading.current_thread() is threading.main_thread():
            failure, self._failure = self._failure, None
            raise failure


def say(line: str) -> None:
    """Print a line on standard error, if possible."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _let_go(sys.stderr.fileno())


def _let_go(stream: int) -> None:
    """Redirect a standard stream to /dev/null: its buffer would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _open_streams() -> None:
    """Open /dev/null in place of closed standard streams.

    Otherwise a file that is opened later would get the stream's number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # the lowest number that is free is given, which is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115  for good


def _stop(signum: int, frame: FrameType | None) -> None:
    """End in order, so that half-written files are removed; a second signal ends at once.

    During an import it also ends at once: nothing needs removing, and libraries may catch an
    exception there.
    """
    for each in _SIGNALS:
        signal.signal(each, _exit)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            _exit(signum, None)
        frame = frame.f_back
    raise SystemExit(128 + signum)


def _exit(signum: int, frame: FrameType | None) -> None:
    os._exit(128 + signum)


def _refuse(reason: str) -> None:
    from wordle_rl.runs.paths import INSTALLED

    cure = "set up .venv with make venv, and run this command with .venv/bin/python"
    if INSTALLED:
        cure = "install wordle-rl with the pip of a newer Python, which brings all libraries"
    say(f"error: {reason} ({sys.executable}): {cure}")
    raise SystemExit(2)
