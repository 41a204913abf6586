"""Small players for tests of the page, and a server in a thread."""

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy, Player, RandomConsistent
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.web.opponent import Opponent
from wordle_rl.words.lists import WordLists

ANSWERS = ("abbey", "crane", "crept", "mound", "slate", "sleep", "steel")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted({*ANSWERS, "salet", "zonal"})))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))


def opponent_of(player: Player, rules: Rules | None = None) -> Opponent:
    return Opponent(
        knowledge=KNOWLEDGE,
        rules=rules or Rules(),
        rewards=RewardSet(components={"win": Win()}, weights={"win": 1.0}),
        secrets=ANSWERS,
        seat=lambda: ScriptedPlayer(player=player, draws=Draws(seed=0)),
    )


def load(player: str) -> Opponent:
    match player:
        case "entropy":
            return opponent_of(GreedyEntropy(KNOWLEDGE, opener="salet"))
        case "consistent":
            return opponent_of(RandomConsistent(KNOWLEDGE))
        case "hard":
            return opponent_of(RandomConsistent(KNOWLEDGE), Rules(hard_mode=True))
    raise ValueError("the model of this player is\ndamaged")
