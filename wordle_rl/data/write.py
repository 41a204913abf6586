"""Makes rows of states and of a scripted player's games, for this package and for other trainers.

Prompts are lists of messages, as TRL wants them. The same seed gives the same rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.game.rules import Game, State
from wordle_rl.policy.sampling import Draws, Purpose, planned
from wordle_rl.rollouts.chat import entry
from wordle_rl.rollouts.forms import earlier_turns
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.rollouts.teacher import ScriptedPlayer

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """How rows are made. The recipe has style, form, rules, players and seed."""

    recipe: Recipe
    secrets: Sequence[str]
    split: str  # what these secrets are for: train, val, test or all

    def states(self, count: int) -> list[Row]:
        """Rows of states. The guesses before them are the recipe's history."""
        secrets, recipe = self._draw_secrets(count), self.recipe
        states = [State(max_turns=recipe.rules.max_turns)] * count
        if recipe.history is not None:
            states = recipe.history.states(
                secrets, range(count), seed=recipe.seed, step=0, max_turns=recipe.rules.max_turns
            )
        return [
            {
                "prompt": self._prompt(state),
                "secret": secret,
                "past_guesses": [{"guess": c.guess, "feedback": c.marks} for c in state.clues],
                "clues": len(state.clues),
                "split": self.split,
            }
            for secret, state in zip(secrets, states, strict=True)
        ]

    def games(self, count: int) -> list[Game]:
        """Games of the recipe's teacher from empty boards."""
        teacher = self.recipe.teacher
        assert teacher is not None
        player = ScriptedPlayer(player=teacher.player, draws=Draws(seed=self.recipe.seed))
        secrets, recipe = self._draw_secrets(count), self.recipe
        return play(player, new_games(secrets, recipe.words, recipe.rules))

    def game_rows(self, games: Sequence[Game]) -> list[Row]:
        """One row per game: the whole dialogue as messages."""
        return [
            {
                "messages": [*self._dialogue(game, len(game.turns) - 1), self._answer(game, -1)],
                "secret": game.secret,
                "won": game.won,
                "guesses": len(game.turns),
                "split": self.split,
            }
            for game in games
        ]

    def answer_rows(self, games: Sequence[Game]) -> list[Row]:
        """One row per guess: a prompt, and the answer as its completion."""
        return [
            {
                "prompt": self._dialogue(game, turn),
                "completion": [self._answer(game, turn)],
                "secret": game.secret,
                "turn": turn + 1,
                "split": self.split,
            }
            for game in games
            for turn in range(len(game.turns))
        ]

    def _draw_secrets(self, count: int) -> list[str]:
        return planned(self.secrets, self.recipe.seed, range(count), Purpose.DATA)

    def _prompt(self, state: State) -> list[Row]:
        """The messages before the first answer in a state."""
        style = self.recipe.style
        if self.recipe.rollout.form == "fresh":
            return [entry("system", style.system), entry("user", style.opening(state))]
        opening = style.opening(State(max_turns=state.max_turns))
        messages = [entry("system", style.system), entry("user", opening)]
        for turn, next_state in earlier_turns(state):
            messages.append(entry("assistant", style.write(turn.guess or "")))
            messages.append(entry("user", style.feedback(turn, next_state)))
        return messages

    def _dialogue(self, game: Game, turn: int) -> list[Row]:
        """The messages before a turn's answer in a finished game."""
        if self.recipe.rollout.form == "fresh":
            return self._prompt(game.turns[turn].state)
        messages = self._prompt(game.turns[0].state)
        for index, move in enumerate(game.turns[:turn]):
            next_state = game.turns[index + 1].state
            messages.append(self._answer(game, index))
            messages.append(entry("user", self.recipe.style.feedback(move, next_state)))
        return messages

    def _answer(self, game: Game, turn: int) -> Row:
        """A player's guess as the prompt asks for it."""
        guess = game.turns[turn].guess
        assert guess is not None  # the teachers that make rows always guess
        return entry("assistant", self.recipe.style.write(guess))
