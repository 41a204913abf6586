"""Checkpoints of a few small files, and what a store holds of them."""

import warnings

from wordle_rl.runs.checkpoints import step_of


def write(text):
    def fill(folder):
        (folder / "adapter").mkdir()
        (folder / "adapter" / "weights.bin").write_bytes(text.encode() * 1000)
        (folder / "state.json").write_text(text)

    return fill


def newest(store):
    """Step and text of the newest unbroken checkpoint, with no warning allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint = store.load_latest()
    return step_of(checkpoint), (checkpoint / "state.json").read_text()


def steps(store):
    return sorted(path.name for path in store.folder.iterdir() if path.is_dir())
