"""Scripted players in the place of a policy, what they teach, and their games as tokens."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Player, RandomConsistent, guess_text
from wordle_rl.game.rules import Game, PlayedTurn, Rules
from wordle_rl.policy.sampling import Draws, Purpose, Sampling, Stream, generator
from wordle_rl.prompts.reasoning import Reasoning
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.talk import Talk


@dataclass(kw_only=True, eq=False)
class TeacherSettings:
    """How a scripted player plays, so that its games can be learnt from."""

    player: Player
    mistakes: Player | None = None  # sometimes guesses in the player's place; this is not learnt
    slips: float = 0.0  # how often, 0..1
    distribution: bool = False  # learn all the player might have answered; it must be a Teacher
    reasoning: Reasoning | None = None  # writes the thought before each guess
    # Words that the model may guess where it plays its own games. None: the player plays.
    guessable: Sequence[str] | None = None
    own_share: float = 1.0  # of the groups that are the model's own games with guessable

    def leaves(self, group: int) -> bool:
        """Whether the model plays the group of a step with this number. Such groups are spread."""
        share = self.own_share if self.guessable else 0.0
        return int((group + 1) * share) > int(group * share)


@dataclass(kw_only=True, eq=False)
class ScriptedPlayer(TeacherSettings):
    """A scripted player in some games. What it draws depends on `draws`, game and turn alone."""

    draws: Draws
    # By game: turns with a mistake.
    slipped: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __call__(self, games: Mapping[int, Game], turn: int) -> None:
        which, slip, wording = self.draws.uniforms(list(games), turn, 3).T
        states = [game.state for game in games.values()]
        words = self.player.answer(states, which)
        if self.mistakes is not None:
            instead = self.mistakes.answer(states, which)
            for i, number in enumerate(games):
                if slip[i] < self.slips:
                    words[i] = instead[i]
                    self.slipped[number].add(turn)
        for (number, game), word, uniform in zip(games.items(), words, wording, strict=True):
            thought = ""
            if self.reasoning is not None:
                # The thought before a mistake gives no reason for it.
                reasoned = None if turn in self.slipped[number] else word
                thought = self.reasoning(game.state, reasoned, uniform)
            game.play(word, text=thought + guess_text(word), thought=thought)


def scripted_talks(game: Game, form: Form, slipped: Collection[int] = ()) -> list[Talk]:
    """A scripted player's game as tokens, as if a policy had played it in this form.

    slipped: turns that were mistakes; they are not trained.
    """
    chat = form.chat
    talks: list[Talk] = []
    for i, turn in enumerate(game.turns):
        if i == 0:
            prompt = form.opening(turn.state)
        else:
            prompt = form.reply(game.turns[i - 1], turn.state, last_id=chat.turn_end_id)
        if i == 0 or form.fresh:
            talks.append(Talk())
        talks[-1].hear(prompt, i)
        # Encoded apart, so that the tokens of the guess do not depend on the thought before it.
        thought = chat.thought(turn.thought) if turn.thought else []
        ids = [*thought, *chat.answer(form.written(turn), begins=not thought)]
        talks[-1].answer(ids, i, trained=i not in slipped)
    return talks


def check_thoughts(lesson: TeacherSettings, form: Form, sampling: Sampling) -> None:
    """Raise ValueError unless any thought and the guess behind it fit into an answer."""
    if lesson.reasoning is None:
        return
    thought = max(len(form.chat.thought(text)) for text in lesson.reasoning.longest())
    guess = max(
        len(form.chat.answer(form.write(word), begins=False)) for word in lesson.reasoning.words
    )
    if thought + guess > sampling.max_tokens:
        raise ValueError(
            f"sampling.max_tokens must be {thought + guess} or more with algorithm.reasoning=notes,"
            f" not {sampling.max_tokens}: the longest thought has {thought} of this model's tokens"
        )


def describe_cut(form: Form, sampling: Sampling, words: Iterable[str]) -> str | None:
    """A warning where the model cannot say what it is taught; None where all words have room."""
    longest = max(len(form.chat.answer(form.write(word))) for word in words)
    if longest <= sampling.max_tokens:
        return None
    return (
        f"warning: an answer has up to {longest} of this model's tokens, and sampling.max_tokens="
        f"{sampling.max_tokens} cuts it off, so that it cannot win: sampling.max_tokens={longest}"
    )


def draw_shots(
    count: int, secrets: Sequence[str], knowledge: Knowledge, rules: Rules, seed: int
) -> tuple[PlayedTurn, ...]:
    """Solved examples for prompts: a turn of each of `count` games, each on another secret.

    They have 0, 1, 2, ... clues, as many as a game has turns, and then 0 again. A game that was won
    sooner gives its last turn. Raises ValueError if there are fewer secrets.
    """
    if count > len(secrets):
        raise ValueError(
            f"shots must be at most {len(secrets)}, the number of training secrets, not {count}"
        )
    shuffle = generator(Purpose.SHOTS, seed=seed)
    order: list[int] = shuffle.permutation(len(secrets))[:count].tolist()
    draws = Draws(seed=seed, stream=Stream.SHOTS)
    player = ScriptedPlayer(player=RandomConsistent(knowledge, "answers"), draws=draws)
    games = play(player, new_games([secrets[i] for i in order], knowledge.words, rules))
    places = (min(i % rules.max_turns, len(game.turns) - 1) for i, game in enumerate(games))
    return tuple(game.turns[place] for game, place in zip(games, places, strict=True))
