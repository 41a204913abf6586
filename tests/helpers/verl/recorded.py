"""What a run with verl drew and trained on, and the same computed once more from its tokens.

Needs neither torch nor verl.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wordle_rl.adapters.api import build_knowledge, build_rewards
from wordle_rl.game.rules import Game
from wordle_rl.prompts.parser import parse
from wordle_rl.rewards.scoring import GameReward

NAME = "wordle_engine"  # of the rollout engine
MODE = "recorded_sync"  # of the trainer
LOG = "WORDLE_RL_VERL_LOG"  # variable with the folder for what was drawn and trained
Answer = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]  # prompt, ids, log-probs


def read_lines(log: Path, pattern: str) -> list[dict[str, Any]]:
    """The entries of all files of a run's log that match a pattern."""
    files = sorted(log.glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def list_drawn(log: Path) -> Counter[Answer]:
    """Every training answer that the servers drew. Validation is greedy."""
    return Counter(
        (tuple(entry["prompt"]), tuple(entry["ids"]), _rounded(entry["logprobs"]))
        for entry in read_lines(log, "drawn_*.jsonl")
        if entry["temperature"] > 0
    )


def answers_of(row: dict[str, Any]) -> Iterator[Answer]:
    """Every run of trained tokens, with all tokens before it."""
    ids, end = row["responses"], 0
    for trained, run in itertools.groupby(row["response_mask"]):
        begin, end = end, end + len(list(run))
        if trained:
            logprobs = _rounded(row["rollout_log_probs"][begin:end])
            yield (*row["prompts"], *ids[:begin]), tuple(ids[begin:end]), logprobs


def _rounded(logprobs: list[float]) -> tuple[float, ...]:
    """verl keeps float32."""
    return tuple(round(value, 4) for value in logprobs)


def replay(row: dict[str, Any], tokenizer: Any, reward: str) -> tuple[Game, GameReward]:
    """Play a row's answers in a new game. Returns it and its reward."""
    knowledge = build_knowledge()
    game = Game(row["secret"], knowledge.words.allowed_set)
    for _, ids, _ in answers_of(row):
        complete = ids[-1] == tokenizer.eos_token_id
        text = tokenizer.decode(ids[:-1] if complete else ids)
        read = parse(text) if complete else parse(text).truncated()
        game.play(read.guess, text=text, thought=read.thought, reason=read.reason, tokens=len(ids))
    return game, build_rewards(reward, knowledge).score(game)


def largest_gap(rows: list[dict[str, Any]]) -> float:
    """The most that the probability of a trained token differs, sampler against trainer."""
    return max(
        abs(math.exp(sampled) - math.exp(scored))
        for row in rows
        for sampled, scored, marked in zip(
            row["rollout_log_probs"], row["old_log_probs"], row["response_mask"], strict=True
        )
        if marked
    )
