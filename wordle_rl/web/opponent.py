"""One player at one table: plays a game, answers on any board, and says what else it might guess.

It is for games that people watch, one at a time. Use it from one thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy, Teacher, TreePlayer
from wordle_rl.game.rules import Game, PlayedTurn, Rules, State
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.play import Player as Seated
from wordle_rl.rollouts.talk import Talk
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.web.likeliest_words import (
    AnswerTree,
    ContextFull,
    Effort,
    WordChances,
    equal_chances,
    find_likeliest,
)

_SECONDS = 5.0  # that looking for the likeliest words may take
Stop = Callable[[], bool]  # asked again and again whether to end early


class Abandoned(Exception):
    """A game was left before its end, because nobody waits for it any more."""


@dataclass(frozen=True, kw_only=True)
class WatchedGame:
    """A finished game, with the tokens of a model that played it."""

    game: Game
    talks: list[Talk] = field(default_factory=list)  # its conversations; empty without a model


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a player answers on a board."""

    turn: PlayedTurn
    chances: WordChances | None  # None for a player that has no probabilities to show


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """A player with the word lists, rules and rewards that it plays by."""

    name: str
    knowledge: Knowledge
    rules: Rules
    rewards: RewardSet
    secrets: tuple[str, ...]  # of games, where nobody names one
    seat: Callable[[], Seated]  # a new player; a model's begins with an empty engine
    _trees: dict[bool, AnswerTree] = field(default_factory=dict)  # grown at the first use

    def play(self, secret: str, stop: Stop = lambda: False) -> WatchedGame:
        """Play a whole game. Raises Abandoned between two turns when `stop` says so."""

        def watch(_: Sequence[Game]) -> None:
            if stop():
                raise Abandoned

        player = self.seat()
        [game] = play(player, new_games([secret], self.knowledge.words, self.rules), watch=watch)
        talks = player.talks.get(0, []) if isinstance(player, ModelPlayer) else []
        return WatchedGame(game=game, talks=talks)

    def chances(
        self, watched: WatchedGame, number: int, stop: Stop = lambda: False
    ) -> WordChances | None:
        """What the player might have guessed at one turn of its game, from 0.

        A model's chances are those behind everything it had read and thought by then.
        """
        turn, player = watched.game.turns[number], self.seat()
        if isinstance(player, ModelPlayer):
            [talk] = [talk for talk in watched.talks if number in talk.answers]
            return self._model_chances(player, talk, number, turn, stop)
        return self._scripted_chances(player, turn)

    def ask(self, state: State, stop: Stop = lambda: False) -> Asked:
        """The player's answer on a board. Raises ContextFull, or ValueError for a tree's end."""
        player = self.seat()
        [game] = new_games(self.secrets[:1], self.knowledge.words, self.rules, [state])
        player({0: game}, state.turn)
        if not game.turns:
            raise ContextFull
        [turn] = game.turns
        if isinstance(player, ModelPlayer):
            chances = self._model_chances(player, player.talks[0][-1], 0, turn, stop)
        else:
            chances = self._scripted_chances(player, turn)
        return Asked(turn=turn, chances=chances)

    def _model_chances(
        self, player: ModelPlayer, talk: Talk, number: int, turn: PlayedTurn, stop: Stop
    ) -> WordChances:
        """The chances of a model's answer at one turn of a conversation."""
        part, chat = talk.answers[number], player.form.chat
        ids, length = talk.ids[part.start : part.stop], 0
        if thought := turn.thought:  # the shortest beginning that holds the whole thought
            lengths = range(1, len(ids) + 1)
            length = next(n for n in lengths if len(chat.tokenizer.decode(ids[:n])) >= len(thought))
        tree = self._grow_tree(player, begins=not thought)
        prompt, end = talk.ids[: part.start + length], time.monotonic() + _SECONDS
        effort = Effort(stop=lambda: stop() or time.monotonic() > end)
        return find_likeliest(player.engine, prompt, tree, effort=effort, also=turn.guess)

    def _grow_tree(self, player: ModelPlayer, *, begins: bool) -> AnswerTree:
        """The answers of all allowed words. begins: False behind a thought."""
        if begins not in self._trees:
            form = player.form
            self._trees[begins] = AnswerTree.grow(
                (word, form.chat.answer(form.write(word), begins=begins))
                for word in self.knowledge.words.allowed
            )
        return self._trees[begins]

    def _scripted_chances(self, seated: Seated, turn: PlayedTurn) -> WordChances | None:
        assert isinstance(seated, ScriptedPlayer)
        player = seated.player
        if isinstance(player, Teacher):
            pool: Sequence[str] = player.pool
            return equal_chances([pool[i] for i in map(int, player.choices(turn.state))])
        if isinstance(player, GreedyEntropy | TreePlayer) and turn.guess is not None:
            return equal_chances([turn.guess])
        return None
