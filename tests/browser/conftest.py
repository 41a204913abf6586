"""What all tests in a browser share: Chromium, and ways to look at a page."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.browser import CHROMIUM, LOOKS, Tab


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
