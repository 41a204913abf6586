"""Forms of a rollout: how a game becomes prompts, and how an answer writes a guess.

- `conversation`: one growing dialogue.
- `fresh`: each turn is a new prompt with the whole state.
- `tool`: a dialogue in which each guess is a tool call, and its feedback is the call's result.

If the policy takes over a game in the middle, the earlier guesses appear as earlier answers, which
are not trained. In `fresh` they are part of the state.

Shots are solved examples, turns of other games that come before this one as finished exchanges.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wordle_rl.game.rules import Clue, PlayedTurn, State, TurnKind
from wordle_rl.policy.sampling import Sampling
from wordle_rl.prompts.parser import Parsed, parse_call
from wordle_rl.prompts.styles import CALL, CALL_THINKING, REFUSALS, PromptStyle
from wordle_rl.rollouts.chat import Chat, ToolChat

_WORD = "crane"  # whose answer is as long as most
FormName = Literal["conversation", "fresh", "tool"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """Makes the ids that the policy is fed, and reads its answers: one growing dialogue."""

    chat: Chat
    style: PromptStyle
    shots: tuple[PlayedTurn, ...] = ()
    fresh = False  # whether each turn begins a new prompt

    @property
    def system(self) -> str:
        return self.style.system

    def opening(self, state: State) -> list[int]:
        """Ids up to the first answer in a game that begins in this state."""
        ids = self._begin(self.style.opening(State()))
        for turn, after in earlier_turns(state):
            ids += self.chat.answer(self.written(turn))
            ids += self.reply(turn, after, last_id=ids[-1])
        return ids

    def _begin(self, message: str) -> list[int]:
        """Ids of the system prompt, the shots and a message, up to the first answer."""
        first, *others = [*(self.style.opening(shot.state) for shot in self.shots), message]
        ids = list(self.chat.opening(self.system, first))
        for shot, following in zip(self.shots, others, strict=True):
            ids += self.chat.answer(self.written(shot))
            ids += self.chat.reply(following, last_id=ids[-1])
        return ids

    def reply(self, turn: PlayedTurn, state: State, *, last_id: int) -> list[int]:
        """Ids to feed after a turn: the text after the answer, or the whole next prompt if fresh.

        state: the state after the turn. last_id: the answer's last sampled id.
        """
        return self.chat.reply(self.style.feedback(turn, state), last_id=last_id)

    def write(self, guess: str) -> str:
        """The answer that makes a guess."""
        return self.style.write(guess)

    def written(self, turn: PlayedTurn) -> str:
        """A scripted player's answer in this form, without the thought before it."""
        if turn.guess is None:
            return turn.text.removeprefix(turn.thought)
        return self.write(turn.guess)

    def parse(self, text: str) -> Parsed:
        """Read the guess from an answer."""
        return self.style.parse(text)


@dataclass(frozen=True, kw_only=True)
class Tool(Form):
    """A dialogue with tool calls."""

    chat: ToolChat

    @property
    def system(self) -> str:
        return self.style.rules + (CALL_THINKING if self.style.think else CALL)

    def write(self, guess: str) -> str:
        return self.chat.call(guess)

    def parse(self, text: str) -> Parsed:
        return parse_call(text)


@dataclass(frozen=True, kw_only=True)
class Fresh(Form):
    """Each turn is a new prompt with the whole state, and why the last answer was refused."""

    fresh = True

    def opening(self, state: State) -> list[int]:
        return self._begin(self.style.opening(state))

    def reply(self, turn: PlayedTurn, state: State, *, last_id: int) -> list[int]:
        refusal = REFUSALS.get(turn.kind)
        message = (refusal + "\n" if refusal else "") + self.style.opening(state)
        return self._begin(message)


def build_form(
    name: str, chat: Chat, style: PromptStyle, shots: tuple[PlayedTurn, ...] = ()
) -> Form:
    """Build the form with this name.

    Raises ValueError for `tool` without tools in the template, and for a template that always opens
    a thought where the style wants none.
    """
    kind = ToolChat if name == "tool" else Chat
    if style.think != chat.think or kind is ToolChat:
        chat = kind(chat.tokenizer, think=style.think)
    if chat.opened and not style.think:
        raise ValueError(
            f"the chat template opens a thought ({chat.opened.strip()}) in front of each answer, "
            "and has no enable_thinking to close it: choose prompt.think=true"
        )
    if isinstance(chat, ToolChat):
        return Tool(chat=chat, style=style, shots=shots)
    return {"conversation": Form, "fresh": Fresh}[name](chat=chat, style=style, shots=shots)


def check_room(
    form: Form, sampling: Sampling, max_context: int, *, turns: int, guesses: int = 0
) -> None:
    """Raise ValueError unless the first answer and a whole game of plain answers fit.

    turns: of a game. guesses: before the first answer, which may have all its tokens. Thoughts and
    answers that are asked for again take more room, which only the games can tell.
    """

    def prompt_after(count: int) -> int:
        clues = (Clue(_WORD, 0),) * count
        return len(form.opening(State(clues=clues, turn=count, max_turns=turns)))

    prompt = prompt_after(guesses)
    if (minimum := prompt + sampling.max_tokens) > max_context:
        raise ValueError(
            f"model.max_context must be {minimum} or more for a prompt of {prompt} tokens after "
            f"{guesses} guesses and sampling.max_tokens={sampling.max_tokens}, not {max_context}"
        )
    total = prompt_after(turns - 1) + len(form.chat.answer(form.write(_WORD)))
    if total > max_context:
        raise ValueError(
            f"model.max_context must be {total} or more for a game of {turns} guesses, not "
            f"{max_context}, or games would be cut off and lost"
        )


def earlier_turns(state: State) -> Iterator[tuple[PlayedTurn, State]]:
    """The guesses that led to a state, as turns, each with the state after the turn."""
    states = [State(state.clues[:n], n, state.max_turns) for n in range(len(state.clues) + 1)]
    for clue, before, after in zip(state.clues, states, states[1:], strict=False):
        turn = PlayedTurn(
            state=before,
            text="",
            guess=clue.guess,
            reason=None,
            kind=TurnKind.ACCEPTED,
            feedback=clue.feedback,
        )
        yield turn, after
