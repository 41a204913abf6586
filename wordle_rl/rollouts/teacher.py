"""Scripted players in the place of a policy, what they teach, and their games as tokens."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Player, RandomConsistent, guess_text
from wordle_rl.game.rules import Game, PlayedTurn, Rules
from wordle_rl.policy.sampling import Draws, Purpose, Sampling, Stream, generator
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
        uniforms, slip = self.draws.uniforms(list(games), turn, 2).T
        states = [game.state for game in games.values()]
        words = self.player.answer(states, uniforms)
        if self.mistakes is not None:
            mistakes = self.mistakes.answer(states, uniforms)
            for i, number in enumerate(games):
                if slip[i] < self.slips:
                    words[i] = mistakes[i]
                    self.slipped[number].add(turn)
        for game, word in zip(games.values(), words, strict=True):
            game.play(word, text=guess_text(word))


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
        talks[-1].answer(chat.answer(form.written(turn)), i, trained=i not in slipped)
    return talks


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
    indices = (min(i % rules.max_turns, len(game.turns) - 1) for i, game in enumerate(games))
    return tuple(game.turns[index] for game, index in zip(games, indices, strict=True))
