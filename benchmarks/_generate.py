"""Players that get their answers from `transformers.generate`, as a user would write them.

FreshActor calls generate anew each turn, over the whole conversation. CachedActor keeps the cache
from turn to turn, feeds only what is new, and does everything that was found to help on CPU:

- It computes the opening once, because all games share it.
- It plays all games in one batch and drops the finished ones.
- It uses no logits processors, and asks for no log-probs or other outputs.
- It runs in inference mode, on weights cast once.

Three settings are chosen by timing them: the precision, the attention, and whether to squeeze out
the padding that unequal answers leave in the cache.

These were slower on the embedded model and are left out:

- a batch for each length, which needs no masks but makes batches small
- StaticCache, compiled or not
- generate_batch (continuous batching)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from benchmarks._scene import Scene, copy_to_play
from benchmarks._timing import fastest
from wordle_rl.backends.torch.timing import DTYPES
from wordle_rl.game.rules import PlayedTurn, State
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.sampling import Sampling
from wordle_rl.prompts.parser import parse
from wordle_rl.rollouts.play import Reply, new_games, play

Answers = list[list[list[int]]]  # [games][turns] sampled ids


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How to call generate."""

    keeps_cache: bool  # from turn to turn
    attention: str  # one of transformers' own implementations
    squeezed: bool = False  # whether padding inside the cache is removed before each turn
    precision: Precision = "fp32"

    def __str__(self) -> str:
        cache = "cache kept" if self.keeps_cache else "fresh call per turn"
        squeezed = ", squeezed" if self.squeezed else ""
        return f"{cache}, {self.attention}{squeezed}, {self.precision}"


FRESH = [GenerateSettings(keeps_cache=False, attention=a) for a in ("sdpa", "eager")]
CACHED = [
    GenerateSettings(keeps_cache=True, attention=a, squeezed=s)
    for a in ("sdpa", "eager")
    for s in (False, True)
]


