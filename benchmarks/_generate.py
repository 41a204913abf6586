"""Players that get their answers from `transformers.generate`, as a user would write them.

FreshPlayer calls generate anew each turn, over the whole conversation. CachedPlayer does all that
was found to help on CPU: it keeps the cache from turn to turn, computes the shared opening once,
plays all games in one batch, drops finished ones, uses no logits processors, and runs in inference
mode on weights cast once. Precision, attention, and whether to squeeze padding out of the cache are
chosen by timing. A batch for each length, StaticCache and generate_batch were slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from benchmarks._scene import Scene, copy_to_play
from benchmarks._timing import fastest
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.game.rules import Game
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.play import hear, new_games, play, say
from wordle_rl.rollouts.talk import Talk

Answers = list[list[list[int]]]  # [games][turns] sampled ids
_LONGEST = 100_000  # tokens; no game comes near


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How to call generate."""

    keeps_cache: bool  # from turn to turn
    attention: str  # one of transformers' own implementations
    squeezed: bool = False  # whether padding inside the cache is removed before each turn
    precision: Precision = "fp32"

    def __str__(self) -> str:
        cache = "cache kept" if self.keeps_cache else "fresh call per turn"
        note = ", squeezed" if self.squeezed else ""
        return f"{cache}, {self.attention}{note}, {self.precision}"


FRESH = [GenerateSettings(keeps_cache=False, attention=a) for a in ("sdpa", "eager")]
CACHED = [
    GenerateSettings(keeps_cache=True, attention=a, squeezed=s)
    for a in ("sdpa", "eager")
    for s in (False, True)
]


class FreshPlayer:
    """Calls generate once per turn over the whole conversation, padded on the left.

    Is a wordle_rl.rollouts.play.Player.
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
        self.talks: list[Talk] = []  # of each game

    def __call__(self, games: Mapping[int, Game], turn: int) -> None:
        if turn == 0:
            self._begin(list(games.values()))
        for number, game in games.items():
            self._hear(number, game)
        rows = self._answer(list(games))
        for (number, game), row in zip(games.items(), rows, strict=True):
            end = next((i + 1 for i, token in enumerate(row) if token in self._stops), len(row))
            self.talks[number].answer(row[:end], turn)
            say(self._scene.form, game, row[:end], complete=row[end - 1] in self._stops)

    def _begin(self, games: list[Game]) -> None:
        self.talks = [Talk() for _ in games]

    def _hear(self, number: int, game: Game) -> None:
        """Add what comes before a game's next answer to its conversation."""
        talk = hear(self._scene.form, game, self.talks[number] if game.turns else None, _LONGEST)
        assert talk is not None
        self.talks[number] = talk

    @torch.inference_mode()
    def draw(self, rows: list[list[int]]) -> list[list[int]]:
        """The tokens after each conversation. Anything may follow a stop token."""
        ids, mask = self._padded(rows)
        drawn = self._model.generate(ids, attention_mask=mask, generation_config=self._config)
        return drawn[:, ids.shape[1] :].tolist()

    def _answer(self, numbers: list[int]) -> list[list[int]]:
        return self.draw([self.talks[number].ids for number in numbers])

    def _padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(map(len, rows))
        ids = torch.tensor([[self._pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return ids, mask


class CachedPlayer(FreshPlayer):
    """Keeps one cache for all games and feeds it only what is new."""

    def __init__(
        self, model: Any, scene: Scene, settings: GenerateSettings, sampling: Sampling
    ) -> None:
        super().__init__(model, scene, settings, sampling)
        self._store = GameCache(DynamicCache(config=model.config))

    @torch.inference_mode()
    def _begin(self, games: list[Game]) -> None:
        super()._begin(games)
        openings = [self._scene.form.opening(game.state) for game in games]
        opening = openings[0]
        if any(other != opening for other in openings):
            raise ValueError("all games must have the same opening")
        cache, ids = self._store.cache, torch.tensor([opening[:-1]])
        # generate needs at least one new token, so it gets the last one of the opening.
        self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(games))
        self._store.mask = torch.ones(len(games), len(opening) - 1, dtype=torch.long)
        self._store.games = list(range(len(games)))
        self._positions = dict.fromkeys(self._store.games, len(opening) - 1)

    @torch.inference_mode()
    def _answer(self, numbers: list[int]) -> list[list[int]]:
        self._store.keep(numbers, squeezed=self._settings.squeezed)
        talks = [self.talks[number] for number in numbers]
        tails = [talk.ids[self._positions[n] :] for n, talk in zip(numbers, talks, strict=True)]
        ids, mask = self._padded(tails)
        mask = torch.cat([self._store.mask, mask], dim=1)
        drawn = self._model.generate(
            ids, attention_mask=mask, past_key_values=self._store.cache,
            generation_config=self._config,
        )[:, ids.shape[1] :].tolist()  # fmt: skip
        # All columns but the last went through the model. What follows a row's end is padding.
        width, lengths = len(drawn[0]) - 1, []
        for number, talk, row in zip(numbers, talks, drawn, strict=True):
            end = next((i + 1 for i, token in enumerate(row) if token in self._stops), len(row))
            lengths.append(end)
            self._positions[number] = len(talk.ids) + min(end, width)
        marks = torch.arange(width) < torch.tensor(lengths)[:, None]
        self._store.mask = torch.cat([mask, marks.long()], dim=1)
        return drawn


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


def generate_player(model: Any, scene: Scene, settings: GenerateSettings, *more: Any) -> Any:
    return (CachedPlayer if settings.keeps_cache else FreshPlayer)(model, scene, settings, *more)


def generate_games(
    model: Any, scene: Scene, settings: GenerateSettings, step: int, *, sampling: Sampling
) -> Answers:
    """Plays the games of a step. Each step has its own random numbers."""
    torch.manual_seed(step)
    player = generate_player(model, scene, settings, sampling)
    play(player, new_games(scene.secrets(step), scene.recipe.words, scene.recipe.rules))
    return [[t.ids[part.start : part.stop] for part in t.answers.values()] for t in player.talks]


def fastest_generate(scene: Scene, choices: list[GenerateSettings]) -> GenerateSettings:
    """The fastest settings. The precision is chosen with the first ones and fewer games."""
    models = {precision: copy_to_play(scene.network, precision) for precision in DTYPES}

    def pick(scene: Scene, choices: list[GenerateSettings]) -> GenerateSettings:
        play_with = partial(generate_games, sampling=scene.recipe.sampling)
        return fastest({c: partial(play_with, models[c.precision], scene, c) for c in choices})

    candidates = [replace(choices[0], precision=precision) for precision in DTYPES]
    precision = pick(scene.smaller, candidates).precision
    return pick(scene, [replace(choice, precision=precision) for choice in choices])
