"""Plays many games at once, turn by turn, with a model or a scripted player.

Training, validation and evaluation use the same loop. Only the player differs.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Decoder
from wordle_rl.game.rules import Game, GameStatus, Rules, State
from wordle_rl.policy.batch import ran_out_of_memory
from wordle_rl.policy.engine import Engine, StopReason
from wordle_rl.policy.grammar import AnswerList
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.likeliest import complete_likeliest
from wordle_rl.rollouts.talk import Talk
from wordle_rl.words.lists import WordLists

# Plays one answer in each of these games, a mapping from number to game. The second argument says
# how many answers came before. It forfeits games that leave no room for an answer.
Actor = Callable[[Mapping[int, Game], int], None]
S = TypeVar("S")  # says where games begin
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Where the games on one secret of a step begin."""

    group: int  # number of the secret within the step
    secret: str
    state: State


def begin_games(starts: Iterable[Start], words: WordLists, rules: Rules) -> list[Game]:
    """Make one game from each start."""
    return [Game(start.secret, words.allowed_set, rules, state=start.state) for start in starts]


def new_games(
    secrets: Sequence[str], words: WordLists, rules: Rules, starts: Sequence[State] | None = None
) -> list[Game]:
    """Make one game per secret. starts: the state each one begins in, None for empty boards."""
    states = [State()] * len(secrets) if starts is None else starts
    return [
        Game(secret, words.allowed_set, rules, state=state)
        for secret, state in zip(secrets, states, strict=True)
    ]


def play(
    player: Actor,
    games: list[Game],
    numbers: Iterable[int] | None = None,
    *,
    answers: int | None = None,
    watch: Callable[[Sequence[Game]], None] = lambda games: None,
) -> list[Game]:
    """Play games to their ends. Returns the same games.

    numbers: of the games, None counts them from 0. answers: leave each game after this many,
    finished or not. watch: called with all games before each turn and after the last one. It may
    raise to abandon all games.
    """
    numbered = list(zip(itertools.count() if numbers is None else numbers, games, strict=False))
    for turn in itertools.count():
        watch(games)
        live = {number: game for number, game in numbered if game.status is GameStatus.PLAYING}
        if not live or turn == answers:
            break
        player(live, turn)
    return games


def open_with(word: str, text: str, player: Actor) -> Actor:
    """A player whose first guess on an empty board is a given word. text: the whole answer."""

    def act(games: Mapping[int, Game], turn: int) -> None:
        openings = {i: game for i, game in games.items() if not (game.turns or game.state.clues)}
        for game in openings.values():
            game.play(word, text=text)
        if rest := {i: game for i, game in games.items() if i not in openings}:
            player(rest, turn)

    return act


