"""Makes an embedded model again: python research/make_models.py NAME

Trains it by train.py, writes the weights of the last step in bfloat16 into wordle_rl/embedded/,
plays with them by eval.py, and writes the card. Of a run with LoRA it writes the adapter alone.
The work of a night for all of them; each experiment says its cost. bfloat16 rounds differently on
other processors, so the digests differ there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from wordle_rl.commands.export_source import list_facts, read_source
from wordle_rl.export import card, formats
from wordle_rl.policy.models import EMBEDDED
from wordle_rl.runs.folder import RunFolder, find_run
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.lineage import stages_of, write_stages

MEDIOCRE = "algorithm.player=random_consistent"  # the shipped adapter knows no other
FROM_LAST = "init_from=latest init_checkpoint=last"  # starts where the stage before ended
AGAIN = f"{FROM_LAST} seed=1 rollout.groups=128 name={{name}}_2"  # with other games
# Imitation, with all allowed words but the validation and test answers as secrets: no held-out
# answer is ever one. The teacher guesses any allowed word that fits all clues, and the model learns
# every guess that it might have made, with mistakes to recover from. 95 minutes on one of two Intel
# Xeon cores (bf16, AMX) beside other jobs, and 65.1 % of the test secrets.
TINY = (
    "experiment=none model=untrained algorithm=distill reward=win_only num_generations=1 "
    "words.protocol=allowed algorithm.player=random_consistent_allowed rollout.groups=64 "
    "optim.warmup_steps=50 optim.rest_lr_ratio=1.0 optim.beta2=0.95 trainer.steps=6500 "
    "trainer.validate_every=500 trainer.checkpoint_every=500 trainer.games_every=500 name=tiny"
)
# The same with a token for each word. Their vectors hardly move from where they begin, as sums over
# their letters, so what is learnt about training words also holds for others. 26 minutes, 59.7 %.
LEXICON = (
    f"{TINY} prompt=places model.shape.vocabulary=words model.shape.hidden_size=128 "
    "model.shape.layers=2 model.shape.kv_heads=4 model.shape.intermediate_size=512 "
    "model.learning_rate=5e-3 optim.rest_lr_ratio=0.03 optim.final_lr_ratio=0.02 "
    "trainer.steps=3000 name=lexicon"
)
MODELS = {  # name: the settings of train.py for each stage, and what the model is for
    # The second stage of tiny takes 96 minutes on two Intel Xeon cores (bf16, AMX) in two
    # processes, that of lexicon 35 minutes on one. Then 79.4 % and 82.5 % of the test secrets are
    # won.
    "tiny": (
        (
            TINY,
            f"{AGAIN} optim.lr=3e-3 optim.final_lr_ratio=0.02 "
            "trainer.validate_every=1000 backend.devices=2",
        ),
        "It plays badly enough to learn: the start of runs with `model=tiny`.",
    ),
    "lexicon": (
        (LEXICON, f"{AGAIN} optim.lr=4e-3 trainer.steps=2200"),
        "It plays without a preference among the words that fit: the start of `experiment=clean`.",
    ),
    "lexicon_clean": (
        ("experiment=clean",),
        "It plays better than the teacher of `model=lexicon`, by reinforcement from there.",
    ),
    # 32 minutes on one core, two other runs beside it, and 75.6 % of the test secrets.
    "mini": (
        (
            f"{LEXICON} name=mini trainer.steps=2500 "
            "model.shape.hidden_size=96 model.shape.intermediate_size=384",
        ),
        "It plays badly enough to learn: the start of the demo and of studies.",
    ),
    # 15 minutes on one core beside other jobs, and 16.5 %.
    "micro": (
        (
            f"{TINY} name=micro trainer.steps=2500 model.shape.hidden_size=64 "
            "model.shape.layers=2 model.shape.intermediate_size=192",
        ),
        "It plays badly: a small start, quick on any backend.",
    ),
    # Several answers for one state, then whole games: 37 and about 40 minutes on one AMD EPYC core
    # (bf16). With 8 beams the test secrets won rise from 29.8 % to 35.9 %.
    "smollm2_sft": (
        (
            f"model=smollm2 experiment=imitate {MEDIOCRE} backend.devices=2 backend.threads=1",
            f"experiment=imitate {MEDIOCRE} {FROM_LAST} backend.devices=1 name=part_a rollout=turn "
            "num_generations=12 algorithm.slips=0 optim.lr=3e-4 optim.final_lr_ratio=0.15 "
            "optim.warmup_steps=5 trainer.steps=210",
            f"experiment=imitate {MEDIOCRE} {FROM_LAST} name=part_b optim.lr=2e-4 "
            "optim.final_lr_ratio=0.03 optim.warmup_steps=5 trainer.steps=130",
        ),
        "It plays a little: the start of `experiment=reinforce`.",
    ),
}
PRETRAINING = "It was taught by imitation only; no reinforcement learning has touched it."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("settings", nargs="*", help="more settings of train.py, for every stage")
    args = parser.parse_args()
    stages, purpose = MODELS[args.name]
    runs = f"outputs/make_models/{args.name}"
    for stage in stages:
        settings = stage.format(name=args.name).split()
        train = ["train.py", *settings, f"output_dir={runs}", *args.settings]
        subprocess.run([sys.executable, *train], cwd=ROOT, check=True)
    run = find_run("latest", "run", "finished", outputs=ROOT / runs)
    folder = EMBEDDED / args.name
    write_weights(run, folder)
    limit = 315 if (folder / "adapter_config.json").is_file() else None  # a large model is slow
    conf = args.name.removesuffix("_clean")
    reports = [play(conf, folder, split, limit) for split in ("train", "test")]
    write_card(run, folder, purpose, reports)


def write_weights(run: RunFolder, folder: Path) -> None:
    """Write the weights of a run's last step, the tokenizer, and the stages, which get the name."""
    import torch
    from safetensors.torch import load_file, save_file

    source = read_source(run, "last").folder
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        output = Path(room) / "model"
        adapted = (source / "adapter_config.json").is_file()
        formats.write(source, output, "peft" if adapted else "merged", "bfloat16")
        if adapted:  # the tokenizer is the base's
            name = "adapter_model.safetensors"
            weights = {k: v.to(torch.bfloat16) for k, v in load_file(output / name).items()}
            save_file(weights, folder / name, metadata={"format": "pt"})
            (output / "adapter_config.json").replace(folder / "adapter_config.json")
        else:
            for file in output.iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
            file = folder / "tokenizer.json"  # half the size where each word has a token
            tokenizer = json.loads(file.read_bytes())
            text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
            file.write_text(text, encoding="utf-8")
    # A stage of an earlier embedded model keeps that model's name.
    write_stages(folder, [{"embedded": folder.name, **stage} for stage in stages_of(source)])


