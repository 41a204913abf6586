"""What a lawful set of rewards guarantees: cheating, stalling and quitting never pay."""

import importlib
import math
import random
import zlib
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from wordle_rl.feedback_table import build_table
from wordle_rl.game import Game, GameStatus, Rules, TurnKind
from wordle_rl.knowledge import Knowledge
from wordle_rl.parser import parse
from wordle_rl.players.cheaters import CHEATERS
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win
from wordle_rl.words import WordLists

ANSWERS = ("batch", "catch", "crane", "crept", "hatch", "latch", "match", "patch", "sleep", "watch")
PROBES = ("blimp", "chimp", "fuzzy", "jazzy", "lymph", "oomph", "puppy")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted((*ANSWERS, *PROBES))))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
SECRET = "match"

CONF = Path(__file__).parents[1] / "conf" / "reward"
POLICIES = [
    {"invalid": invalid, "unparsable": unparsable, "max_retries": retries}
    for invalid, unparsable, retries in product(
        ("accept", "lose_turn", "end_game", "retry"), ("lose_turn", "end_game", "retry"), (1, 9)
    )
]
CHEATS = {
    "two guesses": "<guess>match</guess><guess>batch</guess>",
    "guess inside think": "<think><guess>match</guess></think>",
    "empty": "",
    "copied feedback": "<guess>C(x) A(✓) T(✓) C(✓) H(✓)</guess>",
    "look-alike letters": "<guess>m\u0430tch</guess>",
    "unclosed": "<guess>match",
    "think only": "<think>I shall win</think>",
    "tag soup": "<think></think><guess>match<guess></guess></guess>",
    "no word": "<guess>zzzzz</guess>",
    "repeat": "<guess>fuzzy</guess>",  # made before in the states below
}


def load(name: str) -> RewardSet:
    """The set of a file in conf/reward."""
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    components, weights = {}, {}
    for key, settings in config["components"].items():
        module, _, kind = settings.pop("_target_").rpartition(".")
        weights[key] = settings.pop("weight")
        component = getattr(importlib.import_module(module), kind)
        extra = {"words": WORDS, "knowledge": KNOWLEDGE}
        wanted = {field.name for field in fields(component)} & extra.keys()
        components[key] = component(**settings, **{name: extra[name] for name in wanted})
    assert config["_target_"] == "wordle_rl.rewards.scoring.RewardSet"
    return RewardSet(components=components, weights=weights, lawful=config["lawful"])


