"""What all tests in a browser share: Chromium, ways to look at a page, and two trained runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import CHROMIUM, LOOKS, Look, Tab, usual_environment
from wordle_rl.runs.paths import ROOT


@pytest.fixture(scope="module")  # Playwright's loop would disturb tests that follow
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(params=LOOKS, ids=str)
def look(request: pytest.FixtureRequest) -> Look:
    return request.param


@pytest.fixture
def open_tab(chromium: Any, look: Look) -> Iterator[Callable[..., Tab]]:
    """Opens an address in the look of this test. Tabs close with the test."""
    tabs: list[Tab] = []

    def open_address(address: str, home: str | None = None) -> Tab:
        tabs.append(Tab.open(chromium, look, address, home))
        return tabs[-1]

    yield open_address
    for tab in tabs:
        tab.page.context.close()


@pytest.fixture(scope="session")
def quick_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of `experiment=quick`. WORDLE_RL_QUICK_RUNS names a folder that has them."""
    if given := os.environ.get("WORDLE_RL_QUICK_RUNS"):
        folder = Path(given)
    else:
        folder = tmp_path_factory.mktemp("quick")
        for seed in (0, 1):
            command = ["train.py", "experiment=quick", f"seed={seed}", f"output_dir={folder}"]
            subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=usual_environment(), check=True,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
    runs = [manifest.parent for manifest in sorted(folder.glob("*/manifest.json"))]
    assert len(runs) == 2, f"{folder} has {len(runs)} runs, and two are needed"
    return runs
