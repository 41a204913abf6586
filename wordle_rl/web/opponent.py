"""The players of the page: who can be chosen, its games, and what else it might have guessed.

A player is loaded when it is first asked, and plays one game at a time. Use all this from one
thread only.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import MEANINGS, GreedyEntropy, Teacher, title
from wordle_rl.game.rules import Game, PlayedTurn, Rules, State
from wordle_rl.policy.models import EMBEDDED
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.play import Actor, ModelPlayer, list_answers, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.paths import CONF
from wordle_rl.web.likeliest_words import ContextFull, WordChances, equal_chances, find_likeliest

_MAX_WORDS = 12  # words left that are listed
_SECONDS = 5.0  # that looking for the likeliest words may take
Stop = Callable[[], bool]  # asked again and again whether to end early
SCRIPTED = {name: title(name) for name in MEANINGS}  # by their names in eval.py
START = "start of the run"  # its key
RIVALS = (START, "entropy", "mini")  # keys, the best one to compare with first
CHECKPOINTS = {"best": "best checkpoint", "last": "last checkpoint", "start": "start"}


class Abandoned(Exception):
    """A game was left before its end, because nobody waits for it any more."""


@dataclass(frozen=True, kw_only=True)
class WatchedGame:
    """A finished game, with the tokens of a model that played it."""

    game: Game
    talks: list[Talk] = field(default_factory=list)  # its conversations; empty without a model


@dataclass(kw_only=True)
class Opponent:
    """A player with the word lists, rules and rewards that it plays by."""

    knowledge: Knowledge
    rules: Rules
    rewards: RewardSet
    secrets: tuple[str, ...]  # of games, where nobody names one
    seat: Callable[[], Actor]  # a new player; a model's begins with an empty engine

    @cached_property
    def _solver(self) -> GreedyEntropy:
        return GreedyEntropy(self.knowledge, opener=None)

    def judge(self, state: State, guess: str | None) -> dict[str, Any]:
        """What can be computed of a board, and of a guess on it; None stands for no guess.

        candidates: answers that fit; some: the first of them. best: a guess of the most bits.
        bits: of the guess, expected over the candidates. fits: whether it fits all clues.
        """
        knowledge, words = self.knowledge, self.knowledge.words.answers
        mask = knowledge.candidates(state)
        count = int(mask.sum())
        return {
            "candidates": count,
            "some": [words[i] for i in mask.nonzero()[0][:_MAX_WORDS]],
            "best": self._solver.choose(state) if count else None,
            "best_bits": knowledge.best_entropy(state),
            "bits": None if guess is None else knowledge.entropy(guess, mask),
            "fits": None if guess is None else knowledge.is_consistent(guess, state),
        }

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
        """What the player might have guessed at one turn of its game, after all it had read."""
        turn, player = watched.game.turns[number], self.seat()
        if isinstance(player, ModelPlayer):
            [talk] = [talk for talk in watched.talks if number in talk.answers]
            return self._model_chances(player, talk, number, turn, stop)
        return self._scripted_chances(player, turn)

    def ask(
        self, state: State, stop: Stop = lambda: False
    ) -> tuple[PlayedTurn, WordChances | None]:
        """The player's answer on a board, and its chances if it has any. Raises ContextFull."""
        player = self.seat()
        [game] = new_games(self.secrets[:1], self.knowledge.words, self.rules, [state])
        player({0: game}, state.turn)
        if not game.turns:
            raise ContextFull
        [turn] = game.turns
        if isinstance(player, ModelPlayer):
            return turn, self._model_chances(player, player.talks[0][-1], 0, turn, stop)
        return turn, self._scripted_chances(player, turn)

    def _model_chances(
        self, player: ModelPlayer, talk: Talk, number: int, turn: PlayedTurn, stop: Stop
    ) -> WordChances:
        """The chances of a model's answer at one turn of a conversation."""
        part, chat = talk.answers[number], player.form.chat
        ids, length = talk.ids[part.start : part.stop], 0
        if thought := turn.thought:  # the shortest beginning that holds the whole thought
            lengths = range(1, len(ids) + 1)
            length = next(n for n in lengths if len(chat.read(ids[:n])) >= len(thought))
        answers = list_answers(player.form, self.knowledge.words.allowed_set, begins=not thought)
        prompt, end = talk.ids[: part.start + length], time.monotonic() + _SECONDS

        def late() -> bool:
            return stop() or time.monotonic() > end

        return find_likeliest(player.engine, prompt, answers, stop=late, also=turn.guess)

    def _scripted_chances(self, actor: Actor, turn: PlayedTurn) -> WordChances | None:
        assert isinstance(actor, ScriptedPlayer)
        player = actor.player
        if isinstance(player, Teacher):
            pool: Sequence[str] = player.pool
            return equal_chances([pool[i] for i in map(int, player.choices(turn.state))])
        if isinstance(player, GreedyEntropy) and turn.guess is not None:
            return equal_chances([turn.guess])
        return None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A player before it is loaded."""

    label: str  # its name for people
    settings: dict[str, str]  # of load_player: model, player, or run and checkpoint
    given: Sequence[str] = ()  # settings of eval.py
    before: str | None = None  # key of what it was before training, to watch beside it


def list_choices(
    *,
    model: str | None,
    player: str | None,
    run: RunFolder | None,
    checkpoint: str,
    given: Sequence[str] = (),
) -> dict[str, Choice]:
    """Everybody that can be chosen, first the run's checkpoint, the model or the player named.

    given: settings of eval.py for that first one, and for the start of its run.
    """
    choices: dict[str, Choice] = {}
    if run is not None:  # its checkpoint, and its start to compare it with
        for name in dict.fromkeys([checkpoint, "start"]):
            choices[f"{name} of the run"] = Choice(
                label=f"{CHECKPOINTS[name]} of {given_name(run.path.name)}",
                settings={"run": str(run.path), "checkpoint": name},
                before=None if name == "start" else START,
            )
    names = {path.parent.name for path in EMBEDDED.glob("*/config.json")}
    models = sorted(names & {path.stem for path in (CONF / "model").glob("*.yaml")})
    for name in [*models, *([model] if model else [])]:
        choices[name] = Choice(label=f"model {name}", settings={"model": name})
    for name, label in SCRIPTED.items():
        choices[name] = Choice(label=label, settings={"player": name})
    first = next(iter(choices)) if run else player or model or "mini"
    for key in {first, START} & {*choices}:
        label = " ".join([choices[key].label, *given])
        choices[key] = replace(choices[key], label=label, given=given)
    return {first: choices[first], **choices}
