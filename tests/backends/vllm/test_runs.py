"""rollout.engine=vllm in whole runs, with servers that speak as vLLM does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, resume, run, settings
from tests.helpers.served_runs import assert_every_update_reaches, engine_of
from tests.helpers.tiny import gemma_like_tokenizer, qwen
from tests.helpers.vllm_server import SmallServer
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.backends.vllm.policy import ServedPolicy
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.train import train
from wordle_rl.policy.engine import EngineLost
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.loop import Training

LOAD = "/v1/load_lora_adapter"
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> list[str]:
    """The overrides of a small run with LoRA. Its model is on disk."""
    return [*settings(tmp_path_factory.mktemp("served"), "lora"), "trainer.report=false"]


def folder_of(base: list[str]) -> str:
    return next(o.partition("=")[2] for o in base if o.startswith("model.path="))


@pytest.fixture
def start(base) -> Iterator[Callable[..., SmallServer]]:
    """Starts a server of the run's model."""
    started: list[SmallServer] = []

    def new(**options: Any) -> SmallServer:
        folder = folder_of(base)
        model = options.pop("model", None) or AutoModelForCausalLM.from_pretrained(folder).eval()
        tokenizer = options.pop("tokenizer", None) or AutoTokenizer.from_pretrained(folder)
        server = SmallServer(model, tokenizer, **options)
        started.append(server)
        return server

    yield new
    for server in started:
        server.stop()


def test_each_update_reaches_all_servers_and_they_agree_with_the_trainer(root, base, start, capsys):
    servers = [start(seed=1), start(seed=2)]
    urls = [server.url for server in servers]
    _, folder = assert_every_update_reaches(urls, root, *base)
    out = capsys.readouterr().out
    told = f"vLLM plays ({', '.join(urls)}) and draws for itself: neither the seed nor resume= "
    assert out.count(told + "repeats games\n") == 1
    for server in servers:
        loads = [body for path, body in server.asked if path == LOAD]
        # The first adapter, and one after each of six updates.
        assert len({body["lora_path"] for body in loads}) == 7
        assert len({body["lora_name"] for body in loads}) == 1
        assert all(body["load_inplace"] for body in loads)
        assert server.count("/v1/completions") > 6 and not server._adapters
    assert not (folder / "served").exists()
    # Tokens are weighed by default here.
    assert all("policy/importance" in m for m in metrics_of(folder) if "loss" in m)


@pytest.mark.slow
def test_the_servers_would_be_far_away_without_the_updates(root, base, start, capsys):
    server = start()
    server.ignores_adapters = True
    overrides = [*base, *engine_of(server.url), "vllm.retries=0", "vllm.most_gap=1e-4"]
    with pytest.raises(SystemExit) as stop:
        run(root, *overrides)
    assert stop.value.code == 1  # the untrained adapter of the start changes nothing yet
    assert "differs from the trainer by" in capsys.readouterr().err
    [folder] = root.iterdir()
    # What came after the first update was never played, nor trained on.
    assert [m["step"] for m in metrics_of(folder)] == [0, 1]


@pytest.mark.parametrize(
    ("override", "weighed"),
    [("rollout.engine=vllm", True), ("rollout.engine=own", False)],
)
def test_tokens_are_weighed_by_default_where_servers_draw_them(base, override, weighed):
    setup = build_experiment(resolve(composed(*base, override)))
    assert setup.recipe.algorithm.cap == (2.0 if weighed else None)
    for value, cap in (("null", None), ("5", 5.0)):
        given = build_experiment(
            resolve(composed(*base, override, f"algorithm.importance_cap={value}"))
        )
        assert given.recipe.algorithm.cap == cap


@pytest.mark.slow
def test_a_server_that_dies_in_a_step_costs_nothing(root, base, start, capsys):
    servers = [start(seed=1), start(seed=2)]
    crash = servers[0]._complete

    def die(body: dict[str, Any]) -> Any:
        if servers[0].count(LOAD) == 3:  # after the second update
            servers[0].stop()
        return crash(body)

    servers[0]._complete = die  # pyright: ignore[reportAttributeAccessIssue]
    _, folder = run(root, *base, *engine_of(*(server.url for server in servers)))
    steps = [m for m in metrics_of(folder) if "loss" in m]
    assert [m["step"] for m in steps] == [1, 2, 3, 4, 5, 6]
    assert max(m["policy/largest_sampler_gap"] for m in steps) < 1e-4
    warning = f"warning: {servers[0].url}"
    assert capsys.readouterr().err.count(warning) >= 1


@pytest.mark.slow
def test_a_run_that_loses_all_servers_is_saved_and_continues_with_others(
    root, base, start, capsys, monkeypatch
):
    server = start()
    play = TorchPolicy.update
    updates = []

    def update(policy: TorchPolicy, *arguments: Any) -> Any:
        updates.append(1)
        if len(updates) == 4:
            server.stop()
        return play(policy, *arguments)

    monkeypatch.setattr(TorchPolicy, "update", update)
    overrides = [*base, *engine_of(server.url), "vllm.retries=1"]
    with pytest.raises(SystemExit) as stop:
        run(root, *overrides)
    [folder] = root.iterdir()
    said = capsys.readouterr().err
    assert stop.value.code == 1
    [line] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "no vLLM server answers after 1 retries" in line and f"resume={folder}" in line
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3, 4]
    resume(folder, f"vllm.urls=[{start().url}]")
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_step_whose_validation_was_lost_is_kept(root, base, start, monkeypatch):
    server = start()
    validate, lost = Training._validate, []

    def fail_once(training: Training, step: int, *arguments: Any) -> Any:
        if step == 3 and not lost:
            lost.append(step)
            raise EngineLost("no vLLM server answers")
        return validate(training, step, *arguments)

    monkeypatch.setattr(Training, "_validate", fail_once)
    with pytest.raises(SystemExit):
        run(root, *base, *engine_of(server.url))
    [folder] = root.iterdir()
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3]
    resume(folder)
    found = metrics_of(folder)
    assert [m["step"] for m in found] == [0, 1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in found if "val/win_rate" in m] == [0, 6]


