"""Small players for tests of the page, and a server in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import GreedyEntropy, Player, RandomConsistent
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.web.opponent import Choice, Opponent
from wordle_rl.web.server import Page, build_app
from wordle_rl.words.lists import WordLists

ANSWERS = ("abbey", "crane", "crept", "mound", "slate", "sleep", "steel")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted({*ANSWERS, "salet", "zonal"})))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))


def opponent_of(player: Player, rules: Rules | None = None, **more: Any) -> Opponent:
    return Opponent(
        knowledge=KNOWLEDGE, rules=rules or Rules(),
        rewards=RewardSet(components={"win": Win()}, weights={"win": 1.0}),
        secrets=ANSWERS, seat=lambda: ScriptedPlayer(player=player, draws=Draws(seed=0), **more),
    )  # fmt: skip


def load(player: str) -> Opponent:
    match player:
        case "entropy":
            return opponent_of(GreedyEntropy(KNOWLEDGE, opener="salet"))
        case "consistent":
            return opponent_of(RandomConsistent(KNOWLEDGE))
        case "hard":
            return opponent_of(RandomConsistent(KNOWLEDGE), Rules(hard_mode=True))
    raise ValueError("the model of this player is\ndamaged")


def small_page(secret: str | None = None) -> Page:
    """A page of scripted players on seven words."""
    keys = ("entropy", "consistent", "hard", "broken")
    choices = {key: Choice(label=f"the {key} one", settings={"player": key}) for key in keys}
    return Page({**choices, "mini": choices["consistent"]}, load, secret)


@contextmanager
def served_page(page: Page) -> Iterator[str]:
    """Serve a page in a thread, and yield its address."""
    import uvicorn

    config = uvicorn.Config(build_app(page), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)
    page.close()
