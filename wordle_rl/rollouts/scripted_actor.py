"""A scripted player in the place of a policy, and its games as token records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from wordle_rl.game.players import Player, Teacher, pick
from wordle_rl.game.rules import Game, PlayedTurn, State
from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.sampling import Draws
from wordle_rl.prompts.parser import parse
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Reply
from wordle_rl.rollouts.records import TokenTurn


@dataclass(kw_only=True)
class ScriptedActor:
    """A scripted player. What it draws depends on its `draws`, game and turn alone.

    The text of a player that speaks is read as a model's; it has neither mistakes nor reasoning.
    """

    player: Player
    draws: Draws
    mistakes: Player | None = None  # sometimes guesses in the player's place
    slips: float = 0.0  # how often, 0..1
    careless: float = 0.0  # how often a Teacher guesses any word of its pool instead, 0..1
    reasoning: Reasoning | None = None  # writes a thought before each guess
    slipped: list[set[int]] = field(default_factory=list)  # per game: turns that were mistakes

    def __post_init__(self) -> None:
        if self.player.speaks and (self.mistakes or self.reasoning):
            raise ValueError(f"{self.player.name} cannot have mistakes or reasoning: it speaks")

    def start(self, states: Sequence[State]) -> list[bool]:
        self.slipped = [set() for _ in states]
        return [True] * len(states)

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        numbers = self.draws.uniforms(games, turn, 4)
        words = self.player.answer(states, numbers[:, 0])
        if self.player.speaks:
            return [Reply(text=text, parsed=parse(text)) for text in words]
        if self.careless:
            assert isinstance(self.player, Teacher)
            pool = self.player.pool
            for i, (which, _, _, careless) in enumerate(numbers.tolist()):
                if careless < self.careless:
                    words[i] = pool[pick(which, len(pool))]
        if self.mistakes is not None:
            instead = self.mistakes.answer(states, numbers[:, 0])
            for i, slip in enumerate(numbers[:, 1] < self.slips):
                if slip:
                    words[i] = instead[i]
                    self.slipped[games[i]].add(turn)
        if self.reasoning is None:
            return [Reply.of_guess(word) for word in words]
        replies = []
        for game, state, word, uniform in zip(games, states, words, numbers[:, 2], strict=True):
            # The thought before a mistake gives no reason for it.
            reasoned = None if turn in self.slipped[game] else word
            replies.append(Reply.of_guess(word, self.reasoning(state, reasoned, uniform)))
        return replies

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        return [True] * len(games)

    def leave(self, games: Sequence[int]) -> None:
        pass


def scripted_turns(game: Game, form: Form, slipped: Collection[int] = ()) -> list[TokenTurn]:
    """A scripted player's game as tokens, as if a policy had played it in this form.

    slipped: turns that were mistakes; they are not trained.
    """
    chat = form.chat
    turns: list[TokenTurn] = []
    for i, turn in enumerate(game.turns):
        if i == 0:
            prompt = form.opening(turn.state)
        else:
            prompt = form.reply(game.turns[i - 1], turn.state, last_id=chat.turn_end_id)
        # Encoded apart, so that the tokens of the guess do not depend on the thought before it.
        thought = chat.thought(turn.thought) if turn.thought else []
        ids = [*thought, *chat.answer(form.written(turn), begins=not thought)]
        drawn = Completion(ids=ids, logprobs=[0.0] * len(ids), stop=StopReason.STOP_TOKEN)
        fresh = form.fresh or i == 0
        turns.append(
            TokenTurn(prompt_ids=prompt, completion=drawn, trained=i not in slipped, fresh=fresh)
        )
    return turns
