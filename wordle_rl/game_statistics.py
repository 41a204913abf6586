"""The numbers of a report: what finished games say about a player, with intervals; and its files.

Intervals are 95 % and take games as independent, so a secret played twice counts as two games.
Bits are expected ones (what a guess would tell on average over the candidates), because the bits of
the one feedback that was seen are mostly luck.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.game import Game, GameStatus, Rules, marks_of
from wordle_rl.json_files import json_bytes, write_bytes, write_json
from wordle_rl.parser import thought_of
from wordle_rl.skill import by_turn, skills, summary

if TYPE_CHECKING:
    from wordle_rl.knowledge import Knowledge
    from wordle_rl.regret import Regret
    from wordle_rl.rewards.scoring import GameReward

Z95 = 1.959963984540054  # the normal quantile of 97.5 %
_COMMON = 10  # how many guesses are listed as the most common


def wilson(wins: int, games: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share, without continuity correction; (0, 1) at no games.

    Source: Newcombe, Statistics in Medicine 17 (1998), method 3.
    """
    if not 0 <= wins <= games:
        raise ValueError(f"wins must be 0..{games}, not {wins}")
    if games == 0:
        return 0.0, 1.0
    z2, share = Z95 * Z95, wins / games
    middle = (share + z2 / (2 * games)) / (1 + z2 / games)
    half = Z95 * math.sqrt(share * (1 - share) / games + z2 / (4 * games**2)) / (1 + z2 / games)
    # rounding must not move the ends off 0 and 1, nor off the share itself
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def summarise(
    games: Sequence[Game],
    knowledge: Knowledge,
    *,
    player: str,
    split: str,
    rules: Rules,
    seconds: float | None = None,
    timed_out: int = 0,
    regret: Regret | None = None,
) -> dict[str, Any]:
    """The summary of one player on one split, ready for JSON.

    seconds: time that all games took together. timed_out: how many of the games were cut short; an
    unfinished game counts as lost. Shares are in 0..1, None where there is nothing to divide by;
    format_compliance, non_words, repeats and thinks are shares of all turns; thought_characters is
    over turns that think; tokens_per_game are sampled ones, 0 for scripted players; what
    wordle_rl.skill measures is over accepted guesses, all together and by turn. regret: None leaves
    it out.
    Raises ValueError without games, or when one was played by other rules.
    """
    if not games:
        raise ValueError(f"{player} on {split}: there are no games to summarise")
    if any(game.rules != rules for game in games):
        raise ValueError(f"{player} on {split}: a game was played by other rules than reported")
    if not 0 <= timed_out <= len(games):
        raise ValueError(f"timed_out must be 0..{len(games)}, not {timed_out}")
    turns = skills(games, knowledge)
    return {
        "player": player,
        "split": split,
        "games": len(games),
        "secrets": len({game.secret for game in games}),
        "timed_out": timed_out,
        "unfinished": sum(game.status is GameStatus.PLAYING for game in games),
        **_results(games, rules.max_turns),
        **_play(games),
        **summary(turns),
        "by_turn": by_turn(turns, rules.max_turns),
        "regret": None if regret is None else regret.mean(games),
        "rules": asdict(rules),
        "seconds": seconds,
        "games_per_second": len(games) / seconds if seconds else None,
    }


def _results(games: Sequence[Game], max_turns: int) -> dict[str, Any]:
    won = [game.state.turn for game in games if game.won]  # a retry uses no turn
    as_lost = np.array([game.state.turn if game.won else max_turns + 1 for game in games], float)
    mean = float(as_lost.mean())
    half = None
    if len(games) > 1:
        half = Z95 * float(as_lost.std(ddof=1)) / math.sqrt(len(games))
    low, high = wilson(len(won), len(games))
    counts = Counter(won)
    return {
        "wins": len(won),
        "win_rate": len(won) / len(games),
        "win_rate_low": low,
        "win_rate_high": high,
        "mean_guesses": sum(won) / len(won) if won else None,
        "mean_guesses_losses_as_7": mean,  # 7 at six turns: one more than the turns of the rules
        "mean_guesses_losses_as_7_low": None if half is None else mean - half,
        "mean_guesses_losses_as_7_high": None if half is None else mean + half,
        "histogram": {
            **{str(turn): counts[turn] for turn in range(1, max_turns + 1)},
            "lost": len(games) - len(won),
        },
    }


