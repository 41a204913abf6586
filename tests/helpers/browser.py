"""Pages in headless Chromium, and what is wrong with them.

Needs the extra `browser` and a Chromium (on Debian: apt-get install chromium, or name one with
WORDLE_RL_CHROMIUM). Playwright's Python package drives it.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("WORDLE_RL_CHROMIUM") or shutil.which("chromium")
NEEDS_BROWSER = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first test of a module trains or builds what it shows
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None or CHROMIUM is None,
        reason="needs the extra browser, and a Chromium",
    ),
]
LAYOUT_FAULTS = Path(__file__).with_name("page_faults.js").read_text(encoding="utf-8")
_PATIENCE = 240_000  # milliseconds for an answer, on a loaded machine
LOOKS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]


class Tab:
    """A page in the browser, what it complained about and what it asked for."""

    def __init__(self, chromium: Any, look: tuple[int, str], address: str) -> None:
        """look: width of the window in pixels, and light or dark."""
        width, scheme = look
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page, self.home = context.new_page(), address
        self.page.set_default_timeout(_PATIENCE)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def _hear(self, message: Any) -> None:
        # A refused guess is an answer with a status from 400 on, which Chromium logs.
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            self.complaints.append(message.text)

    def show(self, view: str) -> None:
        """Open a view of the page to play."""
        self.page.click(f"nav a[href='#{view}']")
        self.page.wait_for_selector(f"#view-{view}:not([hidden])")

    def check(self, name: str) -> None:
        """No fault in layout or accessibility, no complaint, no request elsewhere."""
        from axe_playwright_python.sync_playwright import Axe

        # A picture within the page has an address, too, but nobody is asked for it.
        strays = [url for url in self.asked if not url.startswith((self.home, "data:"))]
        faults = [*self.page.evaluate(LAYOUT_FAULTS), *self.complaints, *strays]
        for fault in Axe().run(self.page).response["violations"]:
            faults += [f"{fault['id']}: {node['html'][:100]}" for node in fault["nodes"]]
        assert not faults, f"{name}:\n" + "\n".join(faults)
