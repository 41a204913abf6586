"""Chooses pictures for the docs: python -m tests.helpers.docs_pictures FROM TO

FROM is the folder that the tests of tests/browser filled. The chosen pictures are cut at the bottom
and get a palette, so that they stay small. `make screenshots` does both.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

# The picture in docs/, the view that it shows, and its greatest height in pixels.
CHOSEN = {
    "report.png": ("report-light-1280", 965),
    "compare.png": ("compare-light-1280", 975),
    "play.png": ("run-play-light-1280", 680),
    "play_phone.png": ("play-won-dark-400", 900),
    "watch.png": ("watch-light-1280", 1000),
    "replay.png": ("run-replay-light-1280", 1000),
    "tensorboard.png": ("tensorboard-light-1280", 900),
    "docs_site.png": ("docs-docs-MANUAL-light-1280", 840),
}
_COLOURS = 128


def choose(source: Path, target: Path) -> int:
    """Write the pictures of the docs. Returns their bytes. Raises FileNotFoundError."""
    size = 0
    for name, (view, height) in CHOSEN.items():
        with Image.open(source / f"{view}.png") as picture:
            top = picture.convert("RGB").crop((0, 0, picture.width, min(height, picture.height)))
        few = top.quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(target / name, optimize=True)
        size += (target / name).stat().st_size
    return size


if __name__ == "__main__":
    print(f"{len(CHOSEN)} pictures, {choose(Path(sys.argv[1]), Path(sys.argv[2])):,} bytes")
