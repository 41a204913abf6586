"""Weights, optimisers' states and chat templates that a stranger made, with right digests."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.helpers.commands import evaluation, trained, training
from wordle_rl.backends import chat_template
from wordle_rl.backends.chat_template import ChatTemplateError
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import CHAT_TEMPLATE, build_tokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.runs.checkpoints import MANIFEST, _seal

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of the steps 0 (the best), 1 and 2."""
    return trained(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


class Evil:
    """A pickle that makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def states(path: Path, change: Callable[[list[Any]], object]) -> None:
    saved = torch.load(path, weights_only=True)
    change(saved)
    torch.save(saved, path)


def first(saved: list[Any]) -> dict[str, Any]:
    return next(iter(saved[0]["state"].values()))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


MODEL, OPTIMIZER = "model/model.safetensors", "optimizer.pt"
GARBAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights: text": (MODEL, lambda p: p.write_text("garbage")),
    "weights: nothing": (MODEL, lambda p: p.write_bytes(b"")),
    "weights: a huge header": (MODEL, lambda p: p.write_bytes(b"\xff" * 100)),
    "weights: torn": (MODEL, cut),
    "weights: others": (MODEL, lambda p: save_file({"a": torch.zeros(3)}, p)),
    "optimiser: text": (OPTIMIZER, lambda p: p.write_text("garbage")),
    "optimiser: nothing": (OPTIMIZER, lambda p: p.write_bytes(b"")),
    "optimiser: torn": (OPTIMIZER, cut),
    "optimiser: code": (OPTIMIZER, lambda p: torch.save(Evil(p.with_name("made")), p)),
    "optimiser: bare code": (
        OPTIMIZER, lambda p: p.write_bytes(pickle.dumps(Evil(p.with_name("made")))),
    ),
    "optimiser: a number": (OPTIMIZER, lambda p: torch.save(5, p)),
    "optimiser: numbers": (OPTIMIZER, lambda p: torch.save([5], p)),
    "optimiser: none": (OPTIMIZER, lambda p: torch.save([], p)),
    "optimiser: no groups": (OPTIMIZER, lambda p: states(p, lambda s: s[0].pop("param_groups"))),
    "optimiser: no state": (OPTIMIZER, lambda p: states(p, lambda s: s[0].pop("state"))),
    "optimiser: another shape": (
        OPTIMIZER, lambda p: states(p, lambda s: first(s).update(exp_avg=torch.zeros(3))),
    ),
    "optimiser: an entry less": (
        OPTIMIZER, lambda p: states(p, lambda s: first(s).pop("exp_avg_sq")),
    ),
    "optimiser: text as step": (
        OPTIMIZER, lambda p: states(p, lambda s: first(s).update(step="x")),
    ),
    "optimiser: truths": (
        OPTIMIZER, lambda p: states(p, lambda s: first(s).update(step=torch.tensor(True))),
    ),
    "optimiser: a weight too many": (
        OPTIMIZER, lambda p: states(p, lambda s: s[0]["state"].update({999: {}})),
    ),
    "state: text": ("state.json", lambda p: p.write_text("garbage")),
    "state: another curriculum's": (
        "state.json",
        lambda p: p.write_text(json.dumps({**json.loads(p.read_text()), "totals": 5})),
    ),
}  # fmt: skip


def reseal(checkpoint: Path, step: int) -> None:
    """List the files with the digests that they have now."""
    (checkpoint / MANIFEST).unlink()
    _seal(checkpoint, step)


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_with_right_digests_is_named(kind: str, run: Path, refused: Callable) -> None:
    name, spoil = GARBAGE[kind]
    checkpoint = run / "checkpoints" / "step_000002"
    spoil(checkpoint / name)
    reseal(checkpoint, 2)
    line = refused(training(f"resume={run} trainer.steps=3"))
    assert str(checkpoint / name) in line and len(line) < 1000
    assert not (checkpoint / "made").exists()


def test_a_best_checkpoint_of_garbage_is_named_when_the_run_ends(
    run: Path, refused: Callable
) -> None:
    checkpoint = run / "checkpoints" / (run / "checkpoints" / "best").read_text().strip()
    (checkpoint / MODEL).write_text("garbage")
    reseal(checkpoint, int(checkpoint.name.removeprefix("step_")))
    line = refused(training(f"resume={run}"))
    assert f"{checkpoint / MODEL}: cannot be read as safetensors" in line


def test_a_state_of_the_optimiser_that_saw_only_some_weights_is_taken(run: Path) -> None:
    checkpoint = run / "checkpoints" / "step_000002"
    states(checkpoint / OPTIMIZER, lambda s: s[0]["state"].popitem())
    reseal(checkpoint, 2)
    training(f"resume={run} trainer.steps=3")()


# -- chat templates -------------------------------------------------------------------------------

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}BODY{% endfor %}{% endfor %}"
GROWING = "{% set n = namespace(s=START) %}{% for i in range(99) %}{% set n.s = STEP %}{% endfor %}"
SLOW, LARGE = "takes more than 0.3 seconds of the processor", "takes more than 1024 MB of memory"
TEMPLATES = {
    LOOP.replace("BODY", ""): SLOW,
    LOOP.replace("BODY", "x"): SLOW,
    "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}": SLOW,
    GROWING.replace("START", "99").replace("STEP", "n.s * n.s"): SLOW,
    "{{ lipsum(n=999999999) }}": SLOW,
    "{{ 10 ** (10 ** 10) }}": "computes powers",
    "{% set a = 'x' %}{{ a** 9 }}": "computes powers",
    "{{ 'x' * 10000000000 }}": LARGE,
    "{% set n = 10000000000 %}{{ 'x' * n }}": LARGE,
    GROWING.replace("START", "'x'").replace("STEP", "n.s ~ n.s"): LARGE,
    "{{ 'x'|center(9999999999) }}": LARGE,
    "{{ '%09999999999d' % 1 }}": LARGE,
    "{% for i in range(99999) %}xxxxx{% endfor %}": "writes 499,995 characters",
    "x" * 200_001: "has 200,001 characters",
    "{{ 1 / 0 }}": "fails: ZeroDivisionError: division by zero",
    "{{ 1 + 'a' }}": "fails: TypeError",
    "{{ range(999999) }}": "fails: OverflowError",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "fails: RecursionError",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "fails: RecursionError",
    "{{ messages[99].content.x }}": "says: ",
    "{{ ''.__class__.x }}": "says: access to attribute '__class__'",
    "{% for": "says: unexpected 'end of template'",
    "{{ raise_exception('no\x1b[2J') }}": "says: no",
    "{% include 'x' %}": "fails: TypeError",
    "{{ messages[2].content }}{{ messages[1].content }}": "must show each message once",
    "{{ messages[1].content }}{{ messages[2].content }}": "list object has no element 1",
}


def tokenizer(template: Any) -> Any:
    inner = build_tokenizer()
    inner.chat_template = template
    inner.name_or_path = "models/theirs"
    return inner


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="limits of memory need Linux")
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template[:60])
def test_a_chat_template_that_does_harm_ends_in_one_line(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "_SECONDS", 0.3)
    with pytest.raises(ValueError) as error:
        Chat(HFTokenizer(tokenizer(template)))
    assert TEMPLATES[template] in str(error.value) and len(str(error.value)) < 1000
    if isinstance(error.value, ChatTemplateError):
        assert "the chat template of models/theirs" in str(error.value)


@pytest.mark.parametrize("template", [5, {"default": 5}, ["a"]])
def test_a_chat_template_that_is_no_text_is_told(template: Any) -> None:
    with pytest.raises(ChatTemplateError, match="is no text"):
        HFTokenizer(tokenizer(template))


def test_limits_are_lifted_after_each_conversation() -> None:
    import resource

    ours = HFTokenizer(tokenizer(CHAT_TEMPLATE))
    before = resource.getrlimit(resource.RLIMIT_AS)
    for messages in ([{"role": "user", "content": "a"}], [{"role": "user"}]):
        if "content" in messages[0]:
            ours.render(messages)
        else:
            with pytest.raises(ChatTemplateError):
                ours.render(messages)
        assert resource.getrlimit(resource.RLIMIT_AS) == before
        for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            assert signal.getitimer(timer) == (0.0, 0.0)


def test_a_conversation_is_written_in_any_thread() -> None:
    ours, written = HFTokenizer(tokenizer(CHAT_TEMPLATE)), []
    messages = [{"role": "user", "content": "a"}]
    thread = threading.Thread(target=lambda: written.append(ours.render(messages)))
    thread.start()
    thread.join()
    assert written == [ours.render(messages)]


def test_arguments_by_name_are_no_powers() -> None:
    template = "{% set a = dict(**{'b': 1}) %}" + CHAT_TEMPLATE
    plain, other = (Chat(HFTokenizer(tokenizer(t))) for t in (CHAT_TEMPLATE, template))
    assert plain.opening("a", "b") == other.opening("a", "b")


# Does harm only to a conversation that a game has.
PLAYED = CHAT_TEMPLATE + "{% if 'Wordle' in messages[0].content %}{{ 1 / 0 }}{% endif %}"


@pytest.mark.parametrize("form", ["conversation", "fresh"])
@pytest.mark.parametrize("template", [LOOP, PLAYED], ids=["when loaded", "when played"])
def test_commands_name_the_folder_of_such_a_template(
    template: str,
    form: str,
    run: Path,
    tmp_path: Path,
    refused: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_template, "_SECONDS", 0.3)
    (run / "model" / "chat_template.jinja").write_text(template)
    (tmp_path / "out").mkdir()
    line = refused(
        evaluation(
            f"model.path={run / 'model'} form={form} limit=2 compare=false backend.threads=1 "
            f"output_dir={tmp_path / 'out'} allow_mismatch=true"
        )
    )
    assert f"the chat template of {run / 'model'}" in line


def test_code_beside_a_model_is_not_offered_to_be_run(
    run: Path, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    config = json.loads((run / "model" / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}}
    (run / "model" / "config.json").write_text(json.dumps(config))
    (run / "model" / "theirs.py").write_text("raise SystemExit(99)")
    line = refused(evaluation(f"model.path={run / 'model'} output_dir={run.parent}"))
    assert f"model.path={run / 'model'} cannot be loaded" in line and "custom code" in line
    assert not asked
