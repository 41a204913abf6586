"""TensorBoard's page in headless Chromium, with our names."""

from __future__ import annotations

import pytest

from tests.helpers.browser import LOOKS, NEEDS_BROWSER, served, wait

pytestmark = NEEDS_BROWSER
# TensorBoard's elements: each group of cards with its name, and whether it is unfolded.
_GROUPS = """() => [...document.querySelectorAll("metrics-card-groups .card-group")].map((group) =>
    [group.querySelector(".group-title").textContent, group.querySelector("card-view") !== null])"""
LIGHT = [look for look in LOOKS if look.scheme == "light"]


@pytest.mark.parametrize("look", LIGHT, ids=str)
def test_tensorboard_opens_on_wins_and_rewards_of_runs_with_short_names(open_tab, quick_runs):
    folder = str(quick_runs[0].parent)
    with served(["-m", "tensorboard.main", "--logdir", folder, "--port", "0"]) as address:
        tab = open_tab(address)
        page = tab.page
        wait(page, "document.querySelectorAll('card-view').length > 5")
        groups = page.evaluate(_GROUPS)
        names = [name for name, _ in groups]
        assert names[:2] == ["1 wins", "2 reward"] and names == sorted(names)
        assert [name for name, unfolded in groups if unfolded] == ["1 wins", "2 reward"]
        runs = [name for name in page.inner_text("runs-data-table").split("\n") if "quick" in name]
        assert [name.rpartition("/")[2] for name in sorted(runs)] == [
            "mini, quick seed=0", "mini, quick seed=1"
        ]  # fmt: skip
        if tab.look.width > 400:
            page.click("button[aria-label='Toggle settings side pane']")
        page.wait_for_timeout(1000)
        tab.keep("tensorboard")
