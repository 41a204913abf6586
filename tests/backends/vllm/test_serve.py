"""rollout.engine=vllm in whole runs, with servers that speak as vLLM does."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, resume, run, settings
from tests.helpers.tiny import lora_of, policy_of, qwen
from tests.helpers.vllm_server import LOAD, SmallServer
from wordle_rl.backends.torch.load import save_adapter
from wordle_rl.backends.vllm import serve
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.engine import EngineLost
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.settings import ServerSettings
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.loop import Training

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> list[str]:
    """The overrides of a small run with LoRA. Its model is on disk."""
    args = settings(tmp_path_factory.mktemp("served"), "lora")
    return [*args, "trainer.report=false", "rollout.engine=vllm", "vllm.retries=2"]


@pytest.fixture(scope="module")
def folder(base) -> str:
    return next(o.partition("=")[2] for o in base if o.startswith("model.path="))


@pytest.fixture
def start(folder) -> Iterator[Callable[..., SmallServer]]:
    """Starts a server of the run's model."""
    servers: list[SmallServer] = []

    def make_server(model: Any = None, **options: Any) -> SmallServer:
        model = model or AutoModelForCausalLM.from_pretrained(folder).eval()
        servers.append(SmallServer(model, **options))
        return servers[-1]

    yield make_server
    for server in servers:
        server.close()


def urls(*servers: SmallServer) -> str:
    return f"vllm.urls=[{','.join(server.url for server in servers)}]"


def steps_of(run_folder: Any) -> list[int]:
    return [m["step"] for m in metrics_of(run_folder)]


def test_each_update_reaches_all_servers_which_play_every_game(root, base, start, capsys):
    servers = [start(seed=1), start(seed=2)]
    # Each is compared once, and would not play if it differed by more than rounding.
    _, path = run(root, *base, urls(*servers), "trainer.steps=3", "vllm.most_gap=1e-4")
    assert "neither the seed nor resume= repeats games" in capsys.readouterr().out
    for server in servers:
        loads = [body for route, body in server.asked if route == LOAD]
        # The first adapter, and one after each update.
        assert len({body["lora_path"] for body in loads}) == 4
        assert len({body["lora_name"] for body in loads}) == 1
        assert all(body["load_inplace"] for body in loads)
        assert server.count() > 6 and not server.adapters
    assert not (path / "served").exists()
    steps = [m for m in metrics_of(path) if "loss" in m]
    assert max(m["policy/largest_sampler_gap"] for m in steps) < 1e-4
    assert all("policy/importance" in m for m in steps), "tokens are weighed by default"


@pytest.mark.slow
def test_a_run_that_loses_all_servers_is_saved_and_continues_with_others(
    root, base, start, capsys, monkeypatch
):
    server, play, updates = start(), Policy.update, []

    def update(policy: Policy, *arguments: Any) -> Any:
        updates.append(1)
        if len(updates) == 4:
            server.close()
        return play(policy, *arguments)

    monkeypatch.setattr(Policy, "update", update)
    with pytest.raises(SystemExit) as stop:
        run(root, *base, urls(server), "vllm.retries=1")
    [path] = root.iterdir()
    assert stop.value.code == 1
    [line] = [s for s in capsys.readouterr().err.splitlines() if s.startswith("error: ")]
    assert "no vLLM server answers after 1 retries" in line and f"resume={path}" in line
    assert steps_of(path) == [0, 1, 2, 3, 4]
    (path / "served" / "wordle-of-a-killed-process").mkdir(parents=True)
    resume(path, urls(start()))
    assert steps_of(path) == [0, 1, 2, 3, 4, 5, 6]
    assert not (path / "served").exists()


@pytest.mark.slow
def test_a_step_whose_validation_was_lost_is_kept(root, base, start, monkeypatch):
    server = start()
    validate, failures = Training._validate, []

    def fail_once(training: Training, step: int, *arguments: Any) -> Any:
        if step == 3 and not failures:
            failures.append(step)
            raise EngineLost("no vLLM server answers")
        return validate(training, step, *arguments)

    monkeypatch.setattr(Training, "_validate", fail_once)
    with pytest.raises(SystemExit):
        run(root, *base, urls(server))
    [path] = root.iterdir()
    assert steps_of(path) == [0, 1, 2, 3]
    resume(path)
    assert steps_of(path) == [0, 1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in metrics_of(path) if "val/win_rate" in m] == [0, 6]


# -- before anything is played --------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy(folder) -> Policy:
    tokenizer = HFTokenizer(AutoTokenizer.from_pretrained(folder))
    return policy_of(lora_of(folder), tokenizer, temperature=0.7)


@pytest.fixture(scope="module")
def setup(base) -> Any:
    return build_experiment(resolve(composed(*base, "sampling.temperature=0.7")))


def attach(policy: Policy, setup: Any, run_folder: Any, *servers: SmallServer, **fields: str):
    settings = ServerSettings(urls=[server.url for server in servers], **fields)
    save = partial(save_adapter, policy.machine.model)
    return serve(policy, replace(setup, servers=settings), run_folder, save=save, vocabulary=340)


SERVERS: dict[str, Callable[[Any], SmallServer]] = {
    "vllm.urls: {url} does not answer": lambda start: start(),
    "model.max_context must be at most 100, the context of {url}": lambda start: start(
        max_model_len=100
    ),
    "vllm.urls: {url} differs from the trainer by": lambda start: start(qwen(340, seed=5).eval()),
    "without --logprobs-mode processed_logprobs": lambda start: start(),
}


@pytest.mark.parametrize("said", SERVERS)
def test_a_server_that_does_not_fit_is_refused_in_one_line(policy, setup, start, said, tmp_path):
    peer, server = start(), SERVERS[said](start)
    server.raw_logprobs = "processed" in said
    if "answer" in said:
        server.close()
    with pytest.raises(ConfigError) as error, attach(policy, setup, tmp_path, peer, server):
        pytest.fail("it plays")
    line = str(error.value)
    assert said.format(url=server.url) in line and "\n" not in line
    assert not list(tmp_path.iterdir()) and not peer.adapters


def test_a_folder_that_cannot_be_written_is_one_line(policy, setup, start, tmp_path):
    (tmp_path / "file").touch()
    server, at = start(), str(tmp_path / "file" / "in")
    text = f"vllm.folder={at} cannot be written: "
    with pytest.raises(ConfigError, match=text), attach(policy, setup, tmp_path, server, folder=at):
        pytest.fail("it plays")
    assert not server.asked, "the folder comes first"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.lora=null"], "rollout.engine=vllm needs an adapter"),
        (["backend.devices=2"], "rollout.engine=vllm trains in one process"),
        (["sampling.beams=4"], "sampling.beams must be 1 with rollout.engine=vllm"),
        (["vllm.urls=[]"], "vllm.urls must name servers"),
        (["vllm.urls=[localhost]"], "vllm.urls must name servers like http://host:8000"),
        (["vllm.urls=['http://me:secret@a:1']"], "without a password"),
    ],
)
def test_settings_that_cannot_work_are_told_before_a_model_is_loaded(base, overrides, said):
    args = [o for o in base if not o.startswith(("backend.", "optim=", "optim."))]
    with pytest.raises(ConfigError, match=said):
        build_experiment(resolve(composed(*args, *overrides)))
