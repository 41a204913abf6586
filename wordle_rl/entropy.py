"""The old name of python -m wordle_rl.openers."""

from __future__ import annotations

from wordle_rl.runs.errors import fail, run_plain


def main() -> None:
    fail("python -m wordle_rl.entropy is now python -m wordle_rl.openers")


if __name__ == "__main__":
    run_plain(main)