class Portions:
    """Plays games in portions, halved for the rest of the run each time memory runs out."""

    def __init__(self) -> None:
        self._limit: int | None = None  # found when memory ran out

    def play(
        self,
        work: Callable[[Sequence[S]], list[T]],
        starts: Sequence[S],
        size: int,
        most: int | None,
    ) -> list[T]:
        """Do the work on all starts, some at a time, in their order.

        size: games of each start. most: games side by side, None for all. One start is never split.
        """
        results: list[T] = []
        first = 0
        while first < len(starts):
            limit = min(n for n in (self._limit, most, len(starts) * size) if n is not None)
            part = starts[first : first + max(limit // size, 1)]
            try:
                results += work(part)
                first += len(part)
            except (RuntimeError, MemoryError) as error:
                if len(part) == 1 or not ran_out_of_memory(error):
                    raise
                self._limit = (len(part) + 1) // 2 * size
                print(f"out of memory: now rollout.games_at_once={self._limit}", flush=True)
        return results


@dataclass(kw_only=True)
class ModelPlayer:
    """A language model as a player. It sees games in one form of wordle_rl.rollouts.forms."""

    engine: Engine
    form: Form
    sampling: Sampling
    draws: Draws
    knowledge: Knowledge | None = None  # needed by a grammar
    talks: dict[int, list[Talk]] = field(default_factory=dict)  # of each game
    decoder: Decoder | None = field(init=False)

    def __post_init__(self) -> None:
        self.decoder = build_decoder(self.sampling, self.knowledge)

    def __call__(self, games: Mapping[int, Game], turn: int) -> None:
        """Hear and answer once in each game. turn: answers before this one."""
        for number, game in games.items():
            talks = self.talks.setdefault(number, [])
            talk = hear(self.form, game, talks[-1] if talks else None, self.engine.max_context)
            if talk is None:
                game.forfeit(context_full=True)
            elif not talks or talk is not talks[-1]:
                talks.append(talk)
        self.answer({i: g for i, g in games.items() if g.status is GameStatus.PLAYING}, turn)

    def answer(self, games: Mapping[int, Game], turn: int) -> None:
        """Draw an answer at the end of each game's last conversation, and play it."""
        if not games:
            return
        talks = [self.talks[number][-1] for number in games]
        uniforms = self.draws.uniforms(list(games), turn, self.sampling.max_tokens)
        grammar = None
        if self.decoder is not None:
            states = [game.state for game in games.values()]
            answers = list_answers(self.form, self.decoder.words)
            nodes = {s: answers.begin(self.decoder.choices(s)) for s in dict.fromkeys(states)}
            grammar = [nodes[state] for state in states]
        prompts = [talk.ids for talk in talks]
        if self.sampling.beams > 1 and self.sampling.temperature == 0.0:
            completions = complete_likeliest(
                self.engine,
                prompts,
                grammar,
                beams=self.sampling.beams,
                max_tokens=self.sampling.max_tokens,
                stop_ids=self.form.chat.tokenizer.stop_ids,
            )
        else:
            completions = self.engine.complete(prompts, self.sampling, uniforms, grammar)
        for game, talk, answer in zip(games.values(), talks, completions, strict=True):
            talk.answer(answer.ids, len(game.turns), answer.logprobs, choices=answer.choices)
            game.context_full |= answer.stop is StopReason.CONTEXT_FULL
            say(self.form, game, answer.ids, complete=answer.stop is StopReason.STOP_TOKEN)

    def all_talks(self, games: Sequence[Game]) -> list[list[Talk]]:
        """The conversations of each of some games, whose numbers are 0, 1, ..."""
        return [self.talks.get(number, []) for number in range(len(games))]


def hear(form: Form, game: Game, talk: Talk | None, max_context: int) -> Talk | None:
    """The conversation up to a game's next answer. None if it leaves no room for one.

    talk: the one up to the last answer, None before the first. It goes on in place unless each
    prompt of the form begins anew.
    """
    if talk is None:
        ids = form.opening(game.state)
    else:
        ids = form.reply(game.turns[-1], game.state, last_id=talk.ids[-1])
    if talk is None or form.fresh:
        talk = Talk()
    if len(talk.ids) + len(ids) >= max_context:
        return None
    talk.hear(ids, len(game.turns))
    return talk


def build_decoder(sampling: Sampling, knowledge: Knowledge | None) -> Decoder | None:
    """What a model's grammar leaves it to guess, None without a grammar."""
    if sampling.grammar is None:
        return None
    assert knowledge is not None, "a grammar needs the words and what clues say about them"
    clues, most = sampling.grammar == "clues", sampling.grammar_from
    return Decoder(knowledge, clues=clues, most=most, repeats=sampling.repeats)


@lru_cache(maxsize=2)
def list_answers(form: Form, words: frozenset[str], *, begins: bool = True) -> AnswerList:
    """The answers of a form that guess one of some words. begins: False behind a thought."""
    return AnswerList.of(
        (word, form.chat.answer(form.write(word), begins=begins)) for word in sorted(words)
    )


def check_grammar(form: Form, sampling: Sampling, words: frozenset[str]) -> None:
    """Raise ValueError unless every word that the grammar allows can be answered."""
    if sampling.grammar is None:
        return
    if form.style.think:
        raise ValueError("sampling.grammar must be null with prompt.think=true: it has no thoughts")
    longest = max(len(form.chat.answer(form.write(word))) for word in words)
    if longest > sampling.max_tokens:
        raise ValueError(
            f"sampling.max_tokens must be {longest} or more, the tokens of the longest answer of "
            f"sampling.grammar={sampling.grammar}, not {sampling.max_tokens}"
        )


def say(form: Form, game: Game, ids: list[int], *, complete: bool) -> None:
    """Play an answer of a model. complete: False if a limit cut it off; then it has no guess."""
    text = form.chat.read(ids)
    parsed = form.parse(text) if complete else form.parse(text).truncated()
    game.play(
        parsed.guess, text=text, thought=parsed.thought, reason=parsed.reason, tokens=len(ids)
    )
