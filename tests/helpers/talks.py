"""Conversations turn by turn, as tests look at them."""

from collections.abc import Sequence
from dataclasses import dataclass

from wordle_rl.rollouts.talk import Talk


@dataclass(frozen=True)
class TurnTokens:
    """The tokens of one turn."""

    prompt_ids: list[int]  # since the previous answer
    ids: list[int]  # of the answer
    logprobs: list[float]
    trained: bool
    fresh: bool  # whether a conversation begins here


def turns_of(talks: Sequence[Talk]) -> list[TurnTokens]:
    """The turns of a game, from its conversations."""
    turns = []
    for talk in talks:
        end = 0
        for part in talk.answers.values():
            turns.append(
                TurnTokens(
                    prompt_ids=talk.ids[end : part.start],
                    ids=talk.ids[part.start : part.stop],
                    logprobs=talk.logprobs[part.start : part.stop],
                    trained=talk.trained[part.start],
                    fresh=end == 0,
                )
            )
            end = part.stop
    return turns


def talk_of(*turns: tuple[list[int], list[int]]) -> Talk:
    """A conversation of prompts and answers."""
    talk = Talk()
    for number, (prompt, answer) in enumerate(turns):
        talk.hear(prompt, number)
        talk.answer(answer, number)
    return talk
