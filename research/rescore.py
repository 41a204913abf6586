"""What a run's stored games would have earned under other rewards.

    python research/rescore.py outputs/<run> reward=phase2 reward.components.win.weight=3

Prints the mean reward of a game by component, as it was and as it would be: of the training games
in games.jsonl, and of the first and the last validation, by their steps. Nothing is played again.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from wordle_rl.commands.eval_players import Tournament, build_tournament, read_settings
from wordle_rl.commands.resume import list_keys
from wordle_rl.evaluation.summary import reward_means
from wordle_rl.game.rules import Clue, Game, GameStatus, State, feedback_code
from wordle_rl.prompts.parser import thought_of
from wordle_rl.rewards.brevity import Brevity
from wordle_rl.rewards.scoring import GameReward, RewardSet, build_reward_set
from wordle_rl.rollouts.play import new_games
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.files import FolderError, StepLog
from wordle_rl.runs.folder import RunFolder, find_run
from wordle_rl.runs.instantiate import ConfigError


def rescore(run: str, settings: Sequence[str]) -> None:
    """Judge the stored games of a run by other rewards.

    run: its folder, or latest. settings: reward=..., also reward.components.win.weight=3 and such.
    """
    if keys := [key for key in sorted(list_keys(settings)) if key.partition(".")[0] != "reward"]:
        raise ConfigError(f"rescore takes reward=... and reward.<key>=..., not {keys[0]}")
    overrides = [f"run={run}", *settings]
    config, options = read_settings(compose_config("eval", overrides), overrides)
    tournament = build_tournament(config, options)
    rewards = build_reward_set(config["reward"], tournament.knowledge, config["form"])
    if names := [name for name, part in rewards.components.items() if isinstance(part, Brevity)]:
        raise ConfigError(f"reward.components.{names[0]} must be null: tokens are not stored")
    columns: dict[str, dict[str, float]] = {}
    for title, log, step in _list_games(find_run(config["run"])):
        split = title.partition(" ")[0]
        before, now = [], []
        for record in log.records():
            if record.get("split", split) != split or step not in (None, record["step"]):
                continue
            try:
                game, turns = _play_again(record, tournament), record["reward"]["turns"]
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise FolderError(f"{log.path}: no game of this run ({error!r})") from None
            before.append(GameReward(turns=tuple(turns)))
            now.append(_reward_game(game, rewards, by_turn="candidates" in record))
        if now:
            suffix = "" if step is None else f" after {step} steps"
            print(f"{len(now):,} games of {split}{suffix}")
            columns |= {title: reward_means(before), f"{title} now": reward_means(now)}
    _print_means(columns)


def _list_games(folder: RunFolder) -> list[tuple[str, StepLog, int | None]]:
    """Titles of columns, each with the log and the step of its games. None means all steps."""
    log = folder.log("validation_games")
    steps = [one["step"] for one in log.records() if one.get("split", "val") == "val"]
    ends = dict.fromkeys(steps[:1] + steps[-1:])
    return [("train", folder.log("games"), None), *((f"val {step}", log, step) for step in ends)]


def _reward_game(game: Game, rewards: RewardSet, *, by_turn: bool) -> GameReward:
    """by_turn: of rollout=best_of, where each turn has a reward of its own."""
    parts = [[turn] for turn in game.turns] if by_turn else [game.turns]
    rest = game.state.max_turns - game.state.turn if game.lost else 0
    scores = [rewards.reward_turns(turns, unplayed=0).turns for turns in parts[:-1]]
    scores += [rewards.reward_turns(turns, unplayed=rest).turns for turns in parts[-1:]]
    return GameReward(turns=tuple(turn for part in scores for turn in part))


def _print_means(columns: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table with a row for each component of the rewards."""
    width = max(map(len, [*columns, " " * 10]))
    print(f"{'mean of a game':15}", *(f"{name:>{width}}" for name in columns))
    for name in dict.fromkeys(name for means in columns.values() for name in means):
        values = (means.get(name) for means in columns.values())
        print(f"{name:15}", *(f"{'-' if m is None else f'{m:.3f}':>{width}}" for m in values))
    print(f"{'total':15}", *(f"{sum(means.values()):>{width}.3f}" for means in columns.values()))
    print("credit, forfeit and retry are corrections by the laws of rewards (reward.lawful)")


def _play_again(record: dict[str, Any], tournament: Tournament) -> Game:
    """The game of a record, by the rules and words of its run."""
    secret, guesses = record["secret"], [guess for guess, _ in record["clues_at_start"]]
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    start = State(clues, len(clues), tournament.rules.max_turns)
    [game] = new_games([secret], tournament.words, tournament.rules, [start])
    answers = zip(record["guesses"], record["texts"], record["reasons"], strict=True)
    for guess, text, reason in answers:
        game.play(guess, text=text, thought=thought_of(text), reason=reason)
    if record["status"] == GameStatus.LOST and game.status is GameStatus.PLAYING:
        game.forfeit(context_full=True)
    if [str(turn.kind) for turn in game.turns] != record["kinds"]:
        raise ValueError("its answers count otherwise by the words and rules of the run")
    return game


if __name__ == "__main__":
    with user_errors():
        rescore(sys.argv[1], sys.argv[2:])