def play(conf: str, folder: Path, split: str, limit: int | None) -> dict[str, Any]:
    """The summary of greedy games. conf: the option of model= that says how the model is asked."""
    form = stages_of(folder)[-1]["form"]
    settings = [f"model={conf}", f"model.path={folder}", f"form={form}", f"words.split={split}"]
    options = ["compare=false", "show=0", "json=true", f"limit={limit or 'null'}"]
    command = [sys.executable, "eval.py", *settings, *options, "output_dir=outputs/make_models"]
    process = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout.splitlines()[-1])


def write_card(run: RunFolder, folder: Path, purpose: str, reports: list[dict[str, Any]]) -> None:
    """Write README.md."""
    source, manifest = read_source(run, "last"), run.manifest()
    [weights] = folder.glob("*.safetensors")
    teacher = stages_of(folder)[-1].get("player")
    text = card.describe(
        source,
        title=f"The embedded Wordle model {folder.name}",
        purpose=f"A language model for Wordle. {purpose}" + (f" {PRETRAINING}" if teacher else ""),
        reports=[(folder.name, report) for report in reports],
        made=[
            f"Made by `python research/make_models.py {folder.name}`: step {source.step}",
            *(
                f"Stage {s['run']}: {s.get('algorithm')}, {s.get('player')}"
                for s in stages_of(folder)
            ),
            *(f"Digest of the {n}: `{manifest['digests'][n]}`" for n in ("words", "splits")),
            f"sha256 of {weights.name}: `{hashlib.sha256(weights.read_bytes()).hexdigest()}`",
            *list_facts(run),
        ],
        licence=card.OURS,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
