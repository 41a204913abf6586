"""Forms read as the tokenizer's own template writes them, wherever a game is taken over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.talks import TurnTokens, turns_of
from tests.helpers.tiny import CHATML, QWEN_TOOLS, WORDS, gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.game.players import Player, guess_text
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.prompts.parser import TOOL
from wordle_rl.prompts.styles import Letters, Spelled, Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form, check_room
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.teacher import ScriptedPlayer, scripted_talks

TOKENIZERS: dict[str, Any] = {
    "conversation": qwen_like_tokenizer,
    "fresh": gemma_like_tokenizer,
    "tool": lambda: qwen_like_tokenizer(QWEN_TOOLS),
}
STYLES = [Symbols(), Letters(), WholeState(think=True), Spelled()]


class Fixed(Player):
    """A word, then a word that is not in the list, then words again."""

    name = "fixed"

    def choose(self, state: State, uniform: float = 0.0) -> str:
        return ("slate", "zzzzz", "crane", "crept")[state.turn % 4]


def a_game() -> Game:
    [game] = play(
        ScriptedPlayer(player=Fixed(), draws=Draws(seed=0)),
        new_games(["sleep"], WORDS, Rules(max_turns=4)),
    )
    return game


def form_and_game(name: str, style: Any) -> tuple[Form, Game, list[TurnTokens]]:
    chat = Chat(HFTokenizer(TOKENIZERS[name]()))
    game = a_game()
    form = build_form(name, chat, style)
    return form, game, turns_of(scripted_talks(game, form))


def ids_of(turns: Sequence[TurnTokens]) -> list[int]:
    return [i for turn in turns for i in (*turn.prompt_ids, *turn.ids)]


def test_shots_come_before_the_game_as_the_template_writes_finished_exchanges() -> None:
    inner = qwen_like_tokenizer()
    chat, style, game = Chat(HFTokenizer(inner)), Spelled(), a_game()
    shots = (
        replace(game.turns[0], guess="crane"),
        replace(game.turns[1], guess="slime"),
    )
    form = build_form("conversation", chat, style, shots)
    messages = [
        ("system", style.system),
        ("user", style.opening(State())),
        ("assistant", "<guess> C R A N E</guess>"),
        ("user", style.opening(game.turns[1].state)),
        ("assistant", "<guess> S L I M E</guess>"),
        ("user", style.opening(State())),
    ]
    expected = inner.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages],
        tokenize=True, add_generation_prompt=True, return_dict=False,
    )  # fmt: skip
    assert form.opening(State()) == expected
    fresh = build_form("fresh", chat, style, shots)
    assert fresh.opening(State()) == expected
    told = inner.decode(fresh.reply(game.turns[0], game.turns[1].state, last_id=0))
    assert told.count("<guess> C R A N E</guess>") == 1
    assert told.count(style.opening(game.turns[1].state)) == 2  # of a shot, and of the game


@pytest.mark.parametrize("style", STYLES)
def test_a_game_of_tool_calls_reads_as_the_template_writes_it_whole(style):
    form, game, turns = form_and_game("tool", style)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": style.rules + "HOW"},
        {"role": "user", "content": style.opening(State())},
    ]
    for turn, state in zip(
        game.turns, [*(t.state for t in game.turns[1:]), game.state], strict=True
    ):
        function = {"name": "guess", "arguments": {"word": turn.guess}}
        messages += [
            {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]},
            {"role": "tool", "content": style.feedback(turn, state)},
        ]
    inner = TOKENIZERS["tool"]()
    whole = inner.apply_chat_template(messages[:-1], tools=[TOOL], tokenize=False)
    text = inner.decode(ids_of(turns), skip_special_tokens=False) + "\n"
    before, told, after = text.partition(
        "Think in <think>...</think>, then guess by calling the tool."
        if style.think
        else "Guess by calling the tool."
    )
    assert told and before + "HOW" + after == whole
    assert "<guess>" not in text and "You are helpful" not in text
    for turn, tokens in zip(game.turns, turns, strict=True):
        assert form.parse(form.chat.tokenizer.decode(tokens.ids)).guess == turn.guess


@pytest.mark.parametrize("style", STYLES)
def test_each_fresh_prompt_is_what_the_template_writes_for_the_whole_state(style):
    _, game, turns = form_and_game("fresh", style)
    inner = TOKENIZERS["fresh"]()
    for number, (turn, tokens) in enumerate(zip(game.turns, turns, strict=True)):
        refusal = "That word is not in the word list.\n" if number == 2 else ""
        messages = [
            {"role": "system", "content": style.system},
            {"role": "user", "content": refusal + style.opening(turn.state)},
        ]
        text = inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert inner.decode(tokens.prompt_ids, skip_special_tokens=False) == text
        assert tokens.prompt_ids.count(inner.bos_token_id) == 1  # row 2
        assert tokens.fresh


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["conversation", "tool"])
def test_a_game_taken_over_reads_as_if_it_had_been_played_from_the_start(name, style):
    chat = Chat(HFTokenizer(TOKENIZERS[name]()))
    game = Game("sleep", WORDS.allowed_set, Rules(max_turns=4))
    for guess in ("slate", "crane", "crept"):
        game.play(guess, text=guess_text(guess))
    played = turns_of(scripted_talks(game, build_form(name, chat, style)))
    for number, turn in enumerate(game.turns):
        opening = build_form(name, chat, style).opening(turn.state)
        assert opening == ids_of(played[:number]) + played[number].prompt_ids


def test_a_fresh_prompt_does_not_grow_with_refusals():
    _, _, turns = form_and_game("fresh", Symbols())
    assert max(len(turn.prompt_ids) for turn in turns) < 2 * len(turns[0].prompt_ids)


@pytest.mark.parametrize(
    "inner", [build_tokenizer(), gemma_like_tokenizer(), qwen_like_tokenizer(CHATML)]
)
def test_a_tokenizer_whose_template_has_no_tools_is_refused_in_one_line(inner):
    chat = Chat(HFTokenizer(inner))
    with pytest.raises(ValueError, match=r"rollout.form=tool needs .* has tools") as error:
        build_form("tool", chat, Symbols())
    assert len(str(error.value).splitlines()) == 1


def test_a_template_that_writes_calls_otherwise_is_refused():
    inner = qwen_like_tokenizer(QWEN_TOOLS.replace("tool_call>", "call>"))
    with pytest.raises(ValueError, match=r"rollout.form=tool needs .* <tool_call>"):
        build_form("tool", Chat(HFTokenizer(inner)), Symbols())


def test_a_template_that_raises_is_refused_with_what_it_says():
    inner = qwen_like_tokenizer(
        "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}" + CHATML
    )
    with pytest.raises(ValueError, match=r"rollout.form=tool .* no tools here"):
        build_form("tool", Chat(HFTokenizer(inner)), Symbols())


def test_the_context_must_hold_the_longest_history():
    form = build_form("conversation", Chat(HFTokenizer(build_tokenizer())), Symbols())
    empty = len(form.opening(State())) + 8
    check_room(form, Sampling(max_tokens=8), empty)
    with pytest.raises(ValueError, match=r"model.max_context must be \d+ or more .* 4 earlier"):
        check_room(form, Sampling(max_tokens=8), empty, guesses=4)
