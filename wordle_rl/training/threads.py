"""Chooses the number of CPU threads again when a run's steps become slow."""

from __future__ import annotations

from wordle_rl.policy.policy import Policy


def watch_threads(policy: Policy, seconds: float) -> dict[str, float]:
    """Note how many seconds a step took. Returns the metric of threads in use.

    When one process asks for it, all processes choose again at once. The metric is the smallest
    number of threads among them.
    """
    threads, processes = policy.computing.threads, policy.processes
    if threads is None:
        return {}
    asked = processes.gather((threads.count, threads.ask_again(seconds)))
    counts, due = zip(*asked, strict=True)
    if any(due):
        for rank, change in enumerate(processes.gather(threads.choose())):
            if change is not None and processes.rank == 0:
                print(f"process {rank}: " * (len(counts) > 1) + change, flush=True)
    return {"machine/threads": float(min(counts))}
