"""Solved examples for prompts, from games of the player that guesses any answer that fits."""

from __future__ import annotations

from collections.abc import Sequence

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import RandomConsistent
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws, Purpose, Stream, generator
from wordle_rl.rollouts.forms import Shot
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.scripted_actor import ScriptedActor


def draw_shots(
    count: int, secrets: Sequence[str], knowledge: Knowledge, rules: Rules, seed: int
) -> tuple[Shot, ...]:
    """One example per game, each on another secret.

    They have 0, 1, 2, ... clues, as many as a game has turns, and then 0 again. A game that was won
    sooner gives its last guess. Raises ValueError if there are fewer secrets.
    """
    if count > len(secrets):
        raise ValueError(
            f"shots must be at most {len(secrets)}, the number of training secrets, not {count}"
        )
    shuffle = generator(Purpose.SHOTS, seed=seed)
    order: list[int] = shuffle.permutation(len(secrets))[:count].tolist()
    draws = Draws(seed=seed, stream=Stream.SHOTS)
    player = ScriptedActor(player=RandomConsistent(knowledge, "answers"), draws=draws)
    chosen = [secrets[i] for i in order]
    games = play(player, new_games(chosen, knowledge.words, rules))
    shots = []
    for number, game in enumerate(games):
        turn = game.turns[min(number % rules.max_turns, len(game.turns) - 1)]
        assert turn.guess is not None
        shots.append(Shot(state=turn.state, guess=turn.guess))
    return tuple(shots)
