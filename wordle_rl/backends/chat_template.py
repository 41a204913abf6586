"""Renders the chat template of a model's folder, which anybody may have written, within limits.

transformers runs templates in a sandbox, from which nothing but time and memory can be taken. Here
both end: the time by a signal, which only the main thread gets, the memory where the system knows
such limits (Linux). One operation on huge values takes no signal; the system ends the process then.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from jinja2 import Environment, TemplateError

from wordle_rl.runs.untrusted import FolderError

_LARGEST = 200_000  # characters of a template; the longest known have some 30,000
_MOST_TEXT = 200_000  # characters that it may write
_SECONDS = 2.0  # of the processor; a template takes some 0.0001, and 0.1 when it is compiled
_LAST_SECONDS = 30.0  # of all its threads, after which the process ends
_MEMORY = 2**30  # bytes beyond what the process has


class ChatTemplateError(FolderError):
    """A chat template cannot be used; the message is one line that names the model."""


class _TooSlow(BaseException):
    """Not an Exception, so that no library takes it for a failed attempt of its own."""


def check_template(tokenizer: Any) -> None:
    """Raise ChatTemplateError for a template that needs no try to be refused."""
    template = tokenizer.chat_template
    for text in template.values() if isinstance(template, Mapping) else [template]:
        if not isinstance(text, str):
            raise ChatTemplateError(f"{_named(tokenizer)} is no text")
        if len(text) > _LARGEST:
            raise ChatTemplateError(
                f"{_named(tokenizer)} has {len(text):,} characters; {_LARGEST:,} are allowed"
            )
        with _told(tokenizer):
            if _has_power(text):
                raise ChatTemplateError(f"{_named(tokenizer)} computes powers, which may never end")


def render(
    tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> str:
    """The text of messages up to where the next answer begins. Raises ChatTemplateError."""
    with _told(tokenizer), _limited_memory(), _limited_time():
        text = tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=True
        )
    if len(text) > _MOST_TEXT:
        raise ChatTemplateError(
            f"{_named(tokenizer)} writes {len(text):,} characters; {_MOST_TEXT:,} are allowed"
        )
    return text


def _named(tokenizer: Any) -> str:
    return f"the chat template of {tokenizer.name_or_path or 'the model'}"


@contextmanager
def _told(tokenizer: Any) -> Iterator[None]:
    """Turns whatever a template does into a ChatTemplateError."""
    try:
        yield
    except _TooSlow:
        reason = f"takes more than {_SECONDS:g} seconds of the processor"
    except MemoryError:
        reason = f"takes more than {_MEMORY // 2**20} MB of memory"
    except FolderError:
        raise
    except TemplateError as error:
        reason = f"says: {str(error)[:300]}"
    except Exception as error:  # templates can raise what Python's operations and methods do
        reason = f"fails: {type(error).__name__}: {str(error)[:300]}"
    else:
        return
    raise ChatTemplateError(f"{_named(tokenizer)} {reason}")


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raise _TooSlow where the block takes too long, or end the process where that cannot be."""
    begin = time.thread_time()

    def stop(signum: int, frame: Any) -> None:
        # The timer counts all threads of the process, and some spin while they wait for work.
        left = _SECONDS - (time.thread_time() - begin)
        if left <= 0.0:
            raise _TooSlow
        signal.setitimer(signal.ITIMER_VIRTUAL, left)

    try:
        if _in_main_thread():
            signal.signal(signal.SIGVTALRM, stop)
            signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        signal.setitimer(signal.ITIMER_PROF, _LAST_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Raise MemoryError where the block takes too much, on Linux."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(os.pread(_memory_in_use(os.getpid()), 100, 0).split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    if before[0] != resource.RLIM_INFINITY:
        limit = min(limit, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@cache
def _memory_in_use(process: int) -> int:
    """A descriptor of the file in which Linux counts a process's pages; opening it takes long."""
    return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)


def _has_power(template: str) -> bool:
    """Whether a template has the operator **, other than before the arguments of a call."""
    before = ""
    for _, kind, text in Environment().lex(template):
        if kind == "operator" and text == "**" and before not in ("(", ","):
            return True
        before = before if kind == "whitespace" else text
    return False
