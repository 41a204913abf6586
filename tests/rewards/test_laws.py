"""What a lawful set of rewards guarantees: cheating, stalling and quitting never pay."""

import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.helpers.configs import OPTIONS
from tests.helpers.reward_sets import (
    ANSWERS,
    KNOWLEDGE,
    POLICIES,
    SECRET,
    SETS,
    WORDS,
    guesses,
    node,
    play,
    shipped,
)
from tests.helpers.reward_sets import LAWFUL as SHIPPED
from tests.helpers.tool_calls import call, guess
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Game, TurnKind
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.scoring import RewardSet, build_reward_set
from wordle_rl.rewards.win import Win
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.training.curricula import Curriculum


@cache
def asking_for_thoughts(form: str = "conversation") -> RewardSet:
    """phase1, whose format asks for think blocks."""
    settings = node("reward", "phase1")
    settings["components"]["format"]["think"] = True
    return build_reward_set(settings, KNOWLEDGE, form)


THOUGHTS = "phase1 that asks for thoughts"
LAWFUL = {**SHIPPED, THOUGHTS: asking_for_thoughts()}
FORMS = ["conversation", "tool"]  # fresh prompts get the same answers as a conversation


def writer(form: str) -> Callable[[str], str]:
    """What makes an answer of a guess."""
    return (lambda word: call(guess(word))) if form == "tool" else guess_text


def cheats(form: str) -> dict[str, str]:
    """Answers that a careless reader or reward would pay for."""
    write, opening = writer(form), "<tool_call>" if form == "tool" else "<guess>"
    closing = opening.replace("<", "</")
    unclosed = write("match").removesuffix(closing)
    return {
        "two guesses": write("match") + write("batch"),
        "guess inside think": f"<think>{write('match')}</think>",
        "empty": "",
        "copied feedback": write("C(x) A(✓) T(✓) C(✓) H(✓)"),
        "look-alike letters": write("m\u0430tch"),
        "unclosed": unclosed,
        "think only": "<think>I shall win</think>",
        "tag soup": f"<think></think>{unclosed}{opening}{closing}{closing}",
        "no word": write("zzzzz"),
        "repeat": write("fuzzy"),  # made before in the states below
    }


CHEATS = cheats("conversation")


def stages(curriculum: str, rewards: RewardSet, form: str) -> list[RewardSet]:
    """What a curriculum plans in every second step of some epochs of readable games.

    Empty when it does not take these rewards.
    """
    settings = node("curriculum", curriculum)
    if "first" in settings:
        settings["first"] = build_reward_set(settings["first"], KNOWLEDGE, form)
    arguments = {"rewards": rewards, "secrets": ANSWERS, "groups": 4}
    try:
        course = instantiate("curriculum", settings, Curriculum, **arguments)
    except ValueError:
        return []  # refused
    plans = []
    for _ in range(12):
        plans.append(course.plan().rewards)
        course.observe([[play(guesses(secret), secret=secret)] for secret in ANSWERS[:4]])
    return plans[::2]


def on_the_way(form: str) -> dict[str, RewardSet]:
    """Every set of conf/reward, and all that the curricula make of the lawful ones on their way."""
    sets = {name: shipped(name, form) for name in SETS} | {THOUGHTS: asking_for_thoughts(form)}
    for curriculum, name in product(OPTIONS["curriculum"], LAWFUL):
        for number, mixture in enumerate(stages(curriculum, sets[name], form)):
            if mixture not in sets.values():
                sets[f"{curriculum} to {name}, mixture {number}"] = mixture
    return sets


