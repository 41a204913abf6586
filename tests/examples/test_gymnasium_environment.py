"""The Gymnasium environment keeps Gymnasium's contract and plays the laboratory's game."""

from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra gym: pip install -e '.[gym]'")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from examples.gymnasium_environment import WordleEnv  # noqa: E402
from wordle_rl.adapters.api import build_knowledge, build_rewards  # noqa: E402
from wordle_rl.game.rules import Rules  # noqa: E402
from wordle_rl.words.lists import WordLists  # noqa: E402

WORDS = WordLists(
    answers=("crane", "crate", "grape", "slate"),
    allowed=("crane", "crate", "grape", "slate", "speed"),
    name="gym",
)
CRANE, CRATE, GRAPE, SLATE, SPEED = range(5)
HARD = Rules(hard_mode=True, invalid="retry", max_turns=4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path))


def env_of(**settings: Any) -> WordleEnv:
    return WordleEnv(words=WORDS, **{"secrets": WORDS.answers, **settings})


def test_gymnasium_finds_the_environment_and_its_own_check_finds_no_fault():
    check_env(env_of(candidates=True, rules=HARD, reward="win_only"), skip_render_check=True)
    env = gymnasium.make("WordleRL/Wordle-v0", render_mode="ansi").unwrapped
    assert isinstance(env, WordleEnv)
    assert env.action_space == gymnasium.spaces.Discrete(12972)
    assert len(env._secrets) == 1800, "training secrets by default"
    check_env(env)


@pytest.mark.parametrize("name", ["phase2", "win_only"])
@pytest.mark.parametrize("rules", [HARD, Rules(hard_mode=True)])
def test_the_sum_of_an_episode_is_the_reward_of_its_game(name, rules):
    env = env_of(reward=name, rules=rules)
    rewards = build_rewards(name, build_knowledge(WORDS))
    draw = np.random.default_rng(0)
    for number in range(20):
        env.reset(seed=number)
        total, done = 0.0, False
        while not done:
            _, reward, done, truncated, _ = env.step(int(draw.integers(5)))
            total += reward
            assert not truncated
        assert total == pytest.approx(rewards.reward(env.game).total)


def test_the_board_shows_letters_marks_and_a_refused_guess_without_marks():
    env = env_of(rules=Rules(hard_mode=True, max_turns=4), render_mode="ansi", candidates=True)
    _, info = env.reset(options={"secret": "crane"})
    assert info["candidates"].tolist() == [True, True, True, True, False]
    obs, reward, done, _, info = env.step(SLATE)
    assert obs["letters"].tolist() == [[19, 12, 1, 20, 5], [0] * 5, [0] * 5, [0] * 5]
    assert obs["marks"].tolist() == [[1, 1, 3, 1, 3], [0] * 5, [0] * 5, [0] * 5]
    assert info["candidates"].tolist() == [True, False, True, False, False]
    obs, reward, done, _, info = env.step(SPEED)  # drops the a and the e in place
    assert obs["letters"][1].tolist() == [19, 16, 5, 5, 4] and not obs["marks"][1].any()
    assert (reward, done, info["accepted"]) == (0.0, False, False)
    assert env.render() == "slate xx✓x✓\nspeed ignores a clue\n.....\n....."
    obs, reward, done, _, info = env.step(CRANE)
    assert (reward, done, info["won"], info["secret"]) == (1.0, True, True, "crane")


def begin() -> WordleEnv:
    env = env_of()
    env.reset(seed=0)
    return env


WRONG: dict[str, Any] = {
    "secrets must be one of": lambda: env_of(secrets="dev"),
    "secrets must be allowed words .* not 'zzzzz'": lambda: env_of(secrets=["zzzzz"]),
    "reward must be one of": lambda: env_of(reward="phase3"),
    r"action must be a whole number 0\.\.4, not 5": lambda: begin().step(5),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_refused_in_one_line(said):
    with pytest.raises(ValueError, match=said) as error:
        WRONG[said]()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [{"secret": word} for word in ("CRANE", "zzzzz", "", None, ["crane"])] + [{"secrte": "crane"}],
)
def test_options_that_no_game_can_have_are_refused_by_name(options):
    env = env_of()
    with pytest.raises(ValueError, match=r"^(secret|options) must be"):
        env.reset(options=options)
    env.reset(options={})
