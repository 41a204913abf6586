"""The summary of a player's finished games, and the record of one game.

Bits are expected values: what a guess tells on average over the candidates. How much the actual
feedback told is mostly luck, so it is not counted.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from wordle_rl.evaluation.habits import discoveries, later_guesses
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.results import (
    count_results,
    given_guesses,
    needed_guesses,
    passes,
    results_by_depth,
)
from wordle_rl.evaluation.skill import skills, summary
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, GameStatus, Rules, marks_of
from wordle_rl.rewards.scoring import GameReward, RewardSet, reward_of_guess

_COMMON = 10  # how many guesses are listed as the most common


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
    """The summary of one player on one split, ready for JSON. Raises ValueError without games.

    seconds: time that all games took together. regret, rewards: None leaves them out.
    Shares are in 0..1, and None where there is nothing to divide by. Intervals are 95 %.

    - An unfinished game counts as lost. out_of_context: games that the model's context cut off.
    - mean_guesses: mean turns of the won games. mean_guesses_with_losses: mean over all games, in
      which a lost game counts as max_turns + 1, which is 7 at six turns.
    - format_compliance, non_words, repeats and thinks: shares of all turns.
    - thought_characters: mean over the turns with a thought. tokens_per_...: of sampled tokens.
    - distinct_openers: number of different first guesses, divided by the number of games.
    - by_depth: results by the number of given guesses, if there were any. pass_at: pass@k.
    - What evaluation.skill measures, over accepted guesses, and evaluation.habits, over legal ones.
    """
    if not games:
        raise ValueError(f"{player} on {split}: there are no games to summarise")
    turns, secrets = skills(games, knowledge), [game.secret for game in games]
    scores = [rewards.reward(game) for game in games] if rewards else []
    return {
        "player": player,
        "split": split,
        "games": len(games),
        "secrets": len(set(secrets)),
        "unfinished": sum(game.status is GameStatus.PLAYING for game in games),
        "out_of_context": sum(game.out_of_context for game in games),
        **count_results(needed_guesses(games), secrets, rules.max_turns),
        **_play(games),
        **({"by_depth": results_by_depth(games)} if any(map(given_guesses, games)) else {}),
        **({"pass_at": estimates} if (estimates := passes(games)) else {}),
        **summary(turns),
        **discoveries(games, knowledge),
        "regret": None if regret is None else regret.mean(games),
        **(_rewards(scores) if scores else {}),
        "rules": asdict(rules),
        "seconds": seconds,
        "games_per_second": len(games) / seconds if seconds else None,
    }


def _play(games: Sequence[Game]) -> dict[str, Any]:
    answers = [(game, turn) for game in games for turn in game.turns]
    guesses = [(game, turn.guess) for game, turn in answers if turn.guess is not None]
    # The list decides, because rules that accept any five letters do not call them non-words.
    non_words = sum(guess not in game.allowed for game, guess in guesses)
    thoughts = [len(turn.thought) for _, turn in answers if turn.thought]
    tokens = sum(turn.tokens for _, turn in answers)
    return {
        "turns": len(answers),
        "tokens_per_game": tokens / len(games),
        "tokens_per_answer": _share(tokens, len(answers)),
        "thinks": _share(len(thoughts), len(answers)),
        "thought_characters": _share(sum(thoughts), len(thoughts)),
        "format_compliance": _share(len(guesses), len(answers)),
        "non_words": _share(non_words, len(answers)),
        "repeats": _share(sum(turn.repeat for _, turn in answers), len(answers)),
        "distinct_openers": distinct_openers(games),
        "most_common_guesses": [list(item) for item in most_common_guesses(games)],
        **later_guesses(games),
    }


def most_common_guesses(games: Sequence[Game]) -> list[tuple[str, int]]:
    """The ten most common guesses that could be read, with their counts, most common first."""
    guesses = (turn.guess for game in games for turn in game.turns)
    return Counter(guess for guess in guesses if guess is not None).most_common(_COMMON)


def distinct_openers(games: Sequence[Game]) -> float | None:
    """Number of different first guesses by number of games; None without games.

    Games that began with clues do not count.
    """
    turns = [game.turns[0] for game in games if game.turns and not game.turns[0].state.clues]
    openers = {turn.guess for turn in turns if turn.guess is not None}
    return _share(len(openers), len(turns))


def reward_means(rewards: Sequence[GameReward]) -> dict[str, float]:
    """Each component's mean over games of its sum over a game's turns."""
    sums: defaultdict[str, float] = defaultdict(float)
    for reward in rewards:
        for turn in reward.turns:
            for name, value in turn.items():
                sums[name] += value
    return {name: value / len(rewards) for name, value in sums.items()}


def _rewards(scores: Sequence[GameReward]) -> dict[str, Any]:
    mean = float(np.mean([score.total for score in scores]))
    guess = sum(reward_of_guess(scores).values())
    return {"reward": mean, "reward_parts": reward_means(scores), "guess_reward": guess}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def game_record(
    game: Game, reward: GameReward | None = None, advantage: float | None = None
) -> dict[str, Any]:
    """One game as a line of games.jsonl; lists have an entry per turn, lost turns included."""
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
