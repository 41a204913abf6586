"""The numbers of a report: what finished games say about a player, with intervals; and its files.

Intervals are 95 %. They take secrets as independent, not games: several games on one secret tend to
end alike.
Bits are expected ones (what a guess would tell on average over the candidates), because the bits of
the one feedback that was seen are mostly luck.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordle_rl.evaluation.skill import by_turn, skills, summary
from wordle_rl.game.rules import Game, GameStatus, Rules, marks_of
from wordle_rl.runs.files import json_bytes, write_bytes, write_json

if TYPE_CHECKING:
    from wordle_rl.evaluation.regret import Regret
    from wordle_rl.game.knowledge import Knowledge
    from wordle_rl.rewards.scoring import GameReward, RewardSet

Z95 = 1.959963984540054  # the normal quantile of 97.5 %
_COMMON = 10  # how many guesses are listed as the most common


def wilson(wins: float, games: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share, without continuity correction; (0, 1) at no games.

    Both may be fractions, where `games` is an effective sample size.
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


def standard_error(values: Sequence[float], secrets: Sequence[str]) -> float | None:
    """Standard error of the mean of one value per game; None with fewer than two secrets.

    secrets: of each game. Games on one secret are one cluster, whose deviations add up first.
    Source: the linearised variance of a ratio, Cochran, Sampling Techniques (1977), section 11.9.
    """
    clusters: defaultdict[str, float] = defaultdict(float)
    mean = float(np.mean(values))
    for value, secret in zip(values, secrets, strict=True):
        clusters[secret] += value - mean
    count = len(clusters)
    if count < 2:
        return None
    squares = math.fsum(total**2 for total in clusters.values())
    return math.sqrt(count / (count - 1) * squares) / len(values)


def win_interval(won: Sequence[float], secrets: Sequence[str]) -> tuple[float, float]:
    """95 % interval of the win rate, in 0..1.

    won: 1 or 0 for each game. secrets: of each game. Wilson's interval, with as many games as would
    be as precise if all were independent: their number when each has a secret of its own, otherwise
    at least the number of secrets.
    Source: Dean and Pagano, Journal of Survey Statistics and Methodology 3 (2015).
    """
    share, distinct = sum(won) / len(won), len(set(secrets))
    effective = float(distinct)
    error = standard_error(won, secrets)
    if error and distinct < len(won):
        effective = min(max(share * (1 - share) / error**2, distinct), len(won))
    return wilson(share * effective, effective)


def summarise(
    games: Sequence[Game],
    knowledge: Knowledge,
    *,
    player: str,
    split: str,
    rules: Rules,
    seconds: float | None = None,
    regret: Regret | None = None,
    rewards: RewardSet | None = None,
) -> dict[str, Any]:
    """The summary of one player on one split, ready for JSON.

    seconds: time that all games took together. An unfinished game counts as lost, and so does one
    that ran out of time. Shares are in 0..1, None where there is nothing to divide by;
    format_compliance, non_words, repeats and thinks are shares of all turns; distinct_openers is
    the number of different first guesses by the number of games; thought_characters is
    over turns that think; tokens_per_game are sampled ones, 0 for scripted players; what
    wordle_rl.evaluation.skill measures is over accepted guesses, all together and by turn. regret,
    rewards: None leaves them out.
    Raises ValueError without games, or when one was played by other rules.
    """
    if not games:
        raise ValueError(f"{player} on {split}: there are no games to summarise")
    if any(game.rules != rules for game in games):
        raise ValueError(f"{player} on {split}: a game was played by other rules than reported")
    turns = skills(games, knowledge)
    return {
        "player": player,
        "split": split,
        "games": len(games),
        "secrets": len({game.secret for game in games}),
        "out_of_time": sum(game.status is GameStatus.OUT_OF_TIME for game in games),
        "unfinished": sum(game.status is GameStatus.PLAYING for game in games),
        **_results(games, rules.max_turns),
        **_play(games),
        **summary(turns),
        "by_turn": by_turn(turns, rules.max_turns),
        "regret": None if regret is None else regret.mean(games),
        **({} if rewards is None else _rewards([rewards.score(game) for game in games])),
        "rules": asdict(rules),
        "seconds": seconds,
        "games_per_second": len(games) / seconds if seconds else None,
    }


def _results(games: Sequence[Game], max_turns: int) -> dict[str, Any]:
    won = [game.state.turn for game in games if game.won]  # a retry uses no turn
    as_lost = [float(game.state.turn if game.won else max_turns + 1) for game in games]
    mean = float(np.mean(as_lost))
    secrets = [game.secret for game in games]
    error = standard_error(as_lost, secrets)
    half = None if error is None else Z95 * error
    low, high = win_interval([float(game.won) for game in games], secrets)
    counts = Counter(won)
    return {
        "wins": len(won),
        "win_rate": len(won) / len(games),
        "win_rate_low": low,
        "win_rate_high": high,
        "mean_guesses": sum(won) / len(won) if won else None,
        "mean_guesses_with_losses": mean,  # 7 at six turns: one more than the turns of the rules
        "mean_guesses_with_losses_low": None if half is None else mean - half,
        "mean_guesses_with_losses_high": None if half is None else mean + half,
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
    thoughts = [len(turn.thought) for _, turn in answers if turn.thought]
    return {
        "turns": len(answers),
        "tokens_per_game": sum(turn.tokens for _, turn in answers) / len(games),
        "thinks": _share(len(thoughts), len(answers)),
        "thought_characters": _share(sum(thoughts), len(thoughts)),
        "format_compliance": _share(len(parsed), len(answers)),
        "non_words": _share(non_words, len(answers)),
        "repeats": _share(sum(turn.repeat for _, turn in answers), len(answers)),
        "distinct_openers": distinct_openers(games),
        "most_common_guesses": [list(item) for item in most_common_guesses(games)],
    }


def most_common_guesses(games: Sequence[Game]) -> list[tuple[str, int]]:
    """The ten most common guesses that could be read, with their counts, most common first."""
    guesses = (turn.guess for game in games for turn in game.turns)
    return Counter(guess for guess in guesses if guess is not None).most_common(_COMMON)


def distinct_openers(games: Sequence[Game]) -> float | None:
    """Number of different first guesses by number of games; None without games.

    Games that were taken over with clues do not count.
    """
    first = [game.turns[0] for game in games if game.turns and not game.turns[0].state.clues]
    openers = {turn.guess for turn in first if turn.guess is not None}
    return _share(len(openers), len(first))


def reward_means(rewards: Sequence[GameReward]) -> dict[str, float]:
    """Mean over games of each component of the reward, summed over a game's turns."""
    sums: defaultdict[str, float] = defaultdict(float)
    for reward in rewards:
        for turn in reward.turns:
            for name, value in turn.items():
                sums[name] += value
    return {name: value / len(rewards) for name, value in sums.items()}


def _rewards(rewards: Sequence[GameReward]) -> dict[str, Any]:
    return {
        "reward": float(np.mean([reward.total for reward in rewards])),
        "reward_parts": reward_means(rewards),
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
