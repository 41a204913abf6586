"""What a run holds in memory, part by part, and what fits into a given memory. Plain arithmetic.

All sizes are in bytes, and a GB is 10**9 bytes. A run plays, then learns, then steps, and each
phase frees what it needed before the next one begins. So the peak is what a run always holds plus
the largest phase. It counts the longest games that the settings allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

GB = 1e9  # bytes
MACHINES = (16, 24, 48, 80, 141)  # GB of memory that the table compares with
DEFAULT_MICRO_BATCH = 4096  # padded tokens, where auto has no plan to choose by
MOST_MICRO_BATCH = 16_384  # auto takes no more, since larger products are no faster
LEAST_MICRO_BATCH = 256

Place = Literal["cpu", "cuda", "mps", "mlx"]


@dataclass(frozen=True, kw_only=True)
class GameSize:
    """Tokens of the longest game."""

    opening: int  # up to the first answer
    feed: int  # most tokens between two answers
    whole: int  # of all prompts and answers that one row holds at once
    trained: int  # sampled tokens in a sequence that is trained


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Bytes as a linear function of a count."""

    fixed: float
    each: float

    def at(self, count: int) -> int:
        return round(self.fixed + self.each * count)


@dataclass(frozen=True, kw_only=True)
class Playing:
    """What rollouts hold, each as a function of the games at once."""

    keys_values: Linear
    logits: Linear  # of one token of each game, and their copies while a token is drawn
    states: Linear  # temporary: hidden states of the tokens fed at once, and joined weights
    opening: int = 0  # while the opening is fed, before there are rows for all games

    def at(self, games: int) -> int:
        """The most that is held. Logits are computed when the other states are gone."""
        kept = self.keys_values.at(games) + max(self.states.fixed, 0)
        last = kept + max(self.logits.at(games), self.states.each * games)
        return round(max(last, self.opening))


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What one micro-batch holds besides the gradients."""

    activations: int  # kept for the backward pass
    logits: int  # and what is made of them until their gradient is known
    backward: int  # temporary: the most that the layers' backward pass needs on top

    @property
    def total(self) -> int:
        return self.activations + max(self.logits, self.backward)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a run always holds, and its gradients."""

    parameters: int  # a number, not bytes; without adapters
    trained: int  # a number, not bytes
    weights: int
    adapters: int
    sums: int = 0  # of base and adapter, through which LoRA computes on a CPU
    reference: int  # frozen copy for the KL term, 0 without one
    optimizer: int  # moments of the trained weights
    gradients: int  # held while the model learns
    step: int  # temporary: copies while the optimiser steps

    @property
    def always(self) -> int:
        return self.weights + self.adapters + self.sums + self.reference + self.optimizer


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The memory of one run on one device."""

    games: int  # at once in training, 0 where a teacher plays
    held_out_games: int  # at once in validation and reports
    micro_batch_tokens: int
    game: GameSize  # in training
    kept: Kept
    playing: Playing  # in training
    held_out: Playing
    learning: Learning
    checkpointing: Learning  # the same with gradient checkpointing
    uses_checkpointing: bool = False

    @property
    def learning_used(self) -> Learning:
        return self.checkpointing if self.uses_checkpointing else self.learning

    def while_training(self, games: int | None = None) -> int:
        """The peak of rollouts in training. games: another number of games at once."""
        games = self.games if games is None else games
        return self.kept.always + (self.playing.at(games) if games else 0)

    def while_held_out(self, games: int | None = None) -> int:
        """The peak of validation and reports. games: another number of games at once."""
        return self.kept.always + self.held_out.at(self.held_out_games if games is None else games)

    @property
    def while_playing(self) -> int:
        return max(self.while_training(), self.while_held_out())

    def while_learning(self, learning: Learning | None = None) -> int:
        """The peak of updates. learning: another micro-batch."""
        kept, part = self.kept, learning or self.learning_used
        return kept.always + kept.gradients + max(part.total, kept.step)

    @property
    def total(self) -> int:
        return max(self.while_playing, self.while_learning())

    def find_games(self, limit: float) -> int:
        """The most games at once in training that fit into this many bytes, 0 if none do."""
        return find_largest(lambda games: self.while_training(games) <= limit, self.games)

    def find_held_out_games(self, limit: float) -> int:
        """The most games at once in validation and reports that fit, 0 if none do."""
        return find_largest(lambda games: self.while_held_out(games) <= limit, self.held_out_games)


def find_largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number 1..most for which `fits` holds, 0 if none does.

    Whatever is smaller than a number that fits must fit too.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def choose_micro_batch(
    most: int, need: Callable[[int], int], limit: float, least: int = LEAST_MICRO_BATCH
) -> int:
    """The largest of most, most / 2, most / 4, ... padded tokens that fits, 0 if none does.

    need: bytes of a micro-batch of so many tokens. least: the smallest size that is tried.
    """
    tokens = most
    while tokens >= least:
        if need(tokens) <= limit:
            return tokens
        tokens //= 2
    return 0


def usable(memory: float, place: Place) -> float:
    """Bytes of a machine's memory that a run may plan with.

    The rest is for the driver, the libraries and the gaps between blocks. macOS lets a GPU use two
    thirds of the memory, or three quarters of more than 36 GB.
    """
    if place in ("mlx", "mps"):
        return memory * (0.75 if memory > 36 * GB else 2 / 3)
    return memory * 0.92


def game_size(
    *,
    opening: int,
    feeds: Sequence[int],
    answer: int,
    trained_answers: int,
    fresh: bool,
    max_context: int,
) -> GameSize:
    """The longest game: each answer takes all the tokens it may have.

    opening: tokens of the longest first prompt. feeds: tokens between the answers, one entry per
    reply; with `fresh` each is a whole prompt. answer: most tokens of one answer.
    """
    if fresh:
        prompt = max([opening, *feeds])
        whole, feed, trained = prompt + answer, prompt, answer
    else:
        whole = opening + sum(feeds) + (len(feeds) + 1) * answer
        feed, trained = max([0, *feeds]), trained_answers * answer
    whole = min(whole, max_context)
    return GameSize(
        opening=min(opening, whole),
        feed=max(min(feed, whole), 1),
        whole=whole,
        trained=min(trained, max(whole - opening, 1)),
    )


def fill_micro_batch(game: GameSize, tokens: int) -> tuple[GameSize, int]:
    """The games that a micro-batch of so many padded tokens can hold, and their number.

    Games a little shorter than the longest one fill it to the last token. A game that is longer
    than the micro-batch is alone in it.
    """
    rows = max(-(-tokens // game.whole), 1)
    if rows == 1:
        return game, rows
    whole = tokens // rows
    trained = max(min(game.trained, whole - game.opening), 1)
    return replace(game, whole=whole, trained=trained), rows
