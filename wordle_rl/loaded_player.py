"""A model or a scripted player, loaded for a program with its own loop.

It plays exactly as in eval.py, with the same settings. Programs import load_player from wordle_rl.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

from wordle_rl.api import compose_config
from wordle_rl.build_parts import build_reward_set
from wordle_rl.contestants import (
    Contestant,
    Tournament,
    build_contestants,
    build_player,
    check_opener,
)
from wordle_rl.evaluate import add_run, build_tournament, read_settings
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.play import Reply, new_games, play
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits


@dataclass(frozen=True, kw_only=True)
class LoadedPlayer:
    """A player, with the words, rules, prompt and rewards that it plays by."""

    splits: Splits  # training, validation and test secrets
    tournament: Tournament
    contestant: Contestant

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.contestant.name

    @property
    def lineage(self) -> str | None:
        """How a model was made, in one line; None for a scripted player."""
        return self.contestant.lineage

    @property
    def words(self) -> WordLists:
        return self.tournament.knowledge.words

    @property
    def knowledge(self) -> Knowledge:
        return self.tournament.knowledge

    @property
    def rules(self) -> Rules:
        return self.tournament.rules

    @property
    def rewards(self) -> RewardSet:
        """What its games earn, such as player.rewards.score(game).total."""
        return self.contestant.rewards

    @property
    def style(self) -> PromptStyle:
        """The prompt that a model gets. A scripted player reads the board itself."""
        return self.tournament.style

    def play(
        self, secrets: Sequence[str], *, starts: Sequence[State] | None = None, first: int = 0
    ) -> list[Game]:
        """Play a game on each secret to its end, many side by side. Returns them in this order.

        starts: the board that each game begins with, None for empty boards. first: number of the
        first game. Games with other numbers draw other random numbers, so first=len(secrets) plays
        the same secrets a second time.
        """
        for secret in secrets:
            if self.rules.invalid != "accept" and secret not in self.words.allowed_set:
                raise ValueError(f"secrets must be allowed words in lower case, not {secret!r}")
        games = new_games(secrets, self.words, self.rules, starts)
        most = self.contestant.games_at_once
        for start in range(0, len(games), most):
            play(self.contestant.actor(first + start), games[start : start + most])
        return games

    def answers(self, states: Sequence[State], *, first: int = 0) -> list[Reply | None]:
        """One answer on each board: its text, and what was read from it.

        None where a board leaves no room for an answer in the model's context. first: as in play.
        """
        replies: list[Reply | None] = [None] * len(states)
        most = self.contestant.games_at_once
        for start in range(0, len(states), most):
            batch = states[start : start + most]
            actor = self.contestant.actor(first + start)
            begun = [i for i, fits in enumerate(actor.start(batch)) if fits]
            for turn in sorted({batch[i].turn for i in begun}):
                games = [i for i in begun if batch[i].turn == turn]
                drawn = actor.answer(games, [batch[i] for i in games], turn)
                for i, reply in zip(games, drawn, strict=True):
                    replies[start + i] = reply
            actor.leave(begun)
        return replies

    def guesses(self, states: Sequence[State], *, first: int = 0) -> list[str | None]:
        """One guess on each board. None where no guess could be read or the answer was cut off."""
        return [
            reply.parsed.guess if reply is not None and reply.complete else None
            for reply in self.answers(states, first=first)
        ]


def load_player(
    *,
    run: str | None = None,
    model: str | None = None,
    player: str | None = None,
    settings: Sequence[str] = (),
) -> LoadedPlayer:
    """Load the model of a run, another model, or a scripted player; give exactly one of them.

    run: a run folder, or latest. model: an option of conf/model/, such as micro. player: a scripted
    player, such as entropy. settings: what python eval.py accepts, such as "checkpoint=last",
    "sampling=default", "rules=hard", "words.test=100". Without sampling=default, models play
    greedily. Only a run or a model imports torch or MLX. Raises ValueError in one line. Lines
    about precision and threads go to standard error.
    """
    kinds = {"run": run, "model": model, "player": player}
    chosen = [f"{kind}={value}" for kind, value in kinds.items() if value is not None]
    if len(chosen) != 1:
        had = " and ".join(chosen) or "none"
        raise ConfigError(f"give one of run, model and player, not {had}")
    given = [*chosen, *settings]
    config = add_run(compose_config("eval", given), given)
    wanted = read_settings(config)
    tournament, splits = build_tournament(config, wanted)
    knowledge = tournament.knowledge
    check_opener(wanted, knowledge.words)
    if wanted.opener is not None and player != "entropy":
        raise ConfigError("opener is for player=entropy: give other players a board with its clue")
    form = wanted.form if player is None else "conversation"
    rewards = build_reward_set(config["reward"], knowledge.words, knowledge, form)
    scripted = build_player(wanted, knowledge)
    if scripted is not None:
        contestant = tournament.scripted(scripted, rewards)
    else:
        with redirect_stdout(sys.stderr):
            contestant = build_contestants(config, tournament, splits, rewards)[0][0]
    return LoadedPlayer(splits=splits, tournament=tournament, contestant=contestant)
