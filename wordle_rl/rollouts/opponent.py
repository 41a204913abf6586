"""One player at one table: plays a game, answers on any board, and says what else it might guess.

It is for games that people watch, one at a time. Use it from one thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy, Teacher, TreePlayer
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.prompts.parser import ParseFailure
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.likeliest_words import (
    AnswerTree,
    ContextFull,
    Effort,
    WordChances,
    equal_chances,
    find_likeliest,
)
from wordle_rl.rollouts.play import Actor, Reply, new_games, play
from wordle_rl.rollouts.policy_actor import PolicyActor
from wordle_rl.rollouts.records import TokenTurn, isolate_last_turn
from wordle_rl.rollouts.scripted_actor import ScriptedActor

_SECONDS = 5.0  # that looking for the likeliest words may take
Stop = Callable[[], bool]  # asked again and again whether to end early


class Abandoned(Exception):
    """A game was left before its end, because nobody waits for it any more."""


@dataclass(frozen=True, kw_only=True)
class WatchedGame:
    """A finished game, with the tokens of a model that played it."""

    game: Game
    tokens: list[TokenTurn] = field(default_factory=list)  # [K] by turn; empty without a model


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a player answers on a board."""

    reply: Reply
    chances: WordChances | None  # None for a player that has no probabilities to show

    @property
    def guess(self) -> str | None:
        """The guess of the answer; None where it has none, or a limit cut it off."""
        return self.reply.parsed.guess if self.reply.complete else None

    @property
    def reason(self) -> str | None:
        """Why there is no guess."""
        return self.reply.parsed.reason if self.reply.complete else ParseFailure.TRUNCATED


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """A player with the word lists, rules and rewards that it plays by."""

    name: str
    knowledge: Knowledge
    rules: Rules
    rewards: RewardSet
    secrets: tuple[str, ...]  # of games, where nobody names one
    new_actor: Callable[[], Actor]  # a model's begins with an empty engine
    _trees: dict[bool, AnswerTree] = field(default_factory=dict)  # grown at the first use

    def play(self, secret: str, stop: Stop = lambda: False) -> WatchedGame:
        """Play a whole game. Raises Abandoned between two turns when `stop` says so."""

        def watch(_: Sequence[Game]) -> None:
            if stop():
                raise Abandoned

        actor = self.new_actor()
        [game] = play(actor, new_games([secret], self.knowledge.words, self.rules), watch=watch)
        tokens = actor.turns[0] if isinstance(actor, PolicyActor) else []
        return WatchedGame(game=game, tokens=tokens)

    def chances(
        self, watched: WatchedGame, number: int, stop: Stop = lambda: False
    ) -> WordChances | None:
        """What the player might have guessed at one turn of its game, from 0.

        A model's chances are those behind everything it had read and thought by then.
        """
        turn, actor = watched.game.turns[number], self.new_actor()
        if isinstance(actor, PolicyActor):
            turns = watched.tokens[: number + 1]
            return self._model_chances(actor, turns, (turn.guess, turn.thought), stop)
        return self._scripted_chances(actor, turn.state, turn.guess)

    def ask(self, state: State, stop: Stop = lambda: False) -> Asked:
        """The player's answer on a board. Raises ContextFull, or ValueError for a tree's end."""
        actor = self.new_actor()
        if not actor.start([state])[0]:
            raise ContextFull
        [reply] = actor.answer([0], [state], state.turn)
        actor.leave([0])
        if isinstance(actor, PolicyActor):
            said = reply.parsed.guess, reply.parsed.thought
            chances = self._model_chances(actor, actor.turns[0], said, stop)
        else:
            chances = self._scripted_chances(actor, state, reply.parsed.guess)
        return Asked(reply=reply, chances=chances)

    def _model_chances(
        self, actor: PolicyActor, turns: list[TokenTurn], said: tuple[str | None, str], stop: Stop
    ) -> WordChances:
        """The chances of a model's last answer in these turns. said: its guess and its thought."""
        guess, thought = said
        last, chat = isolate_last_turn(turns), actor.form.chat
        ids = last.completion.ids
        length = 0
        if thought:  # the shortest beginning of the answer that holds the whole thought
            lengths = range(1, len(ids) + 1)
            length = next(n for n in lengths if len(chat.tokenizer.decode(ids[:n])) >= len(thought))
        tree = self._grow_tree(actor, begins=not thought)
        prompt, end = [*last.prompt_ids, *ids[:length]], time.monotonic() + _SECONDS
        effort = Effort(stop=lambda: stop() or time.monotonic() > end)
        return find_likeliest(actor.engine, prompt, tree, effort=effort, also=guess)

    def _grow_tree(self, actor: PolicyActor, *, begins: bool) -> AnswerTree:
        """The answers of all allowed words. begins: False behind a thought."""
        if begins not in self._trees:
            form = actor.form
            self._trees[begins] = AnswerTree.grow(
                (word, form.chat.answer(form.write(word), begins=begins))
                for word in self.knowledge.words.allowed
            )
        return self._trees[begins]

    def _scripted_chances(
        self, actor: Actor, state: State, guess: str | None
    ) -> WordChances | None:
        assert isinstance(actor, ScriptedActor)
        player = actor.player
        if isinstance(player, Teacher):
            pool: Sequence[str] = player.pool
            return equal_chances([pool[i] for i in map(int, player.choices(state))])
        if isinstance(player, GreedyEntropy | TreePlayer) and guess is not None:
            return equal_chances([guess])
        return None
