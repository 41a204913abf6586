"""Trains the models that three studies begin with: python research/make_starts.py starts|teachers

starts: for the study of that name, seven models in five minutes on one idle core. The embedded
model mini imitates on: random_consistent by Muon to four depths, three of them one after the other;
random_consistent by AdamW; and entropy by Muon. The loss is the cross-entropy to every guess that
the player might have made, which for entropy is one.

teachers: for the studies algorithm and teachers, two models in eighteen minutes on one idle core:
mini after GRPO, and lexicon as experiment=clean trains it.

Each is a run folder in outputs/starts/. Ctrl-C stops, and the same command continues. It leaves the
models that are there as they are; remove the folder of one to make it anew.
"""

import argparse
import shutil
import signal
import subprocess
import sys

from wordle_rl.runs.interrupts import SIGNALS
from wordle_rl.runs.paths import ROOT

FOLDER = ROOT / "outputs/starts"
# As the studies: training answers alone, and all others held out. A constant rate, so that a
# depth is a part of the way to the next.
ALL = (
    "experiment=study logger=none backend.threads=1 algorithm=distill reward=win_only "
    "num_generations=1 rollout.groups=64 words.allowed_share=0.0 optim.schedule=constant "
    "trainer.checkpoint_every=1000 trainer.validate_every=1000 trainer.games_every=1000"
)
ANSWERS = "model=mini algorithm.player=random_consistent"
TAUGHT = (
    "model=mini algorithm=grpo reward=information_allowed words.allowed_share=0.5 "
    "num_generations=8 rollout.groups=16 optim.lr=2e-3 optim.schedule=cosine trainer.steps=60 "
    "seed=1"
)
CLEAN = (
    "experiment=clean algorithm=grpo reward=information_allowed words.allowed_share=0.5 "
    "num_generations=8 optim.schedule=cosine trainer.report=false"
)
STARTS = {  # name: its settings, and the start before it; a step has 64 games
    "depth_10": (f"{ANSWERS} trainer.steps=10 seed=1", None),
    "depth_30": ("trainer.steps=20 seed=2", "depth_10"),
    "depth_90": ("trainer.steps=60 seed=3", "depth_30"),
    "entropy_90": (
        "model=mini algorithm.player=entropy algorithm.targets=sampled trainer.steps=90 seed=1",
        None,
    ),
    "depth_3": (f"{ANSWERS} trainer.steps=3 seed=1", None),
    "adamw_10": (f"{ANSWERS} optim=adamw optim.lr=3e-4 trainer.steps=10 seed=1", None),
    "adamw_30": ("trainer.steps=20 seed=2", "adamw_10"),
}
# GRPO from mini, at the rate that the study noise found better, and from lexicon.
TEACHERS = {"teacher": (TAUGHT, None), "clean": (CLEAN, None)}


def settings(text: str) -> list[str]:
    """Overrides, of which the last one of a name counts."""
    return list({word.partition("=")[0]: word for word in text.split()}.values())


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("which", choices=["starts", "teachers"])
    models = STARTS if parser.parse_args().which == "starts" else TEACHERS
    for name, (text, parent) in models.items():
        if not (FOLDER / name).exists():
            start = f"init_from={FOLDER / parent} init_checkpoint=last" if parent else ""
            make(name, settings(f"{ALL} {text} {start}"))
        print(f"{FOLDER / name} is there", flush=True)


def make(name: str, overrides: list[str]) -> None:
    """Train a model, or continue its training."""
    room = FOLDER / f"{name}_made"
    overrides = [*overrides, f"output_dir={room}"]
    if runs := sorted(room.glob("*/manifest.json")):
        overrides = [f"resume={runs[-1].parent}"]
    training = subprocess.Popen(
        [sys.executable, "train.py", *overrides], cwd=ROOT, start_new_session=True
    )
    for signum in SIGNALS:  # the run saves, and says how it ends
        signal.signal(signum, lambda signum, _: training.send_signal(signum))
    if code := training.wait():
        raise SystemExit(code)
    [run] = (path.parent for path in room.glob("*/summary.json"))
    run.rename(FOLDER / name)
    shutil.rmtree(room)


if __name__ == "__main__":
    main()
