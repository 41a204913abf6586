"""Given dialogues as tokens: as a scripted player's game, and only their answers are trained."""

import pytest

from tests.helpers.talks import turns_of
from tests.helpers.tiny import gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Game
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Letters
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.given import Exchange, GivenDialogue, dialogue_talk
from wordle_rl.rollouts.teacher import scripted_talks

STYLE = Letters()


def play() -> Game:
    game = Game("crane", {"slate", "sleep", "crane"})
    for guess in ("slate", "sleep", "crane"):
        game.play(guess, text=guess_text(guess))
    return game


def dialogue_of(game: Game, *untrained: int) -> GivenDialogue:
    messages = [STYLE.opening(game.turns[0].state)]
    pairs = zip(game.turns, game.turns[1:], strict=False)
    messages += [STYLE.feedback(turn, next_turn.state) for turn, next_turn in pairs]
    exchanges = [
        Exchange(message=message, answer=turn.text, trained=i not in untrained)
        for i, (message, turn) in enumerate(zip(messages, game.turns, strict=True))
    ]
    return GivenDialogue(row=1, system=STYLE.system, exchanges=tuple(exchanges))


@pytest.mark.parametrize("inner", [qwen_like_tokenizer(), gemma_like_tokenizer()])
def test_a_games_dialogue_has_the_tokens_of_the_game(inner):
    chat, game = Chat(HFTokenizer(inner)), play()
    [expected] = scripted_talks(game, build_form("conversation", chat, STYLE))
    assert dialogue_talk(dialogue_of(game), chat) == expected
    talk = dialogue_talk(dialogue_of(game, 0, 1), chat)
    assert [turn.trained for turn in turns_of([talk])] == [0, 0, 1]
