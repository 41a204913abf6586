"""The files of a run with verl: rows as Parquet, the agent loop, the launch script, digests.

Equal choices give equal files. check_folder() reads them back before a run and refuses files that
were changed or whose secrets break a rule.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.adapters.verl.game import (
    AGENT,
    PARTS,
    build_game,
    check_row,
    choose_settings,
    write_clues,
)
from wordle_rl.adapters.verl.keys import CHECKPOINTS, HERE, VERSION, Keys
from wordle_rl.game.rules import State
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.runs.files import (
    FolderError,
    check_all_entries,
    read_object,
    write_bytes,
    write_json,
)
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import file_digest, read_table, write_table
from wordle_rl.training.experiment import Experiment

LOOP = "wordle_rl.adapters.verl.loop.WordleLoop"
YAML, SCRIPT, DIGESTS = "agent_loop.yaml", "train.sh", "digests.json"
_FILES = tuple(f"{part}.parquet" for part in PARTS)
_OURS = {*_FILES, YAML, SCRIPT, DIGESTS}
_FEWEST = 2  # secrets of a part; one would make every validation the same game
_PLAIN = re.compile(r"[\w./:+-]+")  # what Hydra reads as one value without quotes
Row = dict[str, Any]
_HEAD = f"""\
#!/usr/bin/env bash
# Trains with verl {VERSION}. Written by wordle-rl verl; arguments are verl's settings and
# come last, so they win: bash {SCRIPT} trainer.total_training_steps=2
# NNODES and GPUS (of each node) say how many there are. On several nodes, start Ray first.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
python="${{PYTHON:-python}}"
# A folder named verl, in which this may run, has no origin.
finds='from importlib.util import find_spec as find
exit(not getattr(find("verl"), "origin", None))'
if ! "$python" -c "$finds"; then
    echo "error: $python has no verl: see docs/VERL.md, and name verl's Python with PYTHON=" >&2
    exit 1
fi
"$python" -m wordle_rl verl check="$here"
exec "$python" -m verl.trainer.main_ppo \\
"""


def build_rows(setup: Experiment) -> dict[str, list[Row]]:
    """The rows of each part: train, val and test."""
    recipe, turns = setup.recipe, setup.recipe.rules.max_turns
    if recipe.states is not None:
        given = [recipe.states[i] for i in range(len(recipe.states))]
        secrets, starts = [g.secret for g in given], [g.state(turns) for g in given]
    else:
        secrets = _choose_training_secrets(setup)
        starts = [State(max_turns=turns)] * len(secrets)
        if recipe.history is not None:
            starts = recipe.history.states(
                secrets, range(len(secrets)), seed=recipe.seed, step=0, max_turns=turns
            )
    empty = [State(max_turns=turns)] * len(setup.test)
    return {
        "train": _build_part(setup, "train", secrets, starts),
        "val": _build_part(setup, "val", setup.validation, setup.validation_starts),
        "test": _build_part(setup, "test", setup.test, empty),
    }


def _choose_training_secrets(setup: Experiment) -> list[str]:
    """The training secrets, and as many allowed words as words.allowed_share asks for."""
    recipe, share = setup.recipe, setup.recipe.allowed_share
    secrets = [] if share == 1 else list(recipe.secrets)
    if share:
        wanted = round(len(secrets) * share / (1 - share)) if share < 1 else len(recipe.secrets)
        draw = generator(Purpose.ALLOWED_SECRETS, seed=recipe.seed)
        pool = recipe.allowed_secrets
        secrets += [pool[i] for i in draw.permutation(len(pool))[:wanted]]
    return secrets


def _build_part(
    setup: Experiment, part: str, secrets: Sequence[str], starts: Sequence[State]
) -> list[Row]:
    style, digest = setup.recipe.style, setup.splits.digest
    system = {"role": "system", "content": style.system}
    return [
        {
            "data_source": AGENT,
            "agent_name": AGENT,
            # verl shows it; the agent loop makes the prompt's tokens from the state.
            "prompt": [system, {"role": "user", "content": style.opening(state)}],
            "ability": "game",
            "reward_model": {"style": "rule", "ground_truth": secret},
            "extra_info": {
                "split": part,
                "index": number,
                "secret": secret,
                "clues": write_clues(state.clues),
                "splits": digest,
            },
        }
        for number, (secret, state) in enumerate(zip(secrets, starts, strict=True))
    ]


def check_parts(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Raise ConfigError for parts that cannot measure anything. parts: the extra_info of rows."""
    for part in ("val", "test"):
        counts = Counter(row["secret"] for row in parts[part])
        if len(counts) < _FEWEST:
            raise ConfigError(
                f"{part} must have {_FEWEST} different secrets or more, not {len(counts)}"
                + (f" ({', '.join(counts)})" if counts else "")
            )
        if repeated := [secret for secret, number in counts.items() if number > 1]:
            raise ConfigError(f"{part} must have each secret once, and {repeated[0]} repeats")
    for part, rows in parts.items():
        if other := [row["split"] for row in rows if row["split"] != part]:
            raise ConfigError(f"{part}.parquet must have rows of its own, not of {other[0]}")


