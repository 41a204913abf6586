"""Scripted players at the table: their answers as tokens, solved examples."""

import pytest

from tests.helpers.talks import turns_of
from tests.helpers.thoughts import KNOWLEDGE, STYLE, WORDS
from tests.helpers.tiny import QWEN_TOOLS, qwen_like_tokenizer
from wordle_rl.game.players import RandomConsistent
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.teacher import ScriptedPlayer, draw_shots, scripted_talks


@pytest.mark.parametrize("form", ["conversation", "fresh", "tool"])
def test_a_scripted_guess_is_written_as_every_form_asks_for_it(form):
    chat = Chat(HFTokenizer(qwen_like_tokenizer(QWEN_TOOLS)))
    actor = ScriptedPlayer(player=RandomConsistent(KNOWLEDGE), draws=Draws(seed=5))
    [game] = play(actor, new_games([WORDS.answers[3]], WORDS, Rules()))
    game_form = build_form(form, chat, STYLE)
    for turn, tokens in zip(game.turns, turns_of(scripted_talks(game, game_form)), strict=True):
        assert turn.guess is not None
        assert tokens.ids == game_form.chat.answer(game_form.write(turn.guess))
        assert game_form.parse(chat.tokenizer.decode(tokens.ids)).guess == turn.guess


def test_the_guesses_fit_their_states_which_have_more_and_more_clues() -> None:
    secrets = WORDS.answers[:12]
    shots = draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=0)
    assert len(shots) == 8
    for number, shot in enumerate(shots):
        assert len(shot.state.clues) <= number % 3
        assert KNOWLEDGE.is_consistent(shot.guess, shot.state)
    assert {len(shot.state.clues) for shot in shots} == {0, 1, 2}
    assert draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=0) == shots
    assert draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=1) != shots
