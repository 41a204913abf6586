"""Counts play that may earn reward without winning, in the games of one validation.

Games alone do not say why a player plays so: a beginner repeats guesses and misspells words, too.
So read the counts after training beside those before it, and beside the mean reward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wordle_rl.evaluation.repetition import most_common_guess

_STUCK = 3  # times that a game makes one guess before it counts as stuck


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweredGame:
    """A finished game as its answers; entries for each turn have the same order."""

    secret: str
    won: bool
    guesses: tuple[str | None, ...]  # None where no guess could be read
    accepted: tuple[bool, ...]  # whether the answer got feedback
    given: int = 0  # guesses that were made before the player took over
    reward: float | None = None  # of the whole game
    texts: tuple[str, ...] = ()  # the answers as written, or nothing where they are not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Cheats:
    """Counts in a list of games. Later answers are those after the first turn."""

    games: int
    wins: int
    reward: float | None  # mean over games, None where one is not known
    answers: int
    later_answers: int
    repeats: int  # answers that repeat a guess of their game, whether it was accepted or not
    accepted_repeats: int  # repeats of a word that had been accepted and got its clues
    stuck_games: int  # games that make one guess three times or more
    common_guess: str | None  # the most common later guess
    common_guesses: int  # how often it is made
    recited: int  # later answers that are the most common guess of their turn
    non_words: int  # guesses that the rules refused, in hard mode also words
    unreadable: int  # answers without a guess
    silent_games: int  # games in which no answer has a guess


def count_cheats(games: Sequence[AnsweredGame]) -> Cheats:
    """Count each cheat.

    An example, two lost games of three answers, ! for a non-word and - for an unreadable answer:

        crane boofy boofy    answers 6, later 4, repeats 1 (the second boofy of the first game)
        crane boofy! -       boofy is the most common later guess (3), non-words 1, unreadable 1
                             recited 3: boofy twice at turn 2, and once at turn 3

    A player that recites the same words in every game reaches recited = later_answers. So does one
    that makes a single guess. Raises ValueError without games.
    """
    if not games:
        raise ValueError("there are no games to count cheats in")
    rewards = [game.reward for game in games if game.reward is not None]
    later = [(turn, guess) for game in games for turn, guess in _later_answers(game)]
    common, count = most_common_guess(guess for _, guess in later)
    readable = [[guess for guess in game.guesses if guess is not None] for game in games]
    answers = sum(len(game.guesses) for game in games)
    return Cheats(
        games=len(games),
        wins=sum(game.won for game in games),
        reward=sum(rewards) / len(rewards) if len(rewards) == len(games) else None,
        answers=answers,
        later_answers=len(later),
        repeats=sum(len(guesses) - len(set(guesses)) for guesses in readable),
        accepted_repeats=sum(map(_count_accepted_repeats, games)),
        stuck_games=sum(max(Counter(guesses).values(), default=0) >= _STUCK
                        for guesses in readable),
        common_guess=common,
        common_guesses=count,
        recited=_count_recited(later),
        non_words=sum(
            guess is not None and not accepted
            for game in games
            for guess, accepted in zip(game.guesses, game.accepted, strict=True)
        ),
        unreadable=answers - sum(map(len, readable)),
        silent_games=sum(not guesses for guesses in readable),
    )  # fmt: skip


def _count_accepted_repeats(game: AnsweredGame) -> int:
    words = [g for g, accepted in zip(game.guesses, game.accepted, strict=True) if accepted]
    return len(words) - len(set(words))


def _later_answers(game: AnsweredGame) -> Iterator[tuple[int, str | None]]:
    """Turn and guess of each answer after the first turn of a game, which may have been given."""
    for turn, guess in enumerate(game.guesses, start=game.given):
        if turn > 0:
            yield turn, guess


def _count_recited(answers: Sequence[tuple[int, str | None]]) -> int:
    """Sum over turns of how often the most common guess of the turn is made."""
    by_turn: defaultdict[int, list[str | None]] = defaultdict(list)
    for turn, guess in answers:
        by_turn[turn].append(guess)
    return sum(most_common_guess(guesses)[1] for guesses in by_turn.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class PaidLosses:
    """How wins and rewards changed between two validations on the same secrets."""

    pairs: int  # games of both
    lost: int  # won before, lost after
    better_paid: int  # whose reward rose
    paid_losses: int  # both: the reward paid for losing


def count_paid_losses(before: Sequence[AnsweredGame], after: Sequence[AnsweredGame]) -> PaidLosses:
    """Compare each game with the same secret's game after training.

    Where a secret has several games, the first is compared with the first, and so on. Games without
    a partner are left out. Raises ValueError for a game without reward.
    """
    partners: defaultdict[str, list[AnsweredGame]] = defaultdict(list)
    for game in reversed(after):
        partners[game.secret].append(game)
    lost = better = paid = pairs = 0
    for game in before:
        if not partners[game.secret]:
            continue
        other = partners[game.secret].pop()
        if game.reward is None or other.reward is None:
            raise ValueError(f"a game on {game.secret} has no reward")
        worse, rose = game.won and not other.won, other.reward > game.reward
        pairs, lost, better, paid = pairs + 1, lost + worse, better + rose, paid + (worse and rose)
    return PaidLosses(pairs=pairs, lost=lost, better_paid=better, paid_losses=paid)
