"""Ray nodes on this machine, and the script of examples/verl run on them without a GPU."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.processes import kill_tree
from wordle_rl.runs.paths import ROOT

NAME = "wordle_engine"  # of the rollout engine
_OBJECTS = 200_000_000  # bytes of Ray's shared memory, per node
_CPUS = 8  # logical ones, per node: verl's actors ask for one each
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# What a CPU and two small steps need; everything else is as the script says.
CPU_SETTINGS = (
    "trainer.device=cpu",
    f"{_ROLLOUT}.name={NAME}",
    f"actor_rollout_ref.model.external_lib={__name__.rpartition('.')[0]}.rollout",
    "actor_rollout_ref.model.use_remove_padding=false",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    f"{_ROLLOUT}.dtype=float32",
    f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype=fp32",
    f"+{_ACTOR}.fsdp_config.mixed_precision.reduce_dtype=fp32",
    f"{_ACTOR}.use_torch_compile=false",
    f"{_ACTOR}.fsdp_config.use_torch_compile=false",
    f"{_ACTOR}.use_dynamic_bsz=false",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu=8",
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
    f"{_ROLLOUT}.agent.num_workers=1",
    "data.dataloader_num_workers=0",
    "trainer.logger=[console]",
    "trainer.resume_mode=disable",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "transfer_queue.backend.SimpleStorage.total_storage_size=1000",
)


@contextmanager
def ray_nodes(count: int, log: Path) -> Iterator[dict[str, str]]:
    """Start so many Ray nodes, each with one logical GPU. Yields the environment to use them in.

    log: folder for what Ray prints. All processes are ended by their ids: `ray stop` would end
    everybody's.
    """
    package = __name__.rpartition(".")[0]
    bin_dir = Path(sys.executable).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    room = Path(tempfile.mkdtemp(prefix="wrl-", dir="/tmp"))  # sockets need a short path
    # Packages of verl's environment bring a package tests of their own, which would hide ours.
    tests_dir = room / "ours" / "tests"
    tests_dir.mkdir(parents=True)
    (tests_dir / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'tests')!r}]\n")
    env = {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": f"{tests_dir.parent}{os.pathsep}{ROOT}",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RAY_AUTH_MODE": "token",  # Ray's server listens on every interface
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "600",
        "RAY_agent_register_timeout_ms": "600000",
        "RAY_memory_monitor_refresh_ms": "0",  # it kills ours for what other programs hold
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": f"{package}.platform",
        "VERL_ENGINE_DEVICE": "cuda",
    }
    arguments = [
        str(bin_dir / "ray"),
        "start",
        "--block",
        "--node-ip-address=127.0.0.1",
        "--num-gpus=1",
        f"--num-cpus={_CPUS}",
        f"--object-store-memory={_OBJECTS}",
        "--disable-usage-stats",
    ]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={room}"]
    processes: list[subprocess.Popen[bytes]] = []
    node_env = {key: value for key, value in env.items() if key != "RAY_ADDRESS"}
    try:
        for number in range(count):
            command = [*arguments, *(head if number == 0 else [f"--address={env['RAY_ADDRESS']}"])]
            file = log / f"ray_{number}.log"
            with file.open("wb") as output:
                processes.append(
                    subprocess.Popen(command, env=node_env, stdout=output, stderr=subprocess.STDOUT)
                )
            end = time.monotonic() + 600
            while "Ray runtime started" not in file.read_text():
                assert processes[-1].poll() is None and time.monotonic() < end, file.read_text()
                time.sleep(0.2)
        yield env
    finally:
        for process in processes:  # some of it ignores SIGTERM
            kill_tree(process.pid)
            process.wait()
        shutil.rmtree(room, ignore_errors=True)


def run_script(
    folder: Path, env: dict[str, str], *settings: str, limit: float
) -> subprocess.CompletedProcess[str]:
    """Run a folder's launch script on the nodes. limit: seconds."""
    return subprocess.run(
        ["bash", str(ROOT / "examples/verl/train.sh"), str(folder), *CPU_SETTINGS, *settings],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
