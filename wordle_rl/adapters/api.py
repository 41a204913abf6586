"""Parts of the laboratory for programs with their own loop: boards, knowledge, rewards, prompts.

Programs import these functions from wordle_rl itself. Wrong input raises ValueError in one line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from wordle_rl.data.rows import read_feedback, read_word
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, Rules, State, TurnKind
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet, build_reward_set
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.words.lists import WordLists, load_words


def board(*clues: tuple[str, str], max_turns: int = 6) -> State:
    """The state of a game after guesses and their marks, such as ("crane", "x-✓xx").

    Without clues it is the empty board. Raises ValueError for what is no guess or no marks, and
    when no turn is left.
    """
    if len(clues) >= max_turns:
        raise ValueError(
            f"a board of {max_turns} turns must leave one of them, not have {len(clues)} clues"
        )
    history = []
    for guess, feedback in clues:
        word = read_word("guess", guess)
        history.append(Clue(word, read_feedback(word, feedback)))
    return State(clues=tuple(history), turn=len(history), max_turns=max_turns)


def build_knowledge(words: WordLists | None = None) -> Knowledge:
    """What clues say on these word lists: candidates, entropies, best guesses.

    words: None for the original lists. It holds 60 MB for those, so make it once. The first use on
    new lists computes a table and keeps it in a cache.
    """
    words = load_words() if words is None else words
    return Knowledge(words, feedback_table(words))


def build_rewards(name: str, knowledge: Knowledge, *settings: str) -> RewardSet:
    """The reward set conf/reward/<name>.yaml, such as phase2.

    settings: changes as on the command line, such as "reward.components.win.weight=5". Its method
    `reward` gives what a game earned, turn by turn and component by component.
    """
    return build_reward_set(_node("reward", name, settings), knowledge)


def build_prompt(name: str = "symbols", rules: Rules | None = None, *settings: str) -> PromptStyle:
    """The prompt style conf/prompt/<name>.yaml, which explains these rules.

    Its `system` text says how to play, `opening(state)` is the first message of a game, and
    `feedback(turn, state)` is the message after a turn. settings: as for build_rewards.
    """
    node = _node("prompt", name, settings)
    return instantiate("prompt", node, PromptStyle, game=rules or Rules())


def _node(group: str, name: str, settings: Sequence[str]) -> Any:
    config = compose_config("eval", [f"{group}={name}", *settings])
    return OmegaConf.to_container(config[group], resolve=True)


@dataclass(frozen=True, kw_only=True)
class GuessScore:
    """What a guess is worth on a board."""

    guess: str
    kind: TurnKind  # accepted, or why it would be refused
    fits: bool  # whether it could be the secret after all clues, in the word list or not
    candidate: bool  # whether it fits and is a possible secret
    bits: float  # expected information, over equally likely candidates
    best_bits: float  # the most that any allowed guess has
    candidates: int  # possible secrets before the guess
    expected_candidates: float  # and on average after it


def score_guess(
    guess: str, state: State, knowledge: Knowledge, *, rules: Rules | None = None
) -> GuessScore:
    """Judge one guess on a board.

    rules: by default the original game's, with the turns of the board. Raises ValueError for a
    guess that is not five letters a to z.
    """
    word = read_word("guess", guess)
    rules = rules or Rules(max_turns=state.max_turns)
    turn = Game(word, knowledge.words.allowed_set, rules, state=state).play(word)
    mask, fits = knowledge.candidates(state), knowledge.is_consistent(word, state)
    bits, num_left = knowledge.outlook(word, mask)
    return GuessScore(
        guess=word,
        kind=turn.kind,
        fits=fits,
        candidate=fits and word in knowledge.words.answer_index,
        bits=bits,
        best_bits=knowledge.best_entropy(state),
        candidates=int(mask.sum()),
        expected_candidates=num_left,
    )
