"""What the page can be asked: games, thoughts, boards, replays and a run in progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.web_page import ANSWERS, Browser, make_run, open_page
from wordle_rl.game.rules import marks
from wordle_rl.runs.folder import RunFolder


@pytest.fixture
def browser() -> Browser:
    return open_page()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path)


def test_a_person_plays_to_a_win(browser):
    match = open_page(secret="mound").ask("new", player="entropy")
    assert match["rows"] == match["their_rows"] == [] and match["secret"] is None
    browser = open_page(secret="mound")
    name = browser.ask("new", player="entropy")["match"]
    first = browser.ask("guess", match=name, guess="CRANE")
    assert first["rows"] == [{"guess": "crane", "marks": marks("crane", "mound"), "note": ""}]
    [theirs] = first["their_rows"]
    assert theirs == {"guess": None, "marks": marks("salet", "mound"), "note": ""}
    assert (first["over"], first["secret"]) == (False, None)
    last = browser.ask("guess", match=name, guess="mound")
    assert (last["over"], last["won"], last["secret"]) == (True, True, "mound")
    assert last["their_rows"][0]["guess"] == "salet" and last["they_won"]
    assert browser.refused("guess", match=name, guess="slate") == (422, "this game is over")


def test_a_game_is_lost_after_six_guesses_and_given_up_before(browser):
    name = open_page(secret="mound")
    match = name.ask("new", player="consistent")["match"]
    for number in range(6):
        shown = name.ask("guess", match=match, guess="slate")
        assert shown["over"] is (number == 5)
    assert shown["won"] is False and shown["secret"] == "mound"
    other = browser.ask("new", player="entropy")["match"]
    assert browser.ask("give_up", match=other)["secret"] in ANSWERS
    assert browser.ask("give_up", match=other)["over"]


def test_only_the_first_game_has_the_given_secret():
    browser = open_page(secret="zonal")  # which no game has by chance
    first = browser.ask("new", player="entropy")["match"]
    assert browser.ask("give_up", match=first)["secret"] == "zonal"
    later = browser.ask("new", player="entropy")["match"]
    assert browser.ask("give_up", match=later)["secret"] in ANSWERS


def test_a_word_against_the_rules_uses_no_turn():
    browser = open_page(secret="mound")
    match = browser.ask("new", player="hard")["match"]
    assert browser.refused("guess", match=match, guess="zzzzz") == (
        422, "ZZZZZ is not in the word list"
    )  # fmt: skip
    assert len(browser.ask("guess", match=match, guess="crane")["rows"]) == 1
    assert browser.refused("guess", match=match, guess="steel") == (
        422, "hard mode: STEEL ignores a clue"
    )  # fmt: skip
    assert len(browser.ask("guess", match=match, guess="mound")["rows"]) == 2


def test_a_player_is_watched_turn_by_turn(browser):
    game = browser.ask("watch", player="consistent", secret="mound")
    assert game["won"] and game["secret"] == "mound"
    for number, turn in enumerate(game["turns"]):
        facts = turn["facts"]
        chances = browser.ask("think", game=game["game"], turn=number)["chances"]
        assert len(chances["words"]) == min(10, facts["candidates"])
        assert sum(chance for _, chance in chances["words"]) == pytest.approx(1.0)
        assert turn["guess"] in dict(chances["words"])
        assert facts["best_bits"] >= facts["bits"] and facts["fits"]
    assert game["turns"][-1]["reward"]["win"] > 0
    assert game["reward"] == pytest.approx(
        sum(sum(turn["reward"].values()) for turn in game["turns"])
    )
    status, error = browser.refused("think", game=game["game"], turn=len(game["turns"]))
    assert status == 422 and error.startswith("turn must be a whole number 0..")


def test_a_player_without_probabilities_shows_none(browser):
    game = browser.ask("watch", player="gibberish", secret="mound")
    assert browser.ask("think", game=game["game"], turn=0) == {"chances": None}
    assert not game["won"] and any(turn["note"] for turn in game["turns"])


def test_two_players_are_compared_on_a_board_made_by_hand(browser):
    rows = [["crane", "xxx✓x"], ["Sleep", "xxxxx"]]
    answers = [browser.ask("board", player=key, rows=rows) for key in ("entropy", "consistent")]
    assert [answer["guess"] for answer in answers] == ["mound", "mound"]
    assert answers[0]["facts"]["candidates"] == 1
    assert answers[0]["chances"]["words"] == [["mound", 1.0]]
    assert [answer["player"] for answer in answers] == ["entropy with list", "consistent (answers)"]
    empty = browser.ask("board", player="entropy", rows=[])
    assert empty["guess"] == "salet" and empty["facts"]["candidates"] == len(ANSWERS)
    nothing = browser.ask("board", player="consistent", rows=[["mound", "xxxxx"], *rows[:1]])
    assert nothing["facts"]["candidates"] == 0 and nothing["facts"]["best"] is None


def test_games_of_a_run_are_listed_newest_first_and_replayed(run):
    browser = open_page(run)
    listed = browser.ask("games", file="games", page=0)
    assert [(g["step"], g["secret"], g["won"]) for g in listed["games"]] == [
        (60, "slate", True), (60, "mound", False), (40, "slate", True), (20, "mound", False),
    ]  # fmt: skip
    lost = browser.ask("games", file="games", page=0, won="no", secret="mound")
    assert [g["number"] for g in lost["games"]] == [2, 0]
    game = browser.ask("replay", file="games", number=2)
    assert [turn["guess"] for turn in game["turns"]][:3] == ["crane", None, "zzzzz"]
    assert game["turns"][0]["marks"] == marks("crane", "mound")
    assert (game["turns"][1]["note"], game["turns"][2]["note"]) == ("empty", "not a word")
    assert [turn["facts"]["candidates"] for turn in game["turns"]] == [7, 1, 1, 1, 1, 1]
    assert game["turns"][0]["facts"]["bits"] > 0 and set(game["turns"][0]["reward"]) == {"win"}
    [start] = browser.ask("games", file="start_games", page=0)["games"]
    assert (start["step"], start["split"]) == (0, "test")
    games = json.loads((run.path / "games.jsonl").read_text().splitlines()[0])
    del games["split"]  # as in validation_games.jsonl
    (run.path / "validation_games.jsonl").write_text(json.dumps(games) + "\n")
    [validated] = browser.ask("games", file="validation_games", page=0)["games"]
    assert validated["split"] == "val"
    assert browser.refused("replay", file="games", number=9) == (
        409, "there is no game 9: the file has 4 games"
    )  # fmt: skip


def test_a_run_is_followed_while_it_writes(run):
    browser = open_page(run)
    with run.lock():
        shown = browser.ask("follow")
    assert (shown["status"], shown["step"]) == ("running", 60)
    assert browser.ask("follow")["status"] == "killed"  # no process holds the folder
    assert shown["curves"]["val"] == [[20, 0.25], [40, 0.5], [60, 0.75]]
    assert len(shown["curves"]["train"]) == 60
    assert [board["secret"] for board in shown["boards"]] == ["slate", "mound", "slate", "mound"]
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 61, "train/win_rate": 1.0}\n{"step": 62, "train/wi')
    assert browser.ask("follow")["step"] == 61  # the torn line counts once it is whole
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'n_rate": 1.0}\n')
    assert browser.ask("follow")["step"] == 62
    run.metrics_log().truncate_after(10)  # as a run that is resumed from a checkpoint
    assert browser.ask("follow")["step"] == 10


@pytest.mark.parametrize(
    "damage",
    [
        {"guesses": ["crane", "<b>"]}, {"feedback": ["x"]}, {"kinds": []}, {"secret": "../.."},
        {"clues_at_start": [["crane"]]}, {"clues_at_start": [["crane", "zzzzz"]]},
        {"texts": 3}, {"reward": []}, {"guesses": "crane"},
    ],
)  # fmt: skip
def test_a_damaged_game_is_refused_in_one_line(damage, run):
    record = json.loads((run.path / "games.jsonl").read_text().splitlines()[0])
    with open(run.path / "games.jsonl", "ab") as file:
        file.write(json.dumps({**record, **damage}).encode() + b"\nno JSON\n[]\n{}\n")
    browser = open_page(run)
    total = browser.ask("games", file="games", page=0)["total"]
    if total == 5:
        status, _ = browser.refused("replay", file="games", number=4)
        assert status == 409
    assert browser.ask("replay", file="games", number=1)["won"]


def test_a_link_in_place_of_a_file_leads_nowhere_but_to_a_regular_one(run):
    (run.path / "validation_games.jsonl").symlink_to("/dev/zero")
    status, error = open_page(run).refused("games", file="validation_games", page=0)
    assert status == 409 and "not a file" in error


def test_without_a_run_there_is_nothing_to_replay(browser):
    assert browser.ask("about")["run"] is None
    for name, fields in (("games", {"file": "games", "page": 0}), ("follow", {})):
        assert browser.refused(name, **fields) == (
            404, "no run was named: start the command with --run outputs/<run>"
        )  # fmt: skip


def test_a_player_that_cannot_be_loaded_is_told_in_one_line(browser):
    assert browser.refused("new", player="broken") == (409, "the model of this player is damaged")
    assert browser.ask("new", player="entropy")["max_turns"] == 6
