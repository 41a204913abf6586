"""With a model behind a server, the same games are played as by ModelPlayer, token by token."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.tiny import QWEN_TOOLS, WORDS, qwen, qwen_like_tokenizer
from wordle_rl.adapters.verl.play import Drawn, Limits, check_drawn, play_served
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import build_engine
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk

GAMES = 5
SAMPLING = Sampling(temperature=1.0, max_tokens=9)
DRAWS = Draws(seed=3)


@pytest.mark.parametrize("form", ["conversation", "tool"])
@pytest.mark.parametrize("room", [60, 2000], ids=["full context", "much room"])
@pytest.mark.parametrize("answers", [None, 1])
def test_a_served_game_has_the_tokens_of_the_same_game_here(form, room, answers):
    tokenizer = HFTokenizer(qwen_like_tokenizer(QWEN_TOOLS))
    shown = build_form(form, Chat(tokenizer), Symbols())
    context = len(shown.opening(State())) + room
    lm, stops = CausalLM(qwen(340)), tokenizer.stop_ids

    def engine():
        return build_engine(lm, stop_ids=stops, max_context=context)

    secrets = [WORDS.answers[i % 3] for i in range(GAMES)]
    games = new_games(secrets, WORDS, Rules())
    player = ModelPlayer(engine=engine(), form=shown, sampling=SAMPLING, draws=DRAWS)
    play(player, games, answers=answers)
    limits = Limits(max_tokens=SAMPLING.max_tokens, max_context=context, answers=answers)
    cut = 0
    for number, (secret, expected) in enumerate(zip(secrets, games, strict=True)):
        game = Game(secret, WORDS.allowed_set, Rules())
        talk = serve(game, shown, limits, engine, number)
        assert [turn.text for turn in game.turns] == [turn.text for turn in expected.turns]
        assert game.status == expected.status
        [wanted] = player.talks[number]
        assert (talk.ids, talk.trained, talk.answers) == (
            wanted.ids, wanted.trained, wanted.answers,
        )  # fmt: skip
        assert talk.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)
        cut += len(game.turns) < 6
    assert answers or bool(cut) is (room == 60)


def serve(game, form, limits, engine, number) -> Talk:
    """Play a game with a server that computes every prompt anew."""
    turn = iter(range(100))

    async def draw(ids: list[int], most: int) -> Drawn:
        sampling = Sampling(temperature=1.0, max_tokens=most)
        numbers = DRAWS.uniforms([number], next(turn), most)
        [answer] = engine().complete([ids], sampling, numbers)
        return Drawn(ids=answer.ids, logprobs=answer.logprobs)

    return asyncio.run(play_served(game, form, limits, draw))


@pytest.mark.parametrize(
    ("ids", "logprobs", "said"),
    [
        ([], [], "must have 1 to 3 tokens, not 0"),
        ([1, 2, 3, 4], [0.0] * 4, "must have 1 to 3 tokens, not 4"),
        ([1, 2], [0.0], "as many log-probabilities, not 1"),
    ],
)
def test_an_answer_that_is_none_is_refused(ids, logprobs, said):
    with pytest.raises(ValueError, match=said):
        check_drawn(Drawn(ids=ids, logprobs=logprobs), 3)
