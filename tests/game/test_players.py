"""Scripted players: their published figures, and their randomness."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import (
    Decoder,
    EntropyConsistent,
    GreedyEntropy,
    Mistakes,
    Player,
    RandomConsistent,
    RandomWord,
)
from wordle_rl.game.rules import Clue, Game, Rules, State, feedback_code
from wordle_rl.words.lists import WordLists, load_words


@pytest.fixture(scope="module")
def small() -> Knowledge:
    words = load_words()
    lists = WordLists(answers=words.answers[::40], allowed=words.answers[::20])
    return Knowledge(lists, build_table(lists))


def play(player: Player, knowledge: Knowledge, secrets: Sequence[str], seed: int) -> list[Game]:
    """One game for each secret, all side by side."""
    draw = np.random.default_rng(seed)
    games = [Game(secret, knowledge.words.allowed_set, Rules()) for secret in secrets]
    while open_games := [game for game in games if game.status == "playing"]:
        answers = player.answer([game.state for game in open_games], draw.random(len(open_games)))
        for game, answer in zip(open_games, answers, strict=True):
            game.play(answer)
    return games


def figures(games: Sequence[Game]) -> tuple[float, float]:
    """Share of wins, and mean turns of the games won."""
    turns = [game.state.turn for game in games if game.won]
    return len(turns) / len(games), sum(turns) / max(1, len(turns))


def state_after(secret: str, *guesses: str) -> State:
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return State(clues, len(clues))


def all_players(knowledge: Knowledge) -> list[Player]:
    return [
        RandomConsistent(knowledge),
        RandomConsistent(knowledge, "allowed"),
        RandomWord(knowledge.words),
        GreedyEntropy(knowledge, opener=None),
        GreedyEntropy(knowledge, opener=None, candidates="allowed"),
    ]


@pytest.mark.parametrize(
    ("make", "every", "wins", "turns"),
    [  # published wins and mean turns over wins; the bounds are 4 standard errors
        (RandomConsistent, 3, (0.979, 0.021), (4.04, 0.14)),
        (lambda facts: RandomConsistent(facts, "allowed"), 8, (0.897, 0.072), (4.57, 0.26)),
        # Of 246 held-out answers (Arnavvs/Qwen_wordle_sft).
        (lambda facts: Decoder(facts, clues=True), 8, (0.913, 0.098), (4.52, 0.38)),
        (lambda facts: Decoder(facts, clues=True, most=20), 8, (0.772, 0.147), None),
        (GreedyEntropy, 16, (1.0, 0.0), (3.433, 0.21)),
        (lambda facts: RandomWord(facts.words), 1, (0.0026, 0.005), None),  # 6 of 12,972 guesses
    ],
)
def test_players_play_as_published(original, make, every, wins, turns):
    rate, mean = figures(play(make(original), original, original.words.answers[::every], 0))
    assert rate == pytest.approx(wins[0], abs=wins[1])
    assert turns is None or mean == pytest.approx(turns[0], abs=turns[1])


@pytest.mark.slow
def test_greedy_entropy_from_salet_plays_all_secrets_as_published(original):
    wins, mean = figures(play(GreedyEntropy(original), original, original.words.answers, 0))
    assert wins == 1.0
    assert mean == pytest.approx(3.433, abs=0.005)


def test_random_consistent_picks_each_candidate_equally_often(small):
    state = state_after(small.words.answers[5], small.words.answers[30])
    candidates = small.candidate_words(state)
    uniforms = (np.arange(len(candidates) * 50) + 0.5) / (len(candidates) * 50)
    words = RandomConsistent(small).answer([state] * len(uniforms), uniforms)
    assert Counter(words) == dict.fromkeys(candidates, 50)


def test_entropy_consistent_is_informed_until_few_answers_fit(small):
    player = EntropyConsistent(small, expert := GreedyEntropy(small, None), most=4)
    counts = Counter()
    for secret in small.words.answers:
        for guess in small.words.allowed[::9]:
            state = state_after(secret, guess)
            candidates = [
                a
                for a in small.words.answers
                if feedback_code(guess, a) == feedback_code(guess, secret)
            ]
            choices = [small.words.allowed[i] for i in player.choices(state)]
            assert choices == (candidates if len(candidates) <= 4 else [expert.choose(state)])
            counts[len(candidates) <= 4] += 1
    assert min(counts.values()) > 100
    assert [small.words.allowed[i] for i in player.choices(State())] == [expert.choose(State())]


def test_same_state_and_uniform_get_the_same_answer_in_any_batch(small):
    states = [state_after(small.words.answers[i], small.words.answers[i // 2]) for i in range(12)]
    uniforms = np.random.default_rng(1).random(12)
    for player, twin in zip(all_players(small), all_players(small), strict=True):
        batch = player.answer(states, uniforms)
        reverse_batch = twin.answer(states[::-1], uniforms[::-1])[::-1]
        singles = [player.choose(s, float(uniforms[i])) for i, s in enumerate(states)]
        assert batch == reverse_batch == singles, player.name


@pytest.mark.parametrize("clues", [False, True])
@pytest.mark.parametrize("most", [None, 1, 4])
@pytest.mark.parametrize("repeats", [False, True])
def test_a_decoder_chooses_among_the_words_that_its_grammar_allows(small, clues, most, repeats):
    words, draw = small.words.allowed, np.random.default_rng(0)
    games = [draw.choice(words, 4).tolist() for _ in range(30)]
    states = [state_after(secret, *guesses[:n]) for secret, *guesses in games for n in range(4)]
    states.append(state_after("crane", "zzzzz", words[7]))  # a guess that is no allowed word
    states.append(State((Clue("crane", 242), Clue("slate", 242)), 2))  # no word fits
    states.append(state_after("zzzzz", *words))  # nor is there one that was not guessed
    counts = set()
    for state in states:
        fits = [
            word
            for word in words
            if all(feedback_code(clue.guess, word) == clue.feedback for clue in state.clues)
        ]
        options = [word for word in words if repeats or word not in state.guesses] or [*words]
        limited = clues and fits and (most is None or len(fits) <= most)
        player = Decoder(small, clues=clues, most=most, repeats=repeats)
        assert [words[i] for i in player.choices(state)] == (fits if limited else options)
        counts.add(min(len(fits), 5))
    assert counts == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("candidates", ["answers", "allowed"])
def test_greedy_entropy_always_makes_a_guess_with_the_most_bits(small, candidates):
    player = GreedyEntropy(small, opener=None, candidates=candidates)
    knowledge = small.over_allowed if candidates == "allowed" else small
    for secret in small.words.answers[::9]:
        state = State()
        while len(words := knowledge.candidate_words(state)) > 1:
            guess = player.choose(state)
            bits = knowledge.entropies(knowledge.candidates(state))
            assert bits[knowledge.words.guess_index[guess]] == pytest.approx(bits.max(), abs=1e-9)
            ties = {knowledge.words.allowed[i] for i in np.flatnonzero(bits > bits.max() - 1e-9)}
            assert guess == min(ties & set(words) or ties)
            state = state_after(secret, *state.guesses, guess)


@pytest.mark.parametrize("pool", ["answers", "allowed"])
def test_mistakes_are_made_with_the_words_of_the_pool(small: Knowledge, pool: Any):
    """Its words are from the pool. Words that ignore a clue would fit the other clue alone."""
    secret = "abbey"
    clues = [Clue(g, feedback_code(g, secret)) for g in small.words.answers[5:7]]
    state = State(tuple(clues), 2)
    guesses = Mistakes(small, pool).answer([state] * 400, np.linspace(0, 0.999, 400))
    words = {guess for guess in guesses if guess in small.words.allowed_set}
    pool_words = {*(small.words.answers if pool == "answers" else small.words.allowed)}
    assert words <= pool_words and 0.5 < sum(g in words for g in guesses) / 400 < 0.9
    assert bool(words - {*small.words.answers}) == (pool == "allowed")