SETS = {path.stem: load(path.stem) for path in CONF.glob("*.yaml")}
LAWFUL = {name: rewards for name, rewards in SETS.items() if rewards.lawful}


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A reward without sense: anything in its range, its ends more often than not."""

    seed: int
    range: tuple[float, float]

    def __call__(self, turn) -> float:
        rng = random.Random(zlib.crc32(f"{self.seed} {turn.text} {turn.state}".encode()))
        return rng.choice([*self.range, rng.uniform(*self.range)])


def noisy(seed: int) -> RewardSet:
    rng = random.Random(seed)
    components = {
        "format": Format(words=WORDS),
        "win": Win(speed=rng.choice([0.01, 0.5, 1.0])),
        "noise": Noise(seed=seed, range=(rng.uniform(-3, 0), rng.uniform(0, 3))),
        "gift": Noise(seed=seed + 1, range=(rng.uniform(0, 1), rng.uniform(1, 3))),
    }
    weights = {name: rng.choice([0.1, 1.0, 5.0]) for name in components}
    return RewardSet(components=components, weights=weights)


def play(texts, max_turns: int = 6, secret: str = SECRET, tokens: int = 0, **policy) -> Game:
    game = Game(secret, WORDS.allowed_set, Rules(max_turns=max_turns, **policy))
    for text in texts:
        parsed = parse(text)
        if game.status is GameStatus.PLAYING:
            game.play(parsed.guess, text=text, reason=parsed.reason, tokens=tokens)
    return game


def guesses(*words: str) -> list[str]:
    return [f"<guess>{word}</guess>" for word in words]


def random_game(rng: random.Random, policy: dict, max_turns: int = 6) -> Game:
    """A game of honest guesses and cheats in random proportion."""
    honest = rng.choice([0.0, 0.3, 0.7, 1.0])
    words = guesses(*WORDS.allowed)
    return play(
        [rng.choice(words if rng.random() < honest else list(CHEATS.values())) for _ in range(60)],
        max_turns=max_turns,
        **policy,
    )


HISTORIES = [("fuzzy",), ("fuzzy", "catch"), ("blimp", "fuzzy", "catch", "sleep")]


# row 19
@pytest.mark.parametrize("name", LAWFUL)
@pytest.mark.parametrize("history", HISTORIES)
def test_every_cheat_scores_below_every_honest_legal_guess(name, history):
    rewards = LAWFUL[name]
    for policy in POLICIES:
        before = guesses(*history)
        words = [word for word in WORDS.allowed if word not in history]
        if policy["invalid"] == "accept":  # then any five letters are legal
            words += ["zazaz", "uuuuu"]
        honest = [
            play([*before, text], tokens=10**6, **policy).turns[-1] for text in guesses(*words)
        ]
        worst = min(rewards.score_turns([turn]).total for turn in honest)
        for cheat, text in CHEATS.items():
            turn = play([*before, text], **policy).turns[-1]
            if cheat == "no word" and turn.kind is TurnKind.ACCEPTED:
                continue
            assert rewards.score_turns([turn]).total < worst, cheat


# row 19
@pytest.mark.parametrize("name", LAWFUL)
@pytest.mark.parametrize("cheater", CHEATERS, ids=lambda cheater: cheater.name)
def test_scripted_cheaters_gain_less_on_each_turn_than_the_worst_honest_guess(name, cheater):
    rewards, player = LAWFUL[name], cheater(KNOWLEDGE)
    for uniform, secret in product((0.1, 0.6, 0.9), ANSWERS):
        game = Game(secret, WORDS.allowed_set)
        while game.status is GameStatus.PLAYING:
            state = game.state
            text = player.answer([state], np.array([uniform]))[0]
            parsed = parse(text)
            turn = game.play(parsed.guess, text=text, reason=parsed.reason)
            if turn.kind is TurnKind.ACCEPTED and not turn.repeat:
                continue  # the Staller, and a Repeater's first guess, are honest turn by turn
            honest = [
                Game(secret, WORDS.allowed_set, state=state).play(word, tokens=10**6)
                for word in WORDS.allowed
                if word not in state.guesses
            ]
            worst = min(rewards.score_turns([turn]).total for turn in honest)
            assert rewards.score_turns([turn]).total < worst
        if not game.won:
            sloppy = play([*[""] * 5, *guesses(secret)], secret=secret)
            assert rewards.score(game).total < rewards.score(sloppy).total


# row 19
@pytest.mark.parametrize("name", LAWFUL)
def test_a_game_of_cheats_scores_below_every_honest_game(name):
    rewards, rng = LAWFUL[name], random.Random(3)
    losers = [word for word in WORDS.allowed if word != SECRET]
    honest = [guesses(*rng.sample(losers, 6)) for _ in range(150)]
    # The same letters again and again are about the worst that legal guesses can be.
    honest.append(guesses("fuzzy", "jazzy", "puppy", "crept", "sleep", "crane"))
    worst = min(rewards.score(play(texts, tokens=10**6)).total for texts in honest)
    for policy in POLICIES:
        for cheat, text in CHEATS.items():
            if cheat == "repeat" or (cheat == "no word" and policy["invalid"] == "accept"):
                continue  # there the first of them is an honest guess
            assert rewards.score(play([text] * 20, **policy)).total < worst, (cheat, policy)


# row 19
@pytest.mark.parametrize("name", [*LAWFUL, *range(8)])
def test_an_early_win_beats_any_later_win_which_beats_any_loss(name):
    rewards = LAWFUL[name] if isinstance(name, str) else noisy(name)
    rng = random.Random(f"{name}")
    by_turn: dict[int, list[float]] = {}
    extremes = [
        [*texts, *guesses(SECRET)]
        for n in range(16)
        for texts in (
            guesses("catch", "hatch", "latch", "patch", "batch", "watch")[:n],
            guesses("crane", "crept", "jazzy", "sleep", "puppy", "blimp")[:n],
            [""] * n,
            guesses("fuzzy") * n,
            guesses("zzzzz") * n,
            guesses("catch") + [CHEATS["copied feedback"]] * n,
        )
    ]
    for policy in POLICIES:
        games = [random_game(rng, policy) for _ in range(40)]
        for game in games + [play(texts, **policy) for texts in extremes]:
            key = game.state.turn if game.won else 7
            by_turn.setdefault(key, []).append(rewards.score(game).total)
    assert sorted(by_turn) == [1, 2, 3, 4, 5, 6, 7]
    for earlier in range(1, 7):
        assert min(by_turn[earlier]) > max(by_turn[earlier + 1])


# row 19
@pytest.mark.parametrize("name", LAWFUL)
@pytest.mark.parametrize("max_turns", [1, 2, 6])
def test_a_staller_who_never_tries_to_win_is_below_every_winner(name, max_turns):
    rewards, best = LAWFUL[name], -math.inf
    for secret in ANSWERS:
        texts = []
        for _ in range(max_turns):  # the guess with the most reward that is not the secret
            options = guesses(*(word for word in WORDS.allowed if word != secret))
            texts.append(
                max(
                    options,
                    key=lambda text, texts=texts, secret=secret: (
                        rewards.score(play([*texts, text], max_turns, secret)).total
                    ),
                )
            )
        best = max(best, rewards.score(play(texts, max_turns, secret)).total)
    sloppy = play([""] * 9 + guesses("zzzzz") * (max_turns - 1) + guesses(SECRET), max_turns,
                  unparsable="retry", max_retries=9)  # fmt: skip
    assert sloppy.won and best < rewards.score(sloppy).total


@pytest.mark.parametrize("name", [*LAWFUL, *range(8)])
def test_wins_at_the_same_turn_are_exactly_equal_when_honest_and_less_after_violations(name):
    rewards = LAWFUL[name] if isinstance(name, str) else noisy(name)
    totals = {
        rewards.score(play(guesses(first, second, SECRET))).total
        for first in WORDS.allowed
        for second in WORDS.allowed
        if SECRET not in (first, second) and first != second
    }
    assert len(totals) == 1
    assert rewards.score(play(["", *guesses("catch", "match")])).total < totals.pop()
