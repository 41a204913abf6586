"""Trains the models that studies begin with: python research/make_starts.py starts|teachers

They are written to outputs/starts/. `starts` are for the study of that name, five minutes on one
idle core. The embedded model mini imitates on: random_consistent by Muon to four depths, three of
them one after the other; random_consistent by AdamW; and entropy by Muon. The loss is the
cross-entropy to every guess that the player might have made, which for entropy is one. `teachers`
are for the studies algorithm and teachers: mini after GRPO, and lexicon as experiment=clean trains
it, eighteen minutes on one core.
"""

import argparse
import shutil
import subprocess
import sys

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
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=["starts", "teachers"])
    chosen = STARTS if parser.parse_args().which == "starts" else TEACHERS
    for name, (given, before) in chosen.items():
        target = FOLDER / name
        if target.exists():
            continue
        start = f"init_from={FOLDER / before} init_checkpoint=last" if before else ""
        room = FOLDER / f"{name}_made"
        command = [sys.executable, "train.py", *settings(f"{ALL} {given} {start}")]
        subprocess.run([*command, f"output_dir={room}"], cwd=ROOT, check=True)
        [run] = (path.parent for path in room.glob("*/summary.json"))
        run.rename(target)
        shutil.rmtree(room)  # with what an interrupted run left there


if __name__ == "__main__":
    main()
