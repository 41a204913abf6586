"""The sets of rewards in conf/, on a small list of words, for tests of what they guarantee."""

from functools import cache
from itertools import product
from typing import Any

from omegaconf import OmegaConf

from tests.helpers.configs import OPTIONS, composed
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, GameStatus, Rules
from wordle_rl.prompts.parser import parse, parse_call
from wordle_rl.rewards.scoring import RewardSet, build_reward_set
from wordle_rl.words.lists import WordLists

ANSWERS = ("batch", "catch", "crane", "crept", "hatch", "latch", "match", "patch", "sleep", "watch")
PROBES = ("blimp", "chimp", "fuzzy", "jazzy", "lymph", "oomph", "puppy")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted((*ANSWERS, *PROBES))))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
SECRET = "match"

POLICIES = [
    {"invalid": invalid, "unparsable": unparsable, "max_retries": retries}
    for invalid, unparsable, retries in product(
        ("accept", "lose_turn", "end_game", "retry"), ("lose_turn", "end_game", "retry"), (1, 9)
    )
    if retries == 1 or "retry" in (invalid, unparsable)  # else nothing is ever asked for again
]


def node(group: str, option: str) -> Any:
    """What a file of conf/ holds, with what it takes from others."""
    return OmegaConf.to_container(composed(name=f"{group}/{option}")[group], resolve=True)


UNLAWFUL = "phase1 without win or laws"  # as an earlier project had it


@cache
def shipped(name: str, form: str = "conversation") -> RewardSet:
    """The set of a file in conf/reward, or the UNLAWFUL one."""
    settings = node("reward", name.partition(" ")[0])
    if name == UNLAWFUL:
        settings["lawful"] = False
        del settings["components"]["win"]
    return build_reward_set(settings, KNOWLEDGE, form)


SETS = {name: shipped(name) for name in [*OPTIONS["reward"], UNLAWFUL]}
LAWFUL = {name: rewards for name, rewards in SETS.items() if rewards.lawful}


def play(
    texts: list[str],
    max_turns: int = 6,
    secret: str = SECRET,
    tokens: int = 0,
    form: str = "conversation",
    **policy: Any,
) -> Game:
    """A game with these answers, as far as it takes them."""
    game = Game(secret, WORDS.allowed_set, Rules(max_turns=max_turns, **policy))
    for text in texts:
        parsed = (parse_call if form == "tool" else parse)(text)
        if game.status is GameStatus.PLAYING:
            game.play(parsed.guess, text=text, reason=parsed.reason, tokens=tokens)
    return game


def guesses(*words: str) -> list[str]:
    return [f"<guess>{word}</guess>" for word in words]
