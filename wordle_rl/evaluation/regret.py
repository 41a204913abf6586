"""How many more guesses a player needs than the best player on the same secrets.

The best player is greedy entropy from SALET by the plain rules, which needs 0.012 guesses more than
the optimum on the original lists.
"""

from collections.abc import Sequence

from wordle_rl.evaluation.results import needed_guesses
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy
from wordle_rl.game.rules import Game, GameStatus, Rules


def best_player(knowledge: Knowledge) -> GreedyEntropy:
    """Greedy entropy that opens with SALET if it is allowed, else with the best first guess."""
    opener = "salet" if "salet" in knowledge.words.allowed_set else None
    return GreedyEntropy(knowledge, opener=opener)


class Regret:
    """Compares games with those of the best player, whose results are computed once per secret.

    max_turns: of the games; a lost game counts as max_turns + 1 guesses, for both players.
    """

    def __init__(self, knowledge: Knowledge, max_turns: int) -> None:
        self._words, self._needed = knowledge.words, dict[str, int]()
        self._rules = Rules(max_turns=max_turns, invalid="accept")
        self._player = best_player(knowledge)

    def needed(self, secret: str) -> int:
        """Guesses of the best player, max_turns + 1 when it loses."""
        if secret not in self._needed:
            game = Game(secret, self._words.allowed_set, self._rules)
            while game.status is GameStatus.PLAYING:
                game.play(self._player.choose(game.state))
            [self._needed[secret]] = needed_guesses([game])
        return self._needed[secret]

    def mean(self, games: Sequence[Game]) -> float | None:
        """Mean number of guesses more than the best player's; below 0 for a luckier player.

        Over finished games on answers that began with an empty board. None without any.
        """
        subset = [
            game
            for game in games
            if game.status is not GameStatus.PLAYING
            and game.turns
            and game.turns[0].state.turn == 0
            and game.secret in self._words.answer_index
        ]
        pairs = zip(needed_guesses(subset), subset, strict=True)
        excess = [guesses - self.needed(game.secret) for guesses, game in pairs]
        return sum(excess) / len(excess) if excess else None
