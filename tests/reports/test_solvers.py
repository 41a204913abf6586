"""solvers.json holds what the scripted players do on every answer."""

import json

import pytest

from wordle_rl.commands.build import PLAYERS
from wordle_rl.evaluation.solvers import FILE
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws, Stream
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets


def digits_of(name: str, limit: int | None = None) -> dict[str, str]:
    """Secret -> guesses, 7 for a loss, in the order in which eval.py plays words.split=all."""
    words, rules = load_words(), Rules()
    draws = Draws(seed=0, stream=Stream.EVALUATION, first_rollout=0)
    player = PLAYERS[name](Knowledge(words, feedback_table(words)))
    secrets = split_secrets(words).secrets("all")[:limit]
    games = play(ScriptedPlayer(player=player, draws=draws), new_games(secrets, words, rules))
    loss = rules.max_turns + 1
    return {game.secret: str(game.state.turn if game.won else loss) for game in games}


def record_of(name: str) -> dict[str, str]:
    record = json.loads(FILE.read_text())
    return dict(zip(load_words().answers, record["guesses"][name], strict=True))


@pytest.mark.parametrize("name", ["random_consistent", "entropy"])
def test_the_file_is_what_the_players_do_on_the_first_secrets(name):
    assert digits_of(name, 12).items() <= record_of(name).items()


@pytest.mark.slow
def test_the_file_is_what_the_players_do_on_all_answers(tmp_path):
    """On a difference, the new file is in the test's folder: copy it if the change is meant."""
    answers = load_words().answers
    table = {name: digits_of(name) for name in json.loads(FILE.read_text())["guesses"]}
    text = {name: "".join(digits[a] for a in answers) for name, digits in table.items()}
    path = tmp_path / "solvers.json"
    path.write_text(json.dumps({"words": load_words().digest, "guesses": text}, indent=2) + "\n")
    assert path.read_text() == FILE.read_text(), f"{path} differs from {FILE}"
