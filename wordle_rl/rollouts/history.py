"""How many guesses lie behind a training game when the policy takes it over (`history=`).

The guesses are a scripted player's. One that would win is drawn again, at last by a stand-in who
knows more words; where no other word is found the game begins there, so some states are less deep
than was drawn. Where a step's games begin is a pure function of (seed, step, group).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from wordle_rl.game.players import Player, pick
from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.policy.sampling import Draws, Stream
from wordle_rl.runs.instantiate import Within

Guesses = Annotated[int, Within(0, 99)]
_ATTEMPTS = 16  # at a guess that does not win


@dataclass(frozen=True, kw_only=True)
class HistorySettings:
    """Uniformly `least` to `most` earlier guesses, made by a scripted player.

    opener: the first of them, so there is one at least.
    """

    least: Guesses
    most: Guesses
    player: str = "random_consistent"
    opener: str | None = None

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"history.least must be at most history.most={self.most}")
        if self.opener is not None:
            object.__setattr__(self, "least", max(self.least, 1))
            object.__setattr__(self, "most", max(self.most, 1))


@dataclass(frozen=True, kw_only=True)
class History:
    """The states in which training games begin."""

    least: int
    most: int
    player: Player
    stand_in: Player  # for guesses that would win
    stream: Stream = Stream.HISTORY

    def states(
        self, secrets: Sequence[str], groups: range, *, seed: int, step: int, max_turns: int
    ) -> list[State]:
        """The state in which each of these groups begins, given their secrets."""
        states = [State(max_turns=max_turns) for _ in secrets]
        draws = Draws(seed=seed, step=step, stream=self.stream)
        depths = [
            self.least + pick(number, self.most - self.least + 1)
            for number in draws.uniforms(groups, 0, _ATTEMPTS)[:, 0]
        ]
        live = list(range(len(secrets)))
        for guesses in range(self.most):
            queue, live = [i for i in live if depths[i] > guesses], []
            numbers = draws.uniforms(groups, 1 + guesses, _ATTEMPTS)
            for attempt in range(_ATTEMPTS):
                player = self.player if attempt < _ATTEMPTS // 2 else self.stand_in
                words = player.answer([states[i] for i in queue], numbers[queue, attempt])
                pairs, queue = list(zip(queue, words, strict=True)), []
                for i, guess in pairs:
                    if guess == secrets[i]:
                        queue.append(i)
                        continue
                    clue = Clue(guess, feedback_code(guess, secrets[i]))
                    states[i] = State((*states[i].clues, clue), guesses + 1, max_turns)
                    live.append(i)
        return states


def fixed_states(
    history: History | None, secrets: Sequence[str], *, seed: int, max_turns: int
) -> tuple[State, ...]:
    """The states in which games outside training begin, the same ones whenever they are played.

    secrets: one per game. history: None begins with empty boards.
    """
    if history is None:
        return (State(max_turns=max_turns),) * len(secrets)
    source = replace(history, stream=Stream.EVALUATION_HISTORY)
    states = source.states(secrets, range(len(secrets)), seed=seed, step=0, max_turns=max_turns)
    return tuple(states)
