"""Signals as a process meets them: before there is anything to lose, in a run, and twice."""

import signal
import subprocess
import sys

import pytest

LOOP = """
import sys, time
from wordle_rl.runs.interrupts import Interrupts
with Interrupts() as interrupts:
    if sys.argv[1] == "held":
        interrupts.hold()
    try:
        print("ready", flush=True)
        for _ in range(3000):
            time.sleep(0.01)
            if len(sys.argv) > 2:
                interrupts.check()
    finally:
        print("cleaned up", flush=True)
"""

# A call of a library, in which Python runs no handler; the child hangs and keeps stdout open.
CALL = """
import hashlib, signal, subprocess
from wordle_rl.runs.interrupts import Interrupts
with Interrupts() as interrupts:
    interrupts.hold()
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    child.send_signal(signal.SIGSTOP)
    interrupts.on_second(child.kill)
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000_000)
    child.kill()
    print("the call returned", flush=True)
"""


def start(*arguments: str, code: str = LOOP) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("signum", "code", "arguments"),
    [(signal.SIGINT, 130, ("loading",)), (signal.SIGTERM, 143, ("held", "check"))],
)
def test_the_first_signal_ends_the_process_in_order(signum, code, arguments):
    process = start(*arguments)
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code and out == "cleaned up\n"
    assert ("Ctrl-C again" in err) == (arguments[0] == "held") and "Traceback" not in err


def test_a_second_signal_ends_it_at_once():
    process = start("held")  # and never looks whether one has come
    assert signal_twice(process, signal.SIGINT) == (130, "")


def test_it_does_so_inside_a_long_call_and_takes_a_child_along_that_hangs():
    assert signal_twice(start(code=CALL), signal.SIGTERM) == (143, "")


def signal_twice(process: subprocess.Popen[str], signum: int) -> tuple[int, str]:
    """Send two signals. Returns the exit code and what was printed until nobody could any more."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "Ctrl-C again" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signum)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out