def check_output(folder: Path) -> bool:
    """Whether the folder has files of this command, which are about to be replaced.

    Raises ConfigError for a folder that files cannot be written into.
    """
    if above := [path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()]:
        raise ConfigError(f"output must be a folder, but {above[0]} is a file")
    if (folder / CHECKPOINTS).exists():
        raise ConfigError(
            f"output must be a folder without {CHECKPOINTS}, which another run left in {folder}: "
            "name another one"
        )
    if "'" in str(folder):
        raise ConfigError(f"output must be a folder without ' in its name, not {folder}")
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if others := sorted(present - _OURS):
        raise ConfigError(
            f"output must be a new folder, or one that has this command's files alone: {folder} "
            f"has {others[0]}, too"
        )
    return bool(present)


def write_folder(folder: Path, setup: Experiment, keys: Keys) -> dict[str, int]:
    """Write all files. Returns the number of rows of each part."""
    import yaml

    check_output(folder)
    settings = choose_settings(setup)
    game = build_game(settings)
    rows = build_rows(setup)
    infos = {part: [row["extra_info"] for row in rows[part]] for part in PARTS}
    check_parts(infos)
    for info in (info for part in PARTS for info in infos[part]):
        check_row(info, game.splits, mixed=game.mixed)
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        write_table(folder / f"{part}.parquet", rows[part], "parquet")
    # Plain values: verl's Hydra must build the loop, but nothing of the settings inside it.
    loop = {"name": AGENT, "_target_": LOOP, "_recursive_": False, "_convert_": "all"}
    text = yaml.safe_dump([{**loop, "game": settings}], sort_keys=False, allow_unicode=True)
    write_bytes(folder / YAML, text.encode())
    write_bytes(folder / SCRIPT, write_script(keys).encode())
    digests = {name: file_digest(folder / name) for name in (*_FILES, YAML)}
    write_json(folder / DIGESTS, {"splits": setup.splits.digest, "files": digests})
    return {part: len(rows[part]) for part in PARTS}


def write_script(keys: Keys) -> str:
    """The launch script. Arguments that bash expands are in double quotes, others are plain."""
    lines = [f"    {_write_argument(key, value)} \\\n" for key, value in keys.items()]
    return _HEAD + "".join(lines) + '    "$@"\n'


def write_value(value: Any) -> str:
    """A value as Hydra reads it on a command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(write_value, value))}]"
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _write_argument(key: str, value: Any) -> str:
    if str(value).startswith(HERE):
        return f"{key}=\"'{value}'\""  # a folder's name may hold blanks
    if str(value).startswith("${"):
        return f'{key}="{value}"'
    return shlex.quote(f"{key}={write_value(value)}")


def check_folder(folder: Path, cache: Path) -> dict[str, int]:
    """Check the files of a folder again, as the launch script does. Returns the rows of each part.

    Raises ConfigError or FolderError in one line: for a file that was changed, and for secrets that
    break a rule. cache: folder for mapped copies of the files.
    """
    import yaml

    if not folder.is_dir():
        what = "is a file" if folder.exists() else "no such folder"
        raise FolderError(f"check must name a folder: {folder}: {what}")
    recorded = read_object(folder / DIGESTS)
    check_all_entries(folder / DIGESTS, recorded, {"splits": str, "files": dict[str, str]})
    digests = recorded["files"]
    if missing := {*_FILES, YAML} - {*digests}:
        raise FolderError(f"{folder / DIGESTS}: must list {', '.join(sorted(missing))}")
    for name, digest in digests.items():
        if not (folder / name).is_file():
            raise FolderError(f"{folder / name}: no such file")
        if file_digest(folder / name) != digest:
            raise FolderError(
                f"{folder / name}: was changed after it was written (sha256 differs from "
                f"{DIGESTS}): write the folder anew"
            )
    [loop] = yaml.safe_load((folder / YAML).read_text(encoding="utf-8"))
    game = build_game(loop["game"])
    infos = {}
    for part in PARTS:
        table = read_table(folder / f"{part}.parquet", None, cache)
        infos[part] = [row.get("extra_info") or {} for _, row in table.rows()]
        for info in infos[part]:
            game.begin(info)
    check_parts(infos)
    return {part: len(infos[part]) for part in PARTS}
