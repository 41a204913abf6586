"""Wordle as an agent loop of verl 0.9.1: a whole game is one rollout.

wordle-rl verl writes the settings of the loop and the rows that name it. The tokens that
the rollout server drew are the tokens that are trained on, and the text between them is masked. The
reward is the sum over the turns, with its breakdown in reward_extra_info. A won game ends.
"""

from __future__ import annotations

import functools
import json
import time
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (  # pyright: ignore[reportMissingImports]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from wordle_rl.adapters.verl.game import VerlGame, build_game, check_reward
from wordle_rl.adapters.verl.play import Drawn, play_served
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form, check_room

_STEPS = "min_global_steps", "max_global_steps"  # of the weights that a game was played with


class WordleLoop(AgentLoopBase):
    """Plays one game. verl makes an object of this class for each game."""

    def __init__(self, *args: Any, game: dict[str, Any], **kwargs: Any) -> None:
        """game: the settings that wordle_rl.adapters.verl.game.choose_settings() returned."""
        super().__init__(*args, **kwargs)
        # The word lists and the texts' tokens are the same for all games of a process.
        self.game = _build_game(json.dumps(game))
        self.form = _build_form(json.dumps(game), self.tokenizer, self._model_path)

    @property
    def _model_path(self) -> str:
        return str(self.config.actor_rollout_ref.model.path)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        game = self.game.begin(row.get("extra_info"))
        request, seconds, fields = uuid4().hex, 0.0, {}
        stops = sorted(self.form.chat.tokenizer.stop_ids)

        async def draw(ids: list[int], most: int) -> Drawn:
            nonlocal seconds
            begin = time.perf_counter()
            output = await self.server_manager.generate(
                request_id=request,
                prompt_ids=ids,
                sampling_params={**sampling_params, "max_tokens": most, "stop_token_ids": stops},
            )
            seconds += time.perf_counter() - begin
            if output.log_probs is None:
                raise ValueError(
                    "actor_rollout_ref.rollout.calculate_log_probs must be true for Wordle"
                )
            _note_steps(fields, output.extra_fields)
            return Drawn(ids=list(output.token_ids), logprobs=list(output.log_probs))

        talk = await play_served(game, self.form, self.game.limits, draw)
        begin = talk.answers[0].start
        score, breakdown = self.score(game)
        return AgentLoopOutput(
            prompt_ids=talk.ids[:begin],
            response_ids=talk.ids[begin:],
            response_mask=[int(drawn) for drawn in talk.trained[begin:]],
            response_logprobs=talk.logprobs[begin:],
            reward_score=score,
            num_turns=2 * len(game.turns),  # verl counts the messages of both sides
            metrics=AgentLoopMetrics(generate_sequences=seconds),
            extra_fields={
                **fields,
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": breakdown,
            },
        )

    def score(self, game: Any) -> tuple[float, dict[str, float]]:
        """The reward of a finished game, and its breakdown. Raises ValueError for no sum."""
        reward = self.game.score(game)
        score = self.sum_up(reward.turn_totals)
        check_reward(score, reward)
        return score, self.game.describe(game, reward)

    def sum_up(self, turns: tuple[float, ...]) -> float:
        """The reward of a game from the rewards of its turns."""
        return sum(turns)


def _note_steps(fields: dict[str, Any], found: dict[str, Any]) -> None:
    """Keep what a server says about an answer: the oldest and the newest weights of a game."""
    oldest = fields.get(_STEPS[0], found.get(_STEPS[0]))
    fields.update(found)
    fields[_STEPS[0]] = oldest


@functools.lru_cache(maxsize=2)  # one for each game that a process plays
def _build_game(settings: str) -> VerlGame:
    return build_game(json.loads(settings))


@functools.lru_cache(maxsize=2)
def _build_form(settings: str, tokenizer: Any, model_path: str) -> Form:
    """The form of the conversation. Raises ValueError if the first prompt does not fit."""
    from wordle_rl.backends.hf_tokenizer import HFTokenizer, read_stop_ids

    game = _build_game(settings)
    adapted = HFTokenizer(tokenizer, extra_stop_ids=read_stop_ids(model_path))
    form = build_form(game.form, Chat(adapted), game.style)
    limits, sampling = game.limits, Sampling(max_tokens=game.limits.max_tokens)
    check_room(form, sampling, limits.max_context, guesses=game.most_given)
    return form