def _play(games: Sequence[Game]) -> dict[str, Any]:
    answers = [(game, turn) for game in games for turn in game.turns]
    parsed = [(game, turn.guess) for game, turn in answers if turn.guess is not None]
    # asked of the list, because rules that accept any five letters do not call them non-words
    non_words = sum(guess not in game.allowed for game, guess in parsed)
    thoughts = [len(thought) for _, turn in answers if (thought := thought_of(turn.text))]
    common = sorted(Counter(guess for _, guess in parsed).items(), key=lambda item: -item[1])
    return {
        "turns": len(answers),
        "tokens_per_game": sum(turn.tokens for _, turn in answers) / len(games),
        "thinks": _share(len(thoughts), len(answers)),
        "thought_characters": _share(sum(thoughts), len(thoughts)),
        "format_compliance": _share(len(parsed), len(answers)),
        "non_words": _share(non_words, len(answers)),
        "repeats": _share(sum(turn.repeat for _, turn in answers), len(answers)),
        "most_common_guesses": [[guess, count] for guess, count in common[:_COMMON]],
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def paired(a: Sequence[Game], b: Sequence[Game]) -> dict[str, Any]:
    """Compare two players on the same secrets, each played once by both.

    p_value is the exact two-sided McNemar test of equal win rates: the binomial sign test on the
    secrets that only one player won. difference is b's win rate minus a's.
    Raises ValueError when the secrets differ or repeat.
    """
    first, second = ({game.secret: game.won for game in games} for games in (a, b))
    if not first or first.keys() != second.keys() or not len(a) == len(b) == len(first):
        raise ValueError("paired games need the same secrets, each played once by both players")
    only_a = sum(first[secret] and not second[secret] for secret in first)
    only_b = sum(second[secret] and not first[secret] for secret in first)
    split = only_a + only_b
    tail = sum(math.comb(split, k) for k in range(min(only_a, only_b) + 1)) / 2**split
    return {
        "games": len(first),
        "only_a_won": only_a,
        "only_b_won": only_b,
        "difference": (only_b - only_a) / len(first),
        "p_value": min(1.0, 2 * tail),
    }


def game_record(
    game: Game, reward: GameReward | None = None, advantage: float | None = None
) -> dict[str, Any]:
    """One game as a line of games.jsonl; lists have one entry per turn, lost turns included."""
    record: dict[str, Any] = {
        "secret": game.secret,
        "won": game.won,
        "status": str(game.status),
        "clues_at_start": [
            [clue.guess, clue.marks] for clue in (game.turns[0].state.clues if game.turns else ())
        ],
        "guesses": [turn.guess for turn in game.turns],
        "feedback": [None if t.feedback is None else marks_of(t.feedback) for t in game.turns],
        "kinds": [str(turn.kind) for turn in game.turns],
        "texts": [turn.text for turn in game.turns],
        "reasons": [turn.reason for turn in game.turns],
    }
    if reward is not None:
        record["reward"] = {"total": reward.total, "turns": [dict(part) for part in reward.turns]}
    if advantage is not None:
        record["advantage"] = advantage
    return record


def write_games(
    folder: Path,
    games: Sequence[Game],
    rewards: Sequence[GameReward] | None = None,
    advantages: Sequence[float] | None = None,
) -> Path:
    """Write <folder>/games.jsonl, one game_record a line, atomically; returns its path.

    rewards, advantages: one per game when given, else ValueError.
    """
    lines = [
        json_bytes(game_record(game, reward, advantage))
        for game, reward, advantage in zip(
            games,
            repeat(None, len(games)) if rewards is None else rewards,
            repeat(None, len(games)) if advantages is None else map(float, advantages),
            strict=True,
        )
    ]
    path = Path(folder) / "games.jsonl"
    write_bytes(path, b"".join(lines))
    return path


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write <folder>/summary.json atomically: the last file of a run, and the sign of success."""
    path = Path(folder) / "summary.json"
    write_json(path, summary)
    return path
