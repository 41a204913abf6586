"""Wordle as a Gymnasium environment: import this, then gymnasium.make("WordleRL/Wordle-v0").

An action is the index of a word in the list of allowed guesses. An observation is the board: the
letters of the guesses and their marks. For agents that write text, docs/API.md has another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wordle_rl.adapters.api import build_knowledge, build_rewards
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import MARKS, Game, GameStatus, PlayedTurn, Rules, marks_of
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.runs.instantiate import check_choice
from wordle_rl.words.lists import WORD_LENGTH, WordLists, load_words
from wordle_rl.words.splits import Which, split_secrets

Observation = dict[str, NDArray[np.uint8]]
WIN = "win"  # the reward that is 1 for a win, 0 for everything else


class WordleEnv(gymnasium.Env[Any, np.int64]):  # Gymnasium gives spaces.Dict no type of its own
    """One game of Wordle.

    Observations have two arrays of shape (turns, 5), one row per turn, zeros for later turns:

    - `letters`: 1..26 for a..z.
    - `marks`: 1 for x (absent), 2 for - (elsewhere), 3 for ✓ (in place). A row of letters without
      marks is a guess that was refused.

    The reward of a step is what it adds to the reward of the game, so an episode's sum is the
    reward of its game. A game ends as terminated, never as truncated. At its end, info has `secret`
    and `won`.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own form)
    game: Game  # since reset()

    def __init__(
        self,
        *,
        words: WordLists | None = None,
        secrets: Which | Sequence[str] = "train",
        rules: Rules | None = None,
        reward: str | RewardSet = WIN,
        candidates: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Settings of the environment. Raises ValueError in one line.

        words, rules: None for the original ones. secrets: a part of the split (train, val, test or
        all), or words. reward: win, the name of a set in conf/reward/, or a set from build_rewards.
        candidates: whether info has `candidates`, a bool for each action: is the word a possible
        secret that fits all clues? render_mode: ansi makes render() return text.
        """
        self.words = load_words() if words is None else words
        self.rules = rules or Rules()
        self.render_mode = render_mode
        pool: Any = secrets
        if isinstance(pool, str):
            check_choice("secrets", pool, get_args(Which))
            pool = split_secrets(self.words).secrets(pool)  # pyright: ignore
        self._secrets = tuple(pool)
        if misses := [word for word in self._secrets if word not in self.words.guess_index]:
            raise ValueError(f"secrets must be allowed words in lower case, not {misses[0]!r}")
        self._rewards: RewardSet | None = None  # of WIN
        if isinstance(reward, RewardSet):
            self._rewards = reward
        elif reward != WIN:
            self._rewards = build_rewards(reward, self.knowledge)
        self._candidates = candidates
        # The row of each answer among the actions.
        self._answers = [self.words.guess_index[word] for word in self.words.answers]
        shape = (self.rules.max_turns, WORD_LENGTH)
        self.action_space = spaces.Discrete(len(self.words.allowed))
        letters = spaces.Box(0, 26, shape, np.uint8)
        marks = spaces.Box(0, len(MARKS), shape, np.uint8)
        self.observation_space = spaces.Dict({"letters": letters, "marks": marks})

    @cached_property
    def knowledge(self) -> Knowledge:
        """What clues say on these lists."""
        return build_knowledge(self.words)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game. options: {"secret": word} chooses the secret, which is drawn otherwise."""
        super().reset(seed=seed)
        secret = self._secrets[int(self.np_random.integers(len(self._secrets)))]
        for key, word in (options or {}).items():
            check_choice("options", key, ("secret",))
            if not isinstance(word, str) or word not in self.words.guess_index:
                raise ValueError(f"secret must be an allowed word in lower case, not {word!r}")
            secret = word
        self.game, self._earned = Game(secret, self.words.allowed_set, self.rules), 0.0
        return self._observe(), self._inform()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Guess the word with this index. Raises ValueError for no index, and after the end."""
        if not self.action_space.contains(action):
            last = len(self.words.allowed) - 1
            raise ValueError(f"action must be a whole number 0..{last}, not {action!r}")
        turn = self.game.play(self.words.allowed[int(action)])
        before, self._earned = self._earned, float(self.game.won)
        if self._rewards is not None:
            self._earned = self._rewards.reward(self.game).total
        over = self.game.status is not GameStatus.PLAYING
        return self._observe(), self._earned - before, over, False, self._inform(turn)

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The board as text, a line for each turn; None without render_mode="ansi"."""
        if self.render_mode is None:
            return None
        lines = ["....."] * self.rules.max_turns
        for turn in self.game.turns:
            # Actions are allowed words, so that nothing else is refused.
            marks = "ignores a clue" if turn.feedback is None else marks_of(turn.feedback)
            lines[turn.state.turn] = f"{turn.guess} {marks}"
        return "\n".join(lines)

    def _observe(self) -> Observation:
        shape = (self.rules.max_turns, WORD_LENGTH)
        letters, marks = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        for turn in self.game.turns:
            row = turn.state.turn
            letters[row] = [ord(letter) - ord("a") + 1 for letter in turn.guess or ""]
            if turn.feedback is not None:
                marks[row] = [MARKS.index(mark) + 1 for mark in marks_of(turn.feedback)]
        return {"letters": letters, "marks": marks}

    def _inform(self, turn: PlayedTurn | None = None) -> dict[str, Any]:
        """What is known besides the observation: of the turn, if any, and at the game's end."""
        info: dict[str, Any] = {}
        if turn is not None:
            info |= {"guess": turn.guess, "accepted": turn.feedback is not None}
        if self._candidates:
            info["candidates"] = np.zeros(len(self.words.allowed), dtype=bool)
            info["candidates"][self._answers] = self.knowledge.candidates(self.game.state)
        if self.game.status is not GameStatus.PLAYING:
            info |= {"won": self.game.won, "secret": self.game.secret}
        return info


if "WordleRL/Wordle-v0" not in gymnasium.registry:
    gymnasium.register(id="WordleRL/Wordle-v0", entry_point=WordleEnv)
