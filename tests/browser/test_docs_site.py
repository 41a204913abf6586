"""The docs as `make docs` builds them, in headless Chromium."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import NEEDS_BROWSER
from wordle_rl.runs.paths import ROOT

pytestmark = NEEDS_BROWSER
PAGES = [
    "index.html",
    *(f"docs/{page.stem}.html" for page in sorted((ROOT / "docs").glob("*.md"))),
    "sweeps/index.html",
    "CHANGELOG.html",
]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *parts: Any) -> None:
        """Say nothing about requests. The browser complains about a file that is missing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the built docs."""
    # This environment, whatever make would do about it.
    installed = f"{sys.prefix}/installed"
    subprocess.run(["make", "-o", installed, f"VENV={sys.prefix}", "docs"], cwd=ROOT, check=True)
    handler = functools.partial(_Quiet, directory=str(ROOT / "build" / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_docs_is_without_fault(open_tab, site, name):
    tab = open_tab(site + name, site)
    tab.page.wait_for_load_state("networkidle")
    tab.check(f"docs-{Path(name).with_suffix('').as_posix().replace('/', '-')}")


def test_the_search_of_the_docs_finds_a_page(open_tab, site):
    tab = open_tab(site, site)
    tab.page.wait_for_load_state("networkidle")
    tab.page.locator(".md-search__button:visible, [for=__search]:visible").first.click()
    tab.page.keyboard.type("lineage")
    tab.page.wait_for_selector("a[href*='MANUAL.html']:visible")
