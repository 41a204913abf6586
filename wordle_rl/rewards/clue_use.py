"""Reward for a guess that uses all earlier clues of the game, letter by letter.

Repeated letters: the clues bound how many copies of a letter the secret has. A mark "in place" or
"elsewhere" counts one known copy. A mark "absent" says that there are no more copies than the same
guess has marked otherwise. After SLEEP against CREPT the secret has exactly one E: in a later guess
the first E is a known letter, a second one is an absent letter.
"""

from dataclasses import dataclass

from wordle_rl.game.knowledge import LetterFacts, letter_facts
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.words.lists import WORD_LENGTH

# In twentieths, so that sums are exact.
KEPT, KNOWN, NEW, WRONG_PLACE, ABSENT = 4, 2, 1, -4, -10
_UNIT = 20


@dataclass(frozen=True, kw_only=True)
class ClueUse:
    """Per letter: +0.2 keeps a confirmed place, +0.1 known letter in a place not tried yet,
    +0.05 new letter, -0.2 known letter where it cannot be, -0.5 known-absent letter.

    A letter counts once for each copy in the guess: first copies at confirmed places, then at
    possible places, then at impossible ones, each from the left. A copy beyond the most that the
    secret can have is absent. A copy beyond the known ones counts as a new letter. In a first
    guess every letter is new. 0 when no guess could be read.

    A known letter cannot be

    - where it was marked "elsewhere" or "absent",
    - where another letter is confirmed,
    - at any other place once all its copies are confirmed.
    """

    range = (WORD_LENGTH * ABSENT / _UNIT, WORD_LENGTH * KEPT / _UNIT)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is None:
            return 0.0
        facts = letter_facts(turn.state.clues)
        return sum(_letter(facts, turn.guess, letter) for letter in set(turn.guess)) / _UNIT


def _letter(facts: LetterFacts, guess: str, letter: str) -> int:
    """The reward of all copies of a letter in the guess, in twentieths."""
    places = [i for i in range(WORD_LENGTH) if guess[i] == letter]
    hits = [i for i in places if facts.placed.get(i) == letter]
    rest = [i for i in places if i not in hits]
    misses = [i for i in rest if i in facts.placed or letter in facts.excluded.get(i, ())]
    least, most = facts.at_least.get(letter, 0), facts.at_most.get(letter, WORD_LENGTH)
    num_placed = sum(other == letter for other in facts.placed.values())
    score = KEPT * len(hits)
    others = [i for i in rest if i not in misses] + misses
    for nth, place in enumerate(others, start=1):
        if len(hits) + nth > most:
            score += ABSENT
        elif least == 0:
            score += NEW
        elif place in misses or num_placed + nth > most:
            score += WRONG_PLACE
        else:
            score += KNOWN if num_placed + nth <= least else NEW
    return score
