"""Metrics of a step's games, answers, rewards and groups. docs/METRICS.md explains them."""

from collections.abc import Sequence

import numpy as np

from wordle_rl.evaluation.habits import later_guesses
from wordle_rl.evaluation.summary import distinct_openers, most_common_guesses, reward_means
from wordle_rl.game.rules import Game
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.talk import Rollout, games_of
from wordle_rl.words.lists import WordLists


def group_metrics(*, groups: int, idle: int, replaced: int, skipped: int) -> dict[str, float]:
    """How many groups of a step taught nothing, of those that it trains on and those replaced.

    idle: groups without spread in their rewards. skipped: those that the update leaves out.
    """
    return {
        "groups/played": float(groups + replaced),
        "groups/zero_spread": (idle + replaced) / (groups + replaced),
        "groups/skipped": skipped / groups,
        "groups/resampled": float(replaced),
    }


def game_metrics(rollouts: Sequence[Rollout], words: WordLists) -> dict[str, float]:
    """Results of a step's games, and of all answers drawn in them, untaken candidates included."""
    games = games_of(rollouts)
    turns = [turn for rollout in rollouts for turn in rollout.game.turns]
    wins = [game for game in games if game.won]
    plays = [game for game in games if game.turns]
    thoughts = [len(turn.thought) for turn in turns if turn.thought]
    answers = [game.won for game in games if game.secret in words.answer_index]
    return {
        "train/games": float(len(games)),
        "train/wins": float(len(wins)),
        "train/win_rate": len(wins) / len(games),
        "train/out_of_context": float(sum(game.out_of_context for game in games)),
        "train/earlier_guesses": float(np.mean([len(g.turns[0].state.clues) for g in plays])),
        "train/guesses_won": _mean([g.state.turn for g in wins]),
        "train/format": sum(t.guess is not None for t in turns) / len(turns),
        "train/non_words": sum(t.kind == "not_a_word" for t in turns) / len(turns),
        "train/repeats": sum(t.repeat for t in turns) / len(turns),
        "train/thinks": len(thoughts) / len(turns),
        "train/thought_characters": float(np.mean(thoughts)) if thoughts else 0.0,
        **habit_metrics("train", games),
        "train/answers": len(answers) / len(games),
        "train/answers_win_rate": _mean(answers),
    }


def habit_metrics(prefix: str, games: Sequence[Game]) -> dict[str, float]:
    """How varied the guesses are. A collapse of the policy shows here first."""
    guesses = sum(turn.guess is not None for game in games for turn in game.turns)
    openers, ranking = distinct_openers(games), most_common_guesses(games)
    habits = later_guesses(games)
    turns, count = habits["later_turns"], habits["later_guess_count"]
    return {
        f"{prefix}/distinct_openers": np.nan if openers is None else openers,
        f"{prefix}/most_common_guess": ranking[0][1] / guesses if ranking else np.nan,
        f"{prefix}/most_common_later_guess": count / turns if turns else np.nan,
    }


def answer_tokens(games: Sequence[Game]) -> float:
    """Mean number of tokens of an answer, NaN without answers."""
    return _mean([turn.tokens for game in games for turn in game.turns])


def token_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Tokens of a step's answers, including thoughts and ends of turns."""
    answers = [length for rollout in rollouts for length in rollout.answer_lengths.tolist()]
    return {
        "tokens/sampled": float(sum(answers)),
        "tokens/per_answer": float(np.mean(answers)) if answers else 0.0,
        "tokens/per_game": sum(answers) / len(games_of(rollouts)),
    }


def reward_metrics(rewards: Sequence[GameReward]) -> dict[str, float]:
    """How a game's reward is spread, and the mean of each component."""
    totals = np.array([r.total for r in rewards])
    return {
        "reward/mean": float(totals.mean()),
        "reward/std": float(totals.std()),
        "reward/min": float(totals.min()),
        "reward/max": float(totals.max()),
        "reward/below_0": float((totals < 0).mean()),
        **{f"reward/{name}": value for name, value in reward_means(rewards).items()},
    }


def noise_scale(agreement: Sequence[float], guesses: float) -> float:
    """Guesses at which the expected gradient of an update is as large as its error.

    agreement: cosines of the gradients of two halves of an update, of several steps; NaN is left
    out. guesses: of one update. Returns inf where the halves do not agree, NaN where nothing is
    known. With n guesses in each half, the expected cosine is about n / (n + scale). Source:
    McCandlish et al. 2018 (arXiv 1812.06162), section 2.2.
    """
    mean = _mean([value for value in agreement if not np.isnan(value)])
    if mean <= 0.0:
        return np.inf
    return guesses / 2 * (1 / mean - 1)


def _mean(values: Sequence[float]) -> float:
    """The mean, NaN where there is nothing to average."""
    return float(np.mean(values)) if values else np.nan