ALL_SETS = {form: on_the_way(form) for form in FORMS}
LAWFUL_SETS = {
    form: {name: rewards for name, rewards in sets.items() if rewards.lawful}
    for form, sets in ALL_SETS.items()
}


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A reward without sense: anything in its range, its ends more often than not."""

    seed: int
    range: tuple[float, float]

    def __call__(self, turn) -> float:
        rng = random.Random(zlib.crc32(f"{self.seed} {turn.text} {turn.state}".encode()))
        return rng.choice([*self.range, rng.uniform(*self.range)])


def noise_set(seed: int) -> RewardSet:
    rng = random.Random(seed)
    components = {
        "format": Format(words=WORDS),
        "win": Win(speed=rng.choice([0.01, 0.5, 1.0])),
        "noise": Noise(seed=seed, range=(rng.uniform(-3, 0), rng.uniform(0, 3))),
        "gift": Noise(seed=seed + 1, range=(rng.uniform(0, 1), rng.uniform(1, 3))),
    }
    weights = {name: rng.choice([0.1, 1.0, 5.0]) for name in components}
    return RewardSet(components=components, weights=weights)


def random_game(rng: random.Random, policy: dict, max_turns: int = 6) -> Game:
    """A game of honest guesses and cheats in random proportion."""
    share = rng.choice([0.0, 0.3, 0.7, 1.0])
    words = guesses(*WORDS.allowed)
    return play(
        [rng.choice(words if rng.random() < share else list(CHEATS.values())) for _ in range(60)],
        max_turns=max_turns,
        **policy,
    )


HISTORIES = [("fuzzy",), ("fuzzy", "catch"), ("blimp", "fuzzy", "catch", "sleep")]


# row 19
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("history", HISTORIES)
def test_every_cheat_scores_below_every_honest_legal_guess(form, history):
    write, sets = writer(form), LAWFUL_SETS[form].values()
    for policy in POLICIES:
        answers = [write(word) for word in history]
        words = [word for word in WORDS.allowed if word not in history]
        if policy["invalid"] == "accept":  # then any five letters are legal
            words += ["zazaz", "uuuuu"]
        turns = [
            play([*answers, write(word)], tokens=10**6, form=form, **policy).turns[-1]
            for word in words
        ]
        minima = [min(rewards.reward_turns([turn]).total for turn in turns) for rewards in sets]
        for cheat, text in cheats(form).items():
            turn = play([*answers, text], form=form, **policy).turns[-1]
            if cheat == "no word" and turn.kind is TurnKind.ACCEPTED:
                continue
            for rewards, minimum in zip(sets, minima, strict=True):
                assert rewards.reward_turns([turn]).total < minimum, (cheat, rewards)


# row 19
@pytest.mark.parametrize("name", LAWFUL)
def test_a_game_of_cheats_scores_below_every_honest_game(name):
    rewards, rng = LAWFUL[name], random.Random(3)
    losers = [word for word in WORDS.allowed if word != SECRET]
    games = [guesses(*rng.sample(losers, 6)) for _ in range(60)]
    # The same letters again and again are about the worst that legal guesses can be.
    games.append(guesses("fuzzy", "jazzy", "puppy", "crept", "sleep", "crane"))
    minimum = min(rewards.reward(play(texts, tokens=10**6)).total for texts in games)
    for policy in POLICIES:
        for cheat, text in CHEATS.items():
            if cheat == "repeat" or (cheat == "no word" and policy["invalid"] == "accept"):
                continue  # there the first of them is an honest guess
            assert rewards.reward(play([text] * 20, **policy)).total < minimum, (cheat, policy)


@cache
def extreme_games(policy: tuple[tuple[str, Any], ...]) -> list[Game]:
    """Games that are won and lost after few and after many turns, honestly and not."""
    games = [
        [*texts, *guesses(SECRET)]
        for n in (*range(8), 15)
        for texts in (
            guesses("catch", "hatch", "latch", "patch", "batch", "watch")[:n],
            guesses("crane", "crept", "jazzy", "sleep", "puppy", "blimp")[:n],
            [""] * n,
            guesses("fuzzy") * n,
            guesses("zzzzz") * n,
            guesses("catch") + [CHEATS["copied feedback"]] * n,
        )
    ]
    return [play(texts, **dict(policy)) for texts in games]


# row 19
@pytest.mark.parametrize("name", [*LAWFUL, *range(3)])
def test_an_early_win_beats_any_later_win_which_beats_any_loss(name):
    rewards = LAWFUL[name] if isinstance(name, str) else noise_set(name)
    rng = random.Random(f"{name}")
    by_turn: dict[int, list[float]] = {}
    for policy in POLICIES:
        games = [random_game(rng, policy) for _ in range(10)]
        for game in games + extreme_games(tuple(policy.items())):
            key = game.state.turn if game.won else 7
            by_turn.setdefault(key, []).append(rewards.reward(game).total)
    assert sorted(by_turn) == [1, 2, 3, 4, 5, 6, 7]
    for turn in range(1, 7):
        assert min(by_turn[turn]) > max(by_turn[turn + 1])


SMALL_WIN = RewardSet(
    components={"format": Format(words=WORDS), "win": Win()}, weights={"format": 1.0, "win": 0.1}
)


# row 19
@pytest.mark.parametrize("name", [*LAWFUL, "a small win"])
@pytest.mark.parametrize("max_turns", [1, 2, 6])
def test_a_staller_who_never_tries_to_win_is_below_every_winner(name, max_turns):
    rewards, best = LAWFUL.get(name, SMALL_WIN), -math.inf
    for secret in ANSWERS:
        texts = []
        for _ in range(max_turns):  # the guess with the most reward that is not the secret
            options = guesses(*(word for word in WORDS.allowed if word != secret))
            texts.append(
                max(
                    options,
                    key=lambda text, texts=texts, secret=secret: (
                        rewards.reward(play([*texts, text], max_turns, secret)).total
                    ),
                )
            )
        answers = guesses("zzzzz") * 9 + texts  # asked again and again before the first turn
        game = play(answers, max_turns, secret, invalid="retry", max_retries=9)
        best = max(best, rewards.reward(game).total)
    winner = play(
        [""] * 9 + guesses("zzzzz") * (max_turns - 1) + guesses(SECRET),
        max_turns,
        unparsable="retry",
        max_retries=9,
    )
    assert winner.won and best < rewards.reward(winner).total
