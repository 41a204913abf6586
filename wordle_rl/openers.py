"""The best first words: `python -m wordle_rl.openers` scores every legal opener.

`bits` is the Shannon entropy of the feedback. `remaining` is the mean number of secrets left after
it. Both are over all answers and look only one guess ahead. The whole table goes to a CSV file,
which has the digest of the word lists in its name unless they are the original ones.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from wordle_rl.game.entropy import count_codes, entropy
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.paths import module_command
from wordle_rl.words.lists import WordListError, WordLists, load_words

DEFAULT_CSV = Path("outputs") / "openers.csv"
_BLOCK = 256  # guesses per batch, so that the counters fit into the processor's cache


@dataclass(frozen=True, kw_only=True, slots=True)
class Opener:
    """A first word and its scores."""

    word: str
    bits: float  # entropy of its feedback
    remaining: float  # mean number of candidates after it, including the secret
    answer: bool  # whether it can be the secret


def openers(words: WordLists, table: np.ndarray) -> list[Opener]:
    """Score all allowed words. Most bits come first, ties are in alphabetical order.

    table: feedback codes uint8 [allowed, answers].
    """
    n = len(words.answers)
    bits, remaining = np.empty(len(table)), np.empty(len(table))
    for start in range(0, len(table), _BLOCK):
        counts = count_codes(table[start : start + _BLOCK])
        bits[start : start + _BLOCK] = entropy(counts)
        remaining[start : start + _BLOCK] = np.square(counts).sum(axis=1) / n
    # Rounded, so that ties stay in alphabetical order.
    order = np.argsort(-np.round(bits, 9), kind="stable")
    return [
        Opener(
            word=words.allowed[i],
            bits=float(bits[i]),
            remaining=float(remaining[i]),
            answer=words.allowed[i] in words.answer_index,
        )
        for i in order.tolist()
    ]


def write_csv(path: Path, scored: Sequence[Opener]) -> None:
    """Write rank, word, bits, remaining and answer (1 or 0) of every opener."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rank", "word", "bits", "remaining", "answer"])
        for rank, o in enumerate(scored, 1):
            writer.writerow([rank, o.word, f"{o.bits:.6f}", f"{o.remaining:.4f}", int(o.answer)])


def name_csv(words: WordLists, *, original: bool) -> Path:
    """The file for the scores of some word lists, which no other lists share."""
    if original:
        return DEFAULT_CSV
    return DEFAULT_CSV.with_name(f"{DEFAULT_CSV.stem}_{words.digest[:8]}.csv")


def report(words: WordLists, scored: Sequence[Opener], top: int) -> str:
    """The best openers as a plain-text table."""
    lines = [f"{'rank':>4}  word   {'bits':>6}  {'remaining':>9}  can be the secret"]
    for rank, o in enumerate(scored[:top], 1):
        secret = "yes" if o.answer else "no"
        lines.append(f"{rank:>4}  {o.word}  {o.bits:>6.3f}  {o.remaining:>9.2f}  {secret}")
    best = next(o for o in scored if o.answer)
    lines.append(
        f"best possible secret: {best.word} {best.bits:.3f} bits "
        f"({words.name}: {len(words.answers)} answers, {len(words.allowed)} allowed)"
    )
    return "\n".join(lines)


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code, 2 after a one-line error."""
    parser = _OneLineParser(prog=module_command("openers"), description="Score every first word.")
    parser.add_argument("--answers", help="possible secrets, .txt or .csv (default: original game)")
    parser.add_argument(
        "--allowed", help="legal guesses, .txt or .csv (default: same as --answers)"
    )
    parser.add_argument("--column", help="column of the words in a .csv file")
    parser.add_argument("--top", type=int, default=20, help="how many to print (default: 20)")
    parser.add_argument(
        "--csv",
        type=Path,
        help=f"file for all scores (default: {DEFAULT_CSV}; other lists have a file of their own)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.top < 1:
        parser.error(f"--top must be at least 1, not {chosen.top}")
    try:
        words = load_words(answers=chosen.answers, allowed=chosen.allowed, column=chosen.column)
    except WordListError as error:
        parser.error(re.sub(r"\bwords\.(answers|allowed|column)\b", r"--\1", str(error)))
    scored = openers(words, feedback_table(words))
    print(report(words, scored, chosen.top))
    path = chosen.csv or name_csv(words, original=chosen.answers is None)
    try:
        write_csv(path, scored)
    except OSError as error:
        parser.error(f"--csv {path}: cannot be written ({error.strerror})")
    print(f"all {len(scored)} in {path}")
    return 0


if __name__ == "__main__":
    run_plain(main)
