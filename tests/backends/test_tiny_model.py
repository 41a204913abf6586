"""Models before any training, whose vocabulary is letters or whole words."""

from typing import Any

import numpy as np
import pytest
from torch.nn.functional import cosine_similarity
from transformers import AutoTokenizer

from wordle_rl.backends.tiny_model import build_tokenizer, build_untrained, save_untrained
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import RandomConsistent, guess_text
from wordle_rl.game.rules import Clue, Game, State, feedback_code
from wordle_rl.policy.models import EMBEDDED
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Places
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.training.targets import TokenTeacher
from wordle_rl.words.lists import WordLists, load_words

SHAPE: dict[str, Any] = dict(hidden_size=32, layers=1, heads=2, kv_heads=1, intermediate_size=32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tokenizer of words that was saved and loaded twice, as a second run does."""
    folder = save_untrained(tmp_path_factory.mktemp("words"), vocabulary="words", **SHAPE)
    target = tmp_path_factory.mktemp("again")
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    return HFTokenizer(AutoTokenizer.from_pretrained(target))


def test_each_allowed_guess_is_one_token_of_its_own(saved) -> None:
    ids = [saved.encode(guess_text(word)) for word in load_words().allowed]
    assert all(len(row) == 1 for row in ids)
    assert len({row[0] for row in ids}) == 12_972
    assert saved.decode(ids[7]) == guess_text(load_words().allowed[7])


def test_a_turn_of_places_has_nine_tokens(saved) -> None:
    game = Game("crept", {"sleep"})
    game.play("sleep")
    form = build_form("conversation", Chat(saved), Places())
    answer = form.chat.answer("<guess>sleep</guess>")
    reply = form.reply(game.turns[-1], game.state, last_id=answer[-1])
    assert len(answer) == 2  # the guess and the end of the answer
    assert len(reply) == 2 + 5  # the roles, and a token for each letter
    assert "s1x l2x e3✓ e4x p5-" in saved.decode(reply)


@pytest.mark.parametrize("text", ["<guess>abcde</guess>", "<guess>cranes</guess>", "✓ c9x <think>"])
def test_other_text_is_spelt(saved, text) -> None:
    ids = saved.encode(text)
    assert len(ids) > 3 and saved.decode(ids) == text


def test_the_tokenizer_of_letters_is_that_of_the_embedded_models() -> None:
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny")
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab()


def test_words_with_common_letters_begin_alike() -> None:
    model, tokenizer = build_untrained(vocabulary="words", **SHAPE | {"hidden_size": 128})
    table = model.get_input_embeddings().weight

    def cosine(a: str, b: str) -> float:
        rows = tokenizer.convert_tokens_to_ids([guess_text(a), guess_text(b)])
        return cosine_similarity(table[rows[0]], table[rows[1]], dim=0).item()

    assert cosine("crane", "crate") > cosine("crane", "caner") > cosine("crane", "soily") + 0.2
    twin, _ = build_untrained(vocabulary="words", **SHAPE | {"hidden_size": 128})
    assert twin.get_input_embeddings().weight.equal(table)


def test_a_teacher_gives_each_word_that_fits_an_equal_share(saved) -> None:
    words = WordLists(
        answers=("bleed", "crane", "crate", "grate", "sleep"),
        allowed=("bleed", "crane", "crate", "grate", "sleep"),
        name="small",
    )
    lesson = TeacherSettings(player=RandomConsistent(Knowledge(words, build_table(words))))
    form = build_form("conversation", Chat(saved), Places())
    clue = Clue("sleep", feedback_code("sleep", "crate"))
    guess, end = form.chat.answer(guess_text("crate"))
    targets = TokenTeacher(lesson, form).targets(State((clue,), 1), [guess, end], start=10)
    expected = [saved.encode(guess_text(word))[0] for word in ("crane", "crate", "grate")]
    assert sorted(targets.ids[targets.places == 10]) == sorted(expected)
    assert np.allclose(targets.probabilities[targets.places == 10], 1 / 3)
    assert targets.ids[targets.places == 11].tolist() == [end]