@pytest.mark.slow
def test_validation_and_reports_are_played_by_the_servers_too(root, base, start, monkeypatch):
    server = start()
    monkeypatch.setattr(TorchPolicy, "engine", lambda policy: pytest.fail("played here"))
    engines, engine = [], ServedPolicy.engine
    monkeypatch.setattr(ServedPolicy, "engine", lambda policy: engines.append(1) or engine(policy))
    run(root, *base, *engine_of(server.url), "trainer.steps=1", "trainer.report=true")
    assert len(engines) >= 5  # two reports, two validations, a step


@pytest.mark.slow
def test_a_folder_of_another_name_at_the_servers_is_found(root, base, start, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "here")
    server = start()
    given = [f"vllm.folder={tmp_path}/here", f"vllm.server_folder={tmp_path}/there"]
    run(root, *base, *engine_of(server.url), *given, "trainer.steps=1")
    paths = [body["lora_path"] for path, body in server.asked if path == LOAD]
    assert len(paths) == 2
    assert all(path.startswith(f"{tmp_path}/there/wordle-") for path in paths)
    assert list((tmp_path / "here").iterdir()) == []


def _short(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    return start(max_model_len=100)


def _other_tokenizer(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    return start(tokenizer=gemma_like_tokenizer())


def _other_base(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    return start(model=qwen(340, seed=5).eval())


def _raw(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    server = start()
    server.raw_logprobs = True
    return server


def _unshared(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    server = start()
    server.folder_is_there = False
    return server


def _stopped(start: Callable[..., SmallServer], base: list[str]) -> SmallServer:
    server = start()
    server.stop()
    return server


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_stopped, "vllm.urls: {url} cannot be reached"),
        (_short, "model.max_context must be at most 100, which is the context of {url}"),
        (_other_tokenizer, "vllm.urls: {url} has another tokenizer than model.path"),
        (_other_base, "vllm.urls: {url} differs from the trainer by"),
        (_raw, "without --logprobs-mode processed_logprobs"),
        (_unshared, "vllm.folder must be a folder that every server can read"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_before_anything_is_played(
    root, base, start, refused, make, said
):
    server = make(start, base)
    good = start()
    overrides = [
        *base, *engine_of(good.url, server.url), "sampling.temperature=0.7", f"output_dir={root}"
    ]  # fmt: skip
    line = refused(lambda: train(composed(*overrides), overrides))
    assert said.format(url=server.url) in line
    assert not any(folder.is_dir() for folder in root.iterdir())
    assert not good._adapters


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.lora=null"], "rollout.engine=vllm needs an adapter"),
        (["backend=mlx"], "rollout.engine=vllm needs backend=lightning, not mlx"),
        (["backend.devices=2"], "rollout.engine=vllm trains in one process"),
        (["rollout.engine=sglang"], "rollout.engine must be one of own, vllm, not 'sglang'"),
        (["vllm.urls=[]"], "vllm.urls must name a server"),
        (["vllm.urls=[localhost]"], "vllm.urls must be like http://host:8000"),
        (["vllm.urls=['http://me:secret@a:1']"], "without a password"),
        (["vllm.urls=['http://a:1','http://a:1/']"], "vllm.urls must name each server once"),
        (["vllm.timeout=0"], "vllm.timeout must be above 0"),
        (["vllm.retries=-1"], "vllm.retries must be 0..1000, not -1"),
        (["vllm.most_gap=0"], "vllm.most_gap must be above 0"),
        (["vllm.prompts_at_once=0"], "vllm.prompts_at_once must be 1..100000, not 0"),
        (["vllm.server_folder=/x"], "vllm.server_folder needs vllm.folder"),
        (["vllm.folder=x", "vllm.server_folder=y"], "vllm.server_folder must begin with /"),
    ],
)
def test_settings_that_cannot_work_are_told_before_a_model_is_loaded(base, overrides, said):
    keep = [o for o in base if not o.startswith(("backend.", "optim=", "optim."))]
    with pytest.raises(ConfigError, match=said.replace("(", "[(]")):
        build_experiment(resolve(composed(*keep, "rollout.engine=vllm", *overrides)))


def test_a_folder_that_cannot_be_written_is_one_line(root, base, start, refused, tmp_path):
    (tmp_path / "file").write_text("")
    server = start()
    for folder, said in (
        (tmp_path / "file", f"vllm.folder must be a folder, but {tmp_path / 'file'} is a file"),
        (tmp_path / "file" / "in", f"vllm.folder must be a folder, but {tmp_path / 'file'} is a"),
        ("/proc/adapters", "vllm.folder=/proc/adapters cannot be written: No such file"),
    ):
        overrides = [
            *base, *engine_of(server.url), f"vllm.folder={folder}", f"output_dir={root}"
        ]  # fmt: skip
        assert said in refused(lambda given=overrides: train(composed(*given), given))
    assert not server.asked  # the folder is looked at first
