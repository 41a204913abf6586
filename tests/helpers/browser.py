"""Pages in headless Chromium: what is wrong with them, and a picture of each.

Needs the extra `browser` and a Chromium (on Debian: apt-get install chromium, or name one with
WORDLE_RL_CHROMIUM). Playwright's Python package drives it. WORDLE_RL_SCREENSHOTS names a folder
that keeps a picture of each view.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wordle_rl.runs.paths import ROOT

CHROMIUM = os.environ.get("WORDLE_RL_CHROMIUM") or shutil.which("chromium")
NEEDS_BROWSER = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first test of a module trains or builds what it shows
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None, reason="the extra browser is not installed"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]
LAYOUT_FAULTS = Path(__file__).with_name("page_faults.js").read_text(encoding="utf-8")
_ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):\d+\S*")
_HEIGHT = 900
_HIGHEST = 16_000  # pixels: Chromium repeats what is further down


@dataclass(frozen=True)
class Look:
    """How somebody looks at a page."""

    width: int  # of the window, in pixels
    scheme: str  # light or dark

    def __str__(self) -> str:
        return f"{self.scheme}-{self.width}"


LOOKS = [Look(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]


@dataclass
class Tab:
    """A page in the browser, what it complained about and what it asked for."""

    page: Any
    look: Look
    home: str  # addresses that the page may ask begin with this
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, chromium: Any, look: Look, address: str, home: str | None = None) -> Tab:
        """A new tab at an address. home: what it may ask, if not below the address alone."""
        context = chromium.new_context(
            viewport={"width": look.width, "height": _HEIGHT}, color_scheme=look.scheme
        )
        tab = cls(context.new_page(), look, home or address)
        tab.page.on("console", tab._hear)
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        tab.page.goto(address)
        return tab

    def _hear(self, message: Any) -> None:
        # A refused guess is an answer with a status from 400 on, which Chromium logs.
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            self.complaints.append(message.text)

    def show(self, view: str) -> None:
        """Open a view of the page to play."""
        self.page.click(f"nav a[href='#{view}']")
        self.page.wait_for_selector(f"#view-{view}:not([hidden])")

    def keep(self, name: str) -> None:
        """Keep a picture of the whole page, if somebody wants pictures."""
        if folder := os.environ.get("WORDLE_RL_SCREENSHOTS"):
            file = Path(folder) / f"{name}-{self.look}.png"
            height = min(self.page.evaluate("document.documentElement.scrollHeight"), _HIGHEST)
            clip = {"x": 0, "y": 0, "width": self.look.width, "height": height}
            self.page.screenshot(path=file, full_page=True, clip=clip)

    def check(self, name: str) -> None:
        """No fault in layout or accessibility, no complaint, no request elsewhere."""
        self.keep(name)
        # A picture within the page has an address, too, but nobody is asked for it.
        elsewhere = [one for one in self.asked if not one.startswith((self.home, "data:"))]
        faults = [
            *self.page.evaluate(LAYOUT_FAULTS),
            *axe_faults(self.page),
            *self.complaints,
            *(f"asked {address}" for address in elsewhere),
        ]
        assert not faults, f"{name}, {self.look}:\n" + "\n".join(faults)


def wait(page: Any, condition: str) -> None:
    """Wait until an expression is true."""
    end = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(30)


def axe_faults(page: Any) -> list[str]:
    """What axe-core finds wrong with the page as it is."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:100]} {node['failureSummary'][:300]}"
        for fault in found
        for node in fault["nodes"]
    ]


@contextmanager
def served(arguments: Sequence[str]) -> Iterator[str]:
    """Run a Python command that prints an address, and yield the address."""
    process = subprocess.Popen(
        [sys.executable, "-u", *arguments], cwd=ROOT, env=usual_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if found := _ADDRESS.search(line):
                break
        else:
            pytest.fail(f"no address: {''.join(said)}")
        yield found[0]
    finally:
        process.terminate()
        process.communicate()


def usual_environment() -> dict[str, str]:
    """The environment of a command without the one thread that tests compute with."""
    return {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
