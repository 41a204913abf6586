"""Files of data=: which rows are trained on, which are named, and which are left out."""

import hashlib
import socket
from pathlib import Path
from typing import Any

import datasets
import pytest

from tests.helpers.rows import pair, predibase, write_rows
from wordle_rl.data.load import DataSettings, TrainingData, load_data
from wordle_rl.game.rules import Clue, Rules, feedback_code
from wordle_rl.rollouts.given import Exchange
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import write_table
from wordle_rl.words.lists import load_words

WORDS = load_words()


@pytest.fixture
def load(tmp_path: Path):
    """Writes rows to a file and opens it. held_out, imitates and rules by keyword."""

    def open_rows(
        rows: list[dict[str, Any]] | Path, *, held_out=(), imitates=False, rules=None, **settings
    ) -> TrainingData:
        path = rows if isinstance(rows, Path) else write_rows(tmp_path / "rows.jsonl", rows)
        return load_data(
            DataSettings(path=str(path), **settings),
            WORDS,
            rules or Rules(),
            held_out,
            imitates=imitates,
            cache=tmp_path / "cache",
        )

    return open_rows


def test_rows_of_predibase_become_states_and_nothing_is_fetched(load, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    data = load([predibase("abbey"), predibase("crane", "slate", "erase")])
    assert data.states is not None and data.dialogues is None
    assert (data.states[0].secret, data.states[0].clues) == ("abbey", ())
    assert data.states[1].clues == tuple(
        Clue(guess, feedback_code(guess, "crane")) for guess in ("slate", "erase")
    )
    state = data.states[1].state(6)
    assert (state.turn, state.max_turns) == (2, 6)
    assert data.secrets == ("abbey", "crane") and data.unknown == 0
    assert data.lines == ("rows.jsonl: trains on 2 of 2 rows",)


def test_a_dataset_of_the_hub_is_fetched_once(load, monkeypatch):
    calls: list[tuple[str, str]] = []

    def give(name: str, split: str) -> datasets.Dataset:
        calls.append((name, split))
        return datasets.Dataset.from_list([predibase("abbey"), predibase("crane", "slate")])

    monkeypatch.setattr(datasets, "load_dataset", give)
    for _ in range(2):
        data = load(Path("predibase/wordle-grpo"))
        assert data.secrets == ("abbey", "crane")
    assert calls == [("predibase/wordle-grpo", "train")]


def test_without_a_network_the_file_is_named_instead(load, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(FolderError, match=r"to_parquet\('rows.parquet'\) .* data=rows.parquet"):
        load(Path("predibase/wordle-grpo"))


BAD_ROWS = {
    "secret": (predibase("crane") | {"secret": "cranes"}, "the secret must have five letters"),
    "no secret": (predibase("crane") | {"secret": None}, "the secret is missing"),
    "unknown guess": (predibase("crane", "qqqqq"), "qqqqq is not in the word list"),
    "won": (predibase("crane", "slate", "crane"), "the game is already won with crane"),
    "feedback": (
        predibase("crane", "slate") | {"secret": "abbey"},
        "the feedback of slate for the secret abbey must be xx-x-, not xx✓x✓",
    ),
    "code": (predibase("crane") | {"past_guess_history": "exit()"}, "are no list: 'exit()'"),
    "too deep": (predibase("crane", *["slate"] * 6), "6 earlier guesses leave none of 6 turns"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_bad_row_is_named_by_number_and_the_rest_is_trained_on(kind, load):
    row, why = BAD_ROWS[kind]
    data = load([predibase("abbey"), row, predibase("crane", "slate")])
    assert [state.secret for state in data.states] == ["abbey", "crane"]
    assert f"row 2: {why}" in data.lines[1].replace("the earlier guesses are", "are")


def test_the_first_bad_rows_are_named_by_their_numbers_in_the_file(load):
    rows = [predibase("abbey"), *[predibase("crane") | {"secret": "no"}] * 6, predibase("crane")]
    line = load(rows, split="train[1:]").lines[1]
    assert "left out 6 bad rows: row 2: " in line and "row 4: " in line and "row 5" not in line
    assert line.endswith("; and 3 more")


def test_rules_decide_which_states_can_be_played(load):
    odd_row = predibase("crane", "qqqqq")
    assert len(load([odd_row], rules=Rules(invalid="accept")).states) == 1
    hard_row = predibase("crane", "slate", "moody")  # slate has shown A and E
    assert len(load([hard_row]).states) == 1
    with pytest.raises(FolderError, match="moody ignores a clue"):
        load([hard_row], rules=Rules(hard_mode=True))


def test_rows_with_held_out_secrets_are_left_out_and_counted(load):  # row 38
    rows = [predibase("abbey"), predibase("crane"), predibase("crane", "slate")]
    data = load(rows, held_out=("crane", "slate"))
    assert data.secrets == ("abbey",) and len(data.states) == 1
    assert "left out 2 rows with a validation or test secret" in data.lines[1]
    with pytest.raises(FolderError, match="trains on 0 of 3 rows; left out 3 rows with"):
        load(rows, held_out=("crane", "abbey"))


def test_the_record_names_file_rows_and_secrets(load, tmp_path):
    data = load([predibase("crane"), predibase("abbey"), predibase("crane")], split="train[:3]")
    content = (tmp_path / "rows.jsonl").read_bytes()
    assert data.record() == {
        "file": "rows.jsonl",
        "sha256": hashlib.sha256(content).hexdigest(),
        "split": "train[:3]",
        "rows": 3,
        "unknown_rows": 0,
        "secrets": "abbey crane",
    }


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_other_kinds_of_files_hold_the_same_rows(form, load, tmp_path):
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        path.write_text("secret,past_guess_history\ncrane,\"[['slate', 'xx✓x✓']]\"\nno,\nabbey,\n")
    else:
        rows = [predibase("crane", "slate"), predibase("crane") | {"secret": "no"}]
        write_table(path, [*rows, predibase("abbey")], form)
    data = load(path)
    assert [len(state.clues) for state in data.states] == [1, 0]
    assert "row 2: the secret must have five letters, not 'no" in data.lines[1].lower()


# -- answers --------------------------------------------------------------------------------------


def test_pairs_and_messages_become_dialogues(load):
    turns = [{"role": r, "content": f"{r} {i}"} for i, r in enumerate(["user", "assistant"] * 2)]
    head = [{"role": "system", "content": "rules"}]
    data = load([{"messages": head + turns, "secret": "crane"}], imitates=True)
    assert data.dialogues is not None and data.states is None and data.secrets == ("crane",)
    dialogue = data.dialogues[0]
    assert (dialogue.row, dialogue.system) == (1, "rules")
    first = Exchange(message="user 0", answer="assistant 1", trained=True)
    last = Exchange(message="user 2", answer="assistant 3", trained=True)
    assert dialogue.exchanges == (first, last)

    rows = [{"prompt": turns[:3], "completion": [turns[3]]}]
    dialogue = load(rows, imitates=True).dialogues[0]
    assert dialogue.system is None
    assert [e.trained for e in dialogue.exchanges] == [False, True]
    [exchange] = load([{"prompt": "a", "response": "b"}], imitates=True).dialogues[0].exchanges
    assert exchange == Exchange(message="a", answer="b", trained=True)


def test_rows_without_a_secret_are_counted_because_their_lineage_is_unknown(load):  # row 38
    data = load(
        [pair(1), pair(2, secret="crane"), pair(3, secret="abbey")],
        imitates=True,
        held_out=("abbey",),
    )
    assert data.unknown == 1 and data.secrets == ("crane",) and len(data.dialogues) == 2
    assert "1 rows have no secret; test secrets may be among them" in data.lines[-1]


def messages(*roles: str) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": "x"} for role in roles]}


@pytest.mark.parametrize(
    ("good", "bad", "why"),
    [
        (pair(1), {"prompt": "a", "answer": ""}, "a message in answer has no text"),
        (pair(1), {"prompt": None, "answer": "b"}, "there is no prompt with an answer"),
        (pair(1), {"prompt": "a<|im_end|>", "answer": "b"}, "prompt holds <|im_end|>"),
        (messages("user", "assistant"), messages("user"), "user and assistant must alternate"),
        (messages("user", "assistant"), messages("assistant", "user"), "user and assistant must"),
        (messages("user", "assistant"), messages("user", "tool"), "a role in messages must be"),
    ],
)
def test_a_dialogue_that_no_template_can_write_is_a_bad_row(good, bad, why, load):
    data = load([good, bad], imitates=True)
    assert len(data.dialogues) == 1 and f"row 2: {why}" in data.lines[1]


def test_the_columns_and_the_algorithm_decide_what_a_file_is(load):
    assert load([predibase("crane")], imitates=True).states is not None
    pairs = [pair(1, secret="crane")]
    assert load(pairs).states is not None and load(pairs, imitates=True).dialogues is not None
    for rows in ([pair(1)], [{"question": "a", "reply": "b"}]):
        with pytest.raises(ConfigError, match="must have a column secret or, for algorithm=sft"):
            load(rows)
