"""Renders the chat template of a model's folder within limits, because anyone may have written it.

transformers runs templates in a sandbox that protects everything but time and memory. This file
limits both. A signal limits the time, but only the main thread receives it. The system limits the
memory where it can (Linux). A single operation on huge values ignores signals; then the system ends
the process.
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

from wordle_rl.runs.files import FolderError

_LARGEST = 200_000  # characters of a template; the longest known have about 30,000
_MOST_TEXT = 200_000  # characters that it may write
_SECONDS = 2.0  # of CPU time; a template takes about 0.0001, and 0.1 to compile
_LAST_SECONDS = 30.0  # of CPU time of all threads, after which the process ends
_MEMORY = 2**30  # bytes beyond what the process uses already


class ChatTemplateError(FolderError):
    """A chat template cannot be used; the message is one line that names the model."""


class _TooSlow(BaseException):
    """Not an Exception, so that no library catches it."""


def check_template(tokenizer: Any) -> None:
    """Raise ChatTemplateError for a template that must not even be tried."""
    template = tokenizer.chat_template
    for text in template.values() if isinstance(template, Mapping) else [template]:
        if not isinstance(text, str):
            raise ChatTemplateError(f"{_describe(tokenizer)} is no text")
        if len(text) > _LARGEST:
            raise ChatTemplateError(
                f"{_describe(tokenizer)} has {len(text):,} characters; {_LARGEST:,} are allowed"
            )
        with _explain_errors(tokenizer):
            if _uses_power(text):
                raise ChatTemplateError(
                    f"{_describe(tokenizer)} computes powers, which may never end"
                )


def render_template(
    tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> str:
    """The messages as text, up to where the next answer begins. Raises ChatTemplateError."""
    with _explain_errors(tokenizer), _limit_memory(), _limit_time():
        text = tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=True
        )
    if len(text) > _MOST_TEXT:
        raise ChatTemplateError(
            f"{_describe(tokenizer)} writes {len(text):,} characters; {_MOST_TEXT:,} are allowed"
        )
    return text


def _describe(tokenizer: Any) -> str:
    return f"the chat template of {tokenizer.name_or_path or 'the model'}"


@contextmanager
def _explain_errors(tokenizer: Any) -> Iterator[None]:
    """Turn any error of a template into a ChatTemplateError."""
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
    except Exception as error:  # a template can raise what any Python operation raises
        reason = f"fails: {type(error).__name__}: {str(error)[:300]}"
    else:
        return
    raise ChatTemplateError(f"{_describe(tokenizer)} {reason}")


@contextmanager
def _limit_time() -> Iterator[None]:
    """Raise _TooSlow when the block takes too long, or end the process if that is not possible."""
    begin = time.thread_time()

    def stop(signum: int, frame: Any) -> None:
        # The timer counts all threads, and some of them spin while they wait for work.
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
def _limit_memory() -> Iterator[None]:
    """Raise MemoryError when the block takes too much memory, on Linux."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(os.pread(_open_statm(os.getpid()), 100, 0).split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    if before[0] != resource.RLIM_INFINITY:
        limit = min(limit, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@cache
def _open_statm(process: int) -> int:
    """Open the file in which Linux counts a process's pages, once because opening is slow."""
    return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)


def _uses_power(template: str) -> bool:
    """Whether a template has the operator **, except before the arguments of a call."""
    before = ""
    for _, kind, text in Environment().lex(template):
        if kind == "operator" and text == "**" and before not in ("(", ","):
            return True
        before = before if kind == "whitespace" else text
    return False
