"""What all tests in a browser share: Chromium, ways to look at a page, and two trained runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import CHROMIUM, LOOKS, Tab
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
def look(request: pytest.FixtureRequest) -> tuple[int, str]:
    return request.param


@pytest.fixture
def open_tab(chromium: Any, look: tuple[int, str]) -> Iterator[Callable[..., Tab]]:
    """Opens an address in the look of this test. Tabs close with the test."""
    tabs: list[Tab] = []

    def open_address(address: str) -> Tab:
        tabs.append(Tab(chromium, look, address))
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
                [sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
            )
    runs = [manifest.parent for manifest in sorted(folder.glob("*/manifest.json"))]
    assert len(runs) == 2, f"{folder} has {len(runs)} runs, and two are needed"
    return runs
