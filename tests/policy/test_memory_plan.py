"""The arithmetic of memory plans, against numbers that were calculated by hand."""

from __future__ import annotations

import pytest

from wordle_rl.policy.memory_plan import (
    GB,
    GameSize,
    Kept,
    Learning,
    Linear,
    MemoryPlan,
    Playing,
    choose_micro_batch,
    fill_micro_batch,
    find_largest,
    game_size,
    usable,
)
from wordle_rl.policy.memory_table import fits, format_table


def plan(**changes: object) -> MemoryPlan:
    """10 GB always, 1 GB a game while playing, and 30 or 5 GB of activations while learning."""
    nothing = Linear(fixed=0, each=0)
    playing = Playing(keys_values=Linear(fixed=0, each=GB), logits=nothing, states=nothing)
    fields: dict = {
        "games": 20,
        "held_out_games": 10,
        "micro_batch_tokens": 100,
        "game": game_size(
            opening=5, feeds=[], answer=5, trained_answers=1, fresh=False, max_context=99
        ),
        "kept": Kept(
            parameters=1, trained=1, weights=int(7 * GB), adapters=int(GB), reference=0,
            optimizer=int(2 * GB), gradients=int(GB), step=0,
        ),
        "playing": playing,
        "held_out": playing,
        "learning": Learning(activations=int(30 * GB), logits=int(2 * GB), backward=int(GB)),
        "checkpointing": Learning(
            activations=int(5 * GB), logits=int(2 * GB), backward=int(3 * GB)
        ),
    }  # fmt: skip
    return MemoryPlan(**(fields | changes))


@pytest.mark.parametrize("largest", [0, 1, 7, 99, 100])
def test_the_largest_number_that_fits_is_found(largest):
    assert find_largest(lambda number: number <= largest, 100) == largest


def test_a_micro_batch_is_halved_until_it_fits():
    assert choose_micro_batch(4096, lambda tokens: 10 * tokens, 10_300) == 1024
    assert choose_micro_batch(4096, lambda tokens: 10 * tokens, 10_300, least=2048) == 0


def test_a_conversation_holds_all_prompts_and_answers():
    game = game_size(
        opening=100, feeds=[10, 30, 20], answer=50, trained_answers=4, fresh=False, max_context=999
    )
    assert (game.whole, game.feed, game.trained) == (100 + 60 + 4 * 50, 30, 200)


def test_a_game_is_no_longer_than_the_context():
    game = game_size(
        opening=100, feeds=[10] * 5, answer=50, trained_answers=6, fresh=False, max_context=256
    )
    assert (game.whole, game.trained) == (256, 156)


def test_fresh_prompts_hold_one_answer():
    game = game_size(
        opening=100, feeds=[120, 140], answer=50, trained_answers=3, fresh=True, max_context=999
    )
    assert (game.whole, game.feed, game.trained) == (190, 140, 50)


def test_the_peak_is_the_largest_phase():
    one = plan()
    assert one.while_training() == one.while_playing == 30 * GB  # 10 + 20 games
    assert one.while_held_out() == 20 * GB
    assert one.while_learning() == 43 * GB  # 10 + 1 + 30 + 2
    assert one.total == 43 * GB
    lean = plan(uses_checkpointing=True)
    assert lean.while_learning() == 19 * GB  # 10 + 1 + 5 + 3
    assert lean.total == 30 * GB


def test_logits_and_other_states_do_not_exist_at_the_same_time():
    playing = Playing(
        keys_values=Linear(fixed=0, each=10),
        logits=Linear(fixed=0, each=7),
        states=Linear(fixed=100, each=4),  # joined weights, and states of each game
    )
    assert playing.at(5) == 50 + 100 + 35


def test_machines_leave_a_share_to_drivers_and_to_the_screen():
    assert usable(100.0, "cuda") == pytest.approx(92.0)
    assert usable(24 * GB, "mlx") == pytest.approx(16 * GB)
    assert usable(48 * GB, "mlx") == pytest.approx(36 * GB)


def test_the_table_says_what_must_change_to_fit():
    assert fits(plan(), 80, "cuda") == "yes"
    assert fits(plan(), 40, "cuda") == "yes, checkpointing"
    assert fits(plan(), 24, "cuda") == "12 games, checkpointing"  # 22.08 - 10 GB
    assert fits(plan(), 10, "cuda") == "no"


def test_games_outside_training_must_fit_too():
    assert plan(held_out_games=25).while_playing == 35 * GB
    assert fits(plan(games=2), 21, "cuda") == "9 games, checkpointing"  # 19.32 - 10 GB
    taught = plan(games=0, uses_checkpointing=True)  # a teacher plays in training
    assert taught.while_training() == 10 * GB
    assert fits(taught, 24, "cuda") == "yes, checkpointing"
    assert fits(taught, 21, "cuda") == "9 games, checkpointing"


def test_the_table_has_a_column_for_each_plan():
    lines = format_table(
        ["few", "many"], [plan(games=2, held_out_games=1), plan()], "cuda"
    ).splitlines()
    assert lines[0].split() == ["few", "many"]
    rows = {line[:26].strip(): line[26:].split() for line in lines}
    assert rows["keys and values"] == ["2.00", "20.00"]
    assert rows["weights"] == ["7.00", "7.00"]


def test_games_that_are_shorter_than_the_longest_fill_a_micro_batch():
    game = GameSize(opening=20, feed=5, whole=100, trained=70)
    assert fill_micro_batch(game, 400) == (game, 4)
    assert fill_micro_batch(game, 199) == (GameSize(opening=20, feed=5, whole=99, trained=70), 2)
    # Two games of 55 tokens fill 110, of which the opening is not trained.
    assert fill_micro_batch(game, 110) == (GameSize(opening=20, feed=5, whole=55, trained=35), 2)
    assert fill_micro_batch(game, 30) == (game, 1)
