"""`python -m wordle_rl.play --run` on a trained run, in headless Chromium."""

from __future__ import annotations

import pytest

from tests.helpers.browser import NEEDS_BROWSER, served, wait

pytestmark = NEEDS_BROWSER


def test_a_trained_run_is_played_watched_replayed_and_followed(open_tab, quick_runs):
    command = ["-m", "wordle_rl.play", "--run", str(quick_runs[0]), "--no-browser"]
    with served([*command, "--secret", "mound"]) as address:
        tab = open_tab(address)
        page = tab.page
        wait(page, "!document.getElementById('give-up').disabled")
        for number, guess in enumerate(("slate", "corny"), 1):
            page.keyboard.type(guess)
            page.keyboard.press("Enter")
            tiles = "document.querySelectorAll('#mine .tile[data-mark]').length"
            wait(page, f"{tiles} === {5 * number}")
        tab.check("run-play")
        page.keyboard.type("mound")
        page.keyboard.press("Enter")
        wait(page, "document.getElementById('play-result').textContent !== ''")
        assert page.inner_text("#play-result").startswith("You found MOUND in 3.")
        tab.check("run-play-won")

        tab.show("replay")
        page.select_option("#replay-won", "no")
        page.click("#replay-form button[type=submit]")
        wait(page, "!document.getElementById('replay-list').textContent.includes('won in')")
        page.click("#replay-list tbody button")
        page.wait_for_selector("#replayed .board button:nth-child(1)")
        page.click("#replayed .board li:nth-child(3) button")
        wait(page, "document.querySelector('#replayed h3 ~ dl') !== null")
        tab.check("run-replay")

        tab.show("follow")
        page.wait_for_selector("#follow-curve svg polyline")
        assert "finished, step 40" in page.inner_text("#follow-state")
        tab.check("run-follow")


@pytest.mark.parametrize(
    "options", [["--model", "mini"], ["--player", "entropy"]], ids=lambda o: o[1]
)
def test_a_player_without_a_run_has_no_views_of_a_run(open_tab, options):
    with served(["-m", "wordle_rl.play", *options, "--no-browser"]) as address:
        tab = open_tab(address)
        wait(tab.page, "!document.getElementById('give-up').disabled")
        assert [one.inner_text() for one in tab.page.query_selector_all("nav a")] == [
            "Play", "Watch", "Board",
        ]  # fmt: skip
        tab.check(f"player-{options[1]}")
