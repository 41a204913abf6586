"""A page with small players and a run folder, and what a browser would ask it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from wordle_rl.evaluation.summary import game_record
from wordle_rl.evaluation.turn_facts import TurnJudge
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import Player, Speaker
from wordle_rl.game.players.gibberish import Gibberish
from wordle_rl.game.players.greedy_entropy import GreedyEntropy
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.rules import Game, Rules
from wordle_rl.policy.sampling import Draws
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win
from wordle_rl.rollouts.opponent import Opponent
from wordle_rl.rollouts.scripted_actor import ScriptedActor
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder
from wordle_rl.web.app import Page
from wordle_rl.web.lobby import Choice, Lobby
from wordle_rl.web.run_view import RunView
from wordle_rl.web.server import guarded
from wordle_rl.words.lists import WordLists

PORT, TOKEN = 8123, "a-token_of.tests"
HOST = f"127.0.0.1:{PORT}"
ANSWERS = ("abbey", "crane", "crept", "mound", "slate", "sleep", "steel")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted({*ANSWERS, "salet", "zonal"})))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))


def opponent_of(player: Player | Speaker, rules: Rules | None = None) -> Opponent:
    return Opponent(
        name=player.name, knowledge=KNOWLEDGE, rules=rules or Rules(),
        rewards=RewardSet(components={"win": Win()}, weights={"win": 1.0}),
        secrets=ANSWERS, new_actor=lambda: ScriptedActor(player=player, draws=Draws(seed=0)),
    )  # fmt: skip


def broken() -> Opponent:
    raise ValueError("the model of this player is\ndamaged")


def choices() -> list[Choice]:
    solver = opponent_of(GreedyEntropy(KNOWLEDGE, opener="salet"))
    drawing = opponent_of(RandomConsistent(KNOWLEDGE))
    return [
        Choice(key="entropy", label="the solver", load=lambda: solver),
        Choice(key="consistent", label="whatever fits", load=lambda: drawing),
        Choice(key="gibberish", label="gibberish", load=lambda: opponent_of(Gibberish())),
        Choice(key="hard", label="hard mode", load=lambda: opponent_of(
            RandomConsistent(KNOWLEDGE), Rules(hard_mode=True))),
        Choice(key="broken", label="a broken one", load=broken),
    ]  # fmt: skip


def game(secret: str, guesses: Sequence[str | None]) -> Game:
    played = Game(secret, WORDS.allowed_set)
    for guess in guesses:
        played.play(guess, text=f"<guess>{guess}</guess>", reason=None if guess else "empty")
    return played


def make_run(folder: Path) -> RunFolder:
    """A run with 60 steps and four games."""
    run = RunFolder.create(folder, "shown")
    run.write_manifest(seeds={"seed": 0}, digests={}, command=["train.py"])
    metrics, games = run.metrics_log(), run.games_log()
    for step in range(1, 61):
        more = {"val/win_rate": step / 80} if step % 20 == 0 else {}
        metrics.append(step, {"train/win_rate": step / 100, "reward/mean": 1.0, **more})
    won = game("slate", ["crane", "slate"])
    lost = game("mound", ["crane", None, "zzzzz", "slate", "sleep", "steel"])
    reward = RewardSet(components={"win": Win()}, weights={"win": 1.0})
    for step, played in ((20, lost), (40, won), (60, lost), (60, won)):
        games.append(step, {"split": "val", **game_record(played, reward.score(played))})
    StepLog(run.path / "start_games.jsonl").append(0, {"split": "test", **game_record(lost)})
    return run


@dataclass(frozen=True)
class Browser:
    """Asks as the page's own JavaScript does."""

    client: TestClient

    def ask(self, name: str, **fields: Any) -> Any:
        status, answer = self.try_to_ask(name, **fields)
        assert status == 200, answer
        return answer

    def try_to_ask(self, name: str, **fields: Any) -> tuple[int, Any]:
        response = self.client.post(
            f"/{TOKEN}/api/{name}",
            content=json.dumps(fields),
            headers={"content-type": "application/json"},
        )
        return response.status_code, response.json()

    def refused(self, name: str, **fields: Any) -> tuple[int, str]:
        status, answer = self.try_to_ask(name, **fields)
        assert status >= 400 and list(answer) == ["error"]
        assert "\n" not in answer["error"]
        return status, answer["error"]


def open_page(run: RunFolder | None = None, secret: str | None = None) -> Browser:
    view = None if run is None else RunView(run, lambda: TurnJudge(KNOWLEDGE))
    page = Page(Lobby(choices()), view, secret)
    return Browser(TestClient(guarded(page, TOKEN, PORT), base_url=f"http://{HOST}"))