class FreshActor:
    """Calls generate once per turn over the whole conversation, padded on the left.

    Implements wordle_rl.rollouts.play.Actor.
    """

    def __init__(
        self, model: Any, scene: Scene, settings: GenerateSettings, sampling: Sampling
    ) -> None:
        model.set_attn_implementation(settings.attention)
        self._model = model
        self._scene = scene
        self._stops = scene.tokenizer.stop_ids
        self._pad = scene.tokenizer.pad_id
        # At temperature 1 over the whole distribution, generate leaves out all logits processors.
        drawing = {"do_sample": False}
        if sampling.temperature:
            drawing = {"do_sample": True, "temperature": sampling.temperature, "top_k": 0}
        self._config = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            pad_token_id=self._pad,
            eos_token_id=sorted(self._stops) or None,
            **drawing,
        )
        self._settings = settings
        self.answers: Answers = []
        self.prompts: list[list[list[int]]] = []  # [games][turns] ids read before each answer

    def start(self, states: Sequence[State]) -> list[bool]:
        style, chat = self._scene.recipe.style, self._scene.form.chat
        opening = {m: chat.opening(style.system, m) for m in {style.opening(s) for s in states}}
        self.prompts = [[opening[style.opening(state)]] for state in states]
        self.answers = [[] for _ in states]
        return [True] * len(states)

    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        return self._replies(games, self.draw([self._conversation(game) for game in games]))

    @torch.inference_mode()
    def draw(self, rows: list[list[int]]) -> list[list[int]]:
        """The tokens after each conversation. Anything may follow a stop token."""
        ids, mask = self._padded(rows)
        drawn = self._model.generate(ids, attention_mask=mask, generation_config=self._config)
        return drawn[:, ids.shape[1] :].tolist()

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        style, chat = self._scene.recipe.style, self._scene.form.chat
        for game, turn, state in zip(games, turns, states, strict=True):
            message = style.feedback(turn, state)
            last = self.answers[game][-1][-1]
            self.prompts[game].append(chat.reply(message, last_id=last))
        return [True] * len(games)

    def leave(self, games: Sequence[int]) -> None:
        pass

    def _conversation(self, game: int) -> list[int]:
        prompts, answers = self.prompts[game], [*self.answers[game], []]
        return [i for turn in zip(prompts, answers, strict=True) for part in turn for i in part]

    def _padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(map(len, rows))
        ids = torch.tensor([[self._pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return ids, mask

    def _replies(self, games: Sequence[int], drawn: list[list[int]]) -> list[Reply]:
        """The answer of each row, up to its stop token."""
        replies = []
        for game, row in zip(games, drawn, strict=True):
            end = next((i + 1 for i, token in enumerate(row) if token in self._stops), len(row))
            answer = row[:end]
            self.answers[game].append(answer)
            text = self._scene.tokenizer.decode(answer)
            stopped = answer[-1] in self._stops
            replies.append(
                Reply(text=text, parsed=parse(text), tokens=len(answer), complete=stopped)
            )
        return replies


class CachedActor(FreshActor):
    """Keeps one cache for all games and feeds it only what is new."""

    def __init__(
        self, model: Any, scene: Scene, settings: GenerateSettings, sampling: Sampling
    ) -> None:
        super().__init__(model, scene, settings, sampling)
        self._held = GameCache(DynamicCache(config=model.config))

    @torch.inference_mode()
    def start(self, states: Sequence[State]) -> list[bool]:
        begun = super().start(states)
        opening = self.prompts[0][0]
        if any(prompt != [opening] for prompt in self.prompts):
            raise ValueError("all games must have the same opening")
        cache, ids = self._held.cache, torch.tensor([opening[:-1]])
        # generate needs at least one new token, so it gets the last one of the opening.
        self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(states))
        self._held.mask = torch.ones(len(states), len(opening) - 1, dtype=torch.long)
        self._held.games = list(range(len(states)))
        self._unfed = {game: opening[-1:] for game in self._held.games}
        return begun

    @torch.inference_mode()
    def answer(self, games: Sequence[int], states: Sequence[State], turn: int) -> list[Reply]:
        self._held.keep(list(games), squeezed=self._settings.squeezed)
        ids, mask = self._padded([self._unfed[game] for game in games])
        mask = torch.cat([self._held.mask, mask], dim=1)
        drawn = self._model.generate(
            ids, attention_mask=mask, past_key_values=self._held.cache,
            generation_config=self._config,
        )[:, ids.shape[1] :]  # fmt: skip
        replies = self._replies(games, drawn.tolist())
        # All columns but the last went through the model. What follows a row's end is padding.
        fed = drawn.shape[1] - 1
        lengths = torch.tensor([len(self.answers[game][-1]) for game in games])
        self._held.mask = torch.cat([mask, (torch.arange(fed) < lengths[:, None]).long()], dim=1)
        self._unfed = {game: self.answers[game][-1][fed:] for game in games}
        return replies

    def hear(
        self, games: Sequence[int], turns: Sequence[PlayedTurn], states: Sequence[State]
    ) -> list[bool]:
        heard = super().hear(games, turns, states)
        for game in games:
            self._unfed[game] = self._unfed[game] + self.prompts[game][-1]
        return heard


@dataclass
class GameCache:
    """The keys and values of the games that are still being played."""

    cache: DynamicCache
    games: list[int] = field(default_factory=list)  # of each row
    mask: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))

    def keep(self, games: list[int], *, squeezed: bool) -> None:
        """Drop the other games and, if asked for, the padding inside the rows."""
        row = {game: i for i, game in enumerate(self.games)}
        rows = torch.tensor([row[game] for game in games])
        if games != self.games:
            self.cache.batch_select_indices(rows)
            self.games, self.mask = games, self.mask[rows]
        if squeezed and not self.mask.all():
            width = int(self.mask.sum(dim=1).max())
            # A stable sort moves padding to the left and leaves tokens in their order.
            order = self.mask.argsort(dim=1, stable=True)[:, -width:]
            self.mask = self.mask.gather(1, order)
            layers: list[Any] = self.cache.layers
            for layer in layers:
                shape = (-1, layer.keys.shape[1], -1, layer.keys.shape[3])
                index = order[:, None, :, None].expand(shape)
                layer.keys = layer.keys.gather(2, index)
                layer.values = layer.values.gather(2, index)


def generate_actor(
    model: Any, scene: Scene, settings: GenerateSettings, sampling: Sampling
) -> FreshActor:
    kind = CachedActor if settings.keeps_cache else FreshActor
    return kind(model, scene, settings, sampling)


def generate_games(
    model: Any, scene: Scene, settings: GenerateSettings, step: int, *, sampling: Sampling
) -> Answers:
    """Plays the games of a step. Each step has its own random numbers."""
    torch.manual_seed(step)
    actor = generate_actor(model, scene, settings, sampling)
    play(actor, new_games(scene.secrets(step), scene.recipe.words, scene.recipe.rules))
    return actor.answers


def fastest_generate(scene: Scene, choices: list[GenerateSettings]) -> GenerateSettings:
    """The settings with which generate plays the scene's games fastest, precision included.

    The precision is chosen with the first settings and fewer games.
    """
    models = {precision: copy_to_play(scene.network, precision) for precision in DTYPES}

    def tried(scene: Scene, choices: list[GenerateSettings]) -> GenerateSettings:
        play_with = partial(generate_games, sampling=scene.recipe.sampling)
        return fastest({c: partial(play_with, models[c.precision], scene, c) for c in choices})

    both = [replace(choices[0], precision=precision) for precision in DTYPES]
    precision = tried(scene.smaller, both).precision
    return tried(scene, [replace(choice, precision=precision) for choice in choices])
