"""python -m wordle_rl.cheats counts what runs and studies wrote, and shows the best-paid losses."""

import json

import pytest

from wordle_rl import cheats
from wordle_rl.sweeps.games import FILE, pack_games
from wordle_rl.sweeps.results import JudgedGame


def record(step: int, secret: str, answers: str, reward: float | None = None) -> str:
    """A line of validation_games.jsonl; ! marks a non-word, and - an answer without a guess."""
    words = answers.split()
    kinds = {"-": "unparsable", "!": "not_a_word"}
    line = {
        "step": step,
        "secret": secret,
        "won": words[-1] == secret,
        "guesses": [None if word == "-" else word.rstrip("!") for word in words],
        "kinds": [kinds.get(word[-1], "accepted") for word in words],
        "texts": ["<guess>x" if word == "-" else f"<guess>{word}</guess>" for word in words],
    }
    if reward is not None:
        line["reward"] = {"total": reward, "turns": []}
    return json.dumps(line)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "validation_games.jsonl").write_text(
        "\n".join([
            record(0, "slate", "crane slate", 3.0),
            record(0, "mound", "crane abbey", 1.0),
            record(5, "slate", "crane crane!", 2.0),
            record(5, "mound", "crane crane!", 2.0),
            record(9, "slate", "crane - boofy! boofy! boofy!", 4.0),
            record(9, "mound", "crane mound", 2.0),
        ])
        + "\n"
    )  # fmt: skip
    return tmp_path


def rows(printed: str) -> list[list[str]]:
    lines = [line for line in printed.splitlines() if line.startswith("|")][2:]
    return [line.strip("| ").split(" | ") for line in lines]


def test_a_run_has_a_row_for_its_first_and_its_last_validation(run, capsys):
    assert cheats.main([str(run)]) == 0
    printed = capsys.readouterr().out
    first, last = rows(printed)
    assert " ".join(first[1:]) == "0 2 50.0 2.00 0.0 0.0 50.0 slate 50 % 50.0 0.0 0.0 0.0 0.0 -"
    # 7 answers, 2 of them repeats, 3 non-words, 1 unreadable. Of the 5 later ones mound at turn 2
    # and boofy at turns 3 to 5 are recited. The game on slate was lost for more reward.
    assert " ".join(last[1:]) == (
        "9 2 50.0 3.00 28.6 0.0 60.0 boofy 60 % 80.0 42.9 14.3 50.0 0.0 50.0"
    )
    assert '  slate, reward 4.00: crane "<guess>x" boofy! boofy! boofy!' in printed
    assert "mound, reward" not in printed  # it was won


def test_every_validation_can_have_a_row_and_no_game_be_shown(run, capsys):
    cheats.main([str(run), "--every", "--games", "0"])
    printed = capsys.readouterr().out
    assert [row[1] for row in rows(printed)] == ["0", "5", "9"]
    assert printed.splitlines()[-1].startswith("|")


def test_a_study_counts_the_words_of_each_seed_by_themselves(tmp_path, capsys):
    def games(trial: int, word: str, *, confirms: bool = False):
        return [
            JudgedGame(
                confirms=confirms, trial=trial, arm="hasty", seed=trial, step=step, secret="slate",
                guesses=tuple(answers.split()),
            )
            for step, answers in ((0, "crane slate"), (7, f"crane {word}! - {word}"))
        ]  # fmt: skip

    packed = pack_games({
        (False, 0): games(0, "boofy"), (False, 1): games(1, "primp"),
        (True, 0): games(0, "steel", confirms=True),
    })  # fmt: skip
    (tmp_path / FILE).write_bytes(packed)
    cheats.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert "reward" not in printed and "paid" not in printed, "columns without entries"
    first, last = rows(printed)
    assert " ".join(first) == "hasty 0 2 100.0 0.0 0.0 100.0 slate 100 % 100.0 0.0 0.0 0.0 0.0"
    # Of 8 answers 2 repeat, 2 are refused and 2 unreadable. Each seed recites its own 2 of 3.
    assert " ".join(last) == "hasty 7 2 0.0 25.0 0.0 66.7 boofy 67 % 66.7 25.0 25.0 0.0 0.0"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"step": 1}', "secret is missing"),
        (record(1, "slate", "crane").replace('["accepted"]', "[]"), "the same length"),
        (record(1, "slate", "crane").replace('"won": false', '"won": "no"'), "won must be"),
        ("", "no games yet"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, capsys, line, told):
    (tmp_path / "validation_games.jsonl").write_text(f"{line}\n" if line else "")
    with pytest.raises(SystemExit) as stopped:
        cheats.main([str(tmp_path)])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.count("\n") == 1
    assert told in error and str(tmp_path) in error


def test_a_folder_without_games_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        cheats.main([str(tmp_path / "none")])
    assert stopped.value.code == 2
    assert "has no validation_games.jsonl" in capsys.readouterr().err


def test_a_negative_number_of_games_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        cheats.main([str(run), "--games", "-1"])
    assert "--games must be 0 or more, not -1" in capsys.readouterr().err
