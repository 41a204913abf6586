"""Wordle as an agent loop of verl 0.9.1: a whole game is one rollout.

It plays as ModelPlayer in rollouts/play.py does, so equal draws give equal games. The tokens that
the rollout server drew are the tokens that are trained on, and the text between them is masked. The
reward is the sum over the turns, with its breakdown in reward_extra_info.
"""

import functools
import json
import time
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput  # pyright: ignore[reportMissingImports]
from verl_game import VerlGame

from wordle_rl.game.rules import GameStatus
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form, check_room
from wordle_rl.rollouts.play import hear, say

_OLDEST = "min_global_steps"  # of the weights that a game was played with


class WordleLoop(AgentLoopBase):
    """Plays one game. verl makes an object of this class for each game."""

    def __init__(self, *args: Any, game: dict[str, Any], **kwargs: Any) -> None:
        """game: the settings that verl_game.choose_settings() returned."""
        super().__init__(*args, **kwargs)
        path = str(self.config.actor_rollout_ref.model.path)
        self.game, self.form = _build(json.dumps(game), self.tokenizer, path)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        game = self.game.begin(row.get("extra_info"))
        request, seconds, fields, talk = uuid4().hex, 0.0, {}, None
        stops = sorted(self.form.chat.tokenizer.stop_ids)
        while game.status is GameStatus.PLAYING and len(game.turns) != self.game.answers:
            next_talk = hear(self.form, game, talk, self.game.max_context)
            if next_talk is None:  # a game that does not fit is lost, as in training here
                game.forfeit()
                break
            talk = next_talk
            limit = min(self.game.max_tokens, self.game.max_context - len(talk.ids))
            begin = time.perf_counter()
            output = await self.server_manager.generate(
                request_id=request,
                prompt_ids=talk.ids,
                sampling_params={**sampling_params, "max_tokens": limit, "stop_token_ids": stops},
            )
            seconds += time.perf_counter() - begin
            ids, logprobs = _read_answer(output, limit)
            talk.answer(ids, len(game.turns), logprobs)
            say(self.form, game, ids, complete=ids[-1] in stops)
            oldest = fields.get(_OLDEST, output.extra_fields.get(_OLDEST))
            fields = {**output.extra_fields, _OLDEST: oldest}
        assert talk is not None, "check_room() knows that the first prompt fits"
        begin = talk.answers[0].start
        reward = self.game.reward(game)
        return AgentLoopOutput(
            prompt_ids=talk.ids[:begin],
            response_ids=talk.ids[begin:],
            response_mask=[int(drawn) for drawn in talk.trained[begin:]],
            response_logprobs=talk.logprobs[begin:],
            reward_score=reward.total,
            num_turns=2 * len(game.turns),  # verl counts the messages of both sides
            metrics=AgentLoopMetrics(generate_sequences=seconds),
            extra_fields={
                **fields,
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": self.game.describe(game, reward),
            },
        )


def _read_answer(output: Any, limit: int) -> tuple[list[int], list[float]]:
    """Tokens and their log-probabilities. Raises ValueError if they cannot be trained on."""
    if output.log_probs is None:
        raise ValueError("actor_rollout_ref.rollout.calculate_log_probs must be true for Wordle")
    ids, logprobs = list(output.token_ids), list(output.log_probs)
    if not 1 <= len(ids) <= limit or len(logprobs) != len(ids):
        raise ValueError(
            f"an answer of the server must have 1 to {limit} tokens with a log-probability each, "
            f"not {len(ids)} with {len(logprobs)}"
        )
    return ids, logprobs


@functools.lru_cache(maxsize=2)  # one for each kind of game that a process plays
def _build(settings: str, tokenizer: Any, model_path: str) -> tuple[VerlGame, Form]:
    """What all games share: word lists, texts as tokens. Raises ValueError if a prompt is too long.

    settings: as JSON.
    """
    from wordle_rl.backends.loading import read_stop_ids

    game = VerlGame(json.loads(settings))
    wrapper = HFTokenizer(tokenizer, extra_stop_ids=read_stop_ids(model_path))
    form = build_form(game.form, Chat(wrapper), game.style)
    sampling = Sampling(max_tokens=game.max_tokens)
    check_room(form, sampling, game.max_context, guesses=game.most_earlier_guesses)
    return game, form
