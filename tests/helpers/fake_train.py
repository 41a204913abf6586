"""Takes the place of train.py in tests of studies: writes the same run folder without a model.

python fake_train.py output_dir=<folder> [x=<float>] [seed=<int>] | resume=<run>. The environment
variable FAKE says what goes wrong: it is a JSON object with fields of Fake. steps.log in the run
folder has a line for each step, with the process that did it.
"""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.runs.folder import RunFolder


@dataclass
class Fake:
    steps: int = 4
    seconds: float = 0.0  # per step
    hold: str = ""  # a file for which the third step waits
    fail: str = ""  # the error it ends with after its first step
    fail_at: float | None = None  # the x that fails alone
    by_seed: float = 0.0  # wins added by each seed above 0
    value: float | None = -1.0  # val_win_rate in the summary; -1 for the true one
    code: int = 0  # exit code after a whole run
    summary: bool = True
    secrets: int = 0  # played at each validation; as many are won as the wins say


def main() -> None:
    fake = Fake(**json.loads(os.environ.get("FAKE", "{}")))
    args = {k: v.strip("'") for k, _, v in (a.partition("=") for a in sys.argv[1:])}
    if "resume" in args:
        run = RunFolder(Path(args["resume"]))
        args = run.manifest()["given"]
    else:
        run = RunFolder.create(args["output_dir"], "fake")
        write_json(run.path / "config.yaml", {"trainer": {"steps": fake.steps}})  # JSON is YAML
        write_json(run.path / "manifest.json", {"status": "running", "given": args})
    with run.lock():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        train(run, fake, float(args.get("x", 0.0)), fake.by_seed * int(args.get("seed", 0)))
    sys.exit(fake.code)


def train(run: RunFolder, fake: Fake, x: float, bonus: float) -> None:
    checkpoint = run.path / "checkpoint.json"
    last_step = json.loads(checkpoint.read_text())["step"] if checkpoint.exists() else 0
    log, best = run.log("metrics"), 0.0
    log.truncate_after(last_step)
    for step in range(last_step + 1, fake.steps + 1):
        time.sleep(fake.seconds)
        while fake.hold and step == 3 and not Path(fake.hold).exists():
            time.sleep(0.02)
        metrics = {"total/games": 10 * step, "time/step": 0.5, "groups/zero_spread": 0.25}
        best = 0.5 * x + 0.01 * step + bonus
        # As in a real run, a signal waits until the step is complete.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        log.append(step, {**metrics, "val/win_rate": best})
        for number in range(fake.secrets):
            StepLog(run.path / "validation_games.jsonl").append(
                step, play(f"word{number}", won=number < round(best * fake.secrets))
            )
        write_json(checkpoint, {"step": step})
        # Last: a test that sees the step here may kill this process.
        StepLog(run.path / "steps.log").append(step, {"pid": os.getpid()})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if fake.fail and fake.fail_at in (None, x):
            sys.exit(f"Traceback\nerror: {fake.fail}")
    if fake.summary:
        value = best if fake.value == -1.0 else fake.value
        report = {"win_rate": 0.25, "mean_guesses_with_losses": 4.5}
        details = {"best_step": fake.steps, "lineage": f"lineage: fake. {'word ' * 30}"}
        summary = {"val_win_rate": value, **details, **report}
        write_json(run.path / "summary.json", summary)


def play(secret: str, *, won: bool) -> dict[str, object]:
    """A validation game: the secret at the second guess, or six answers without it."""
    guesses = ["crane", secret] if won else ["crane", "crane", "slate", "zzzzz", None, "slate"]
    kinds = ["accepted", "accepted", "accepted", "not_allowed", "unparsable", "accepted"]
    return {"secret": secret, "won": won, "guesses": guesses, "kinds": kinds[: len(guesses)]}


if __name__ == "__main__":
    main()
