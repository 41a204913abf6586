"""Settings of vllm=: servers that play for the policy with rollout.engine=vllm."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from wordle_rl.runs.instantiate import ConfigError, check_above_zero, check_range

_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where the servers are, how adapters reach them, and how long a run waits for them.

    server_folder: `folder` as the servers see it. most_gap: nats a token.
    """

    urls: list[str] = field(default_factory=lambda: ["http://127.0.0.1:8000"])
    folder: str | None = None
    server_folder: str | None = None
    prompts_at_once: int = 64
    timeout: float = 300.0
    retries: int = 10
    most_gap: float = 0.1

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigError("vllm.urls must name a server, such as [http://127.0.0.1:8000]")
        for url in self.urls:
            if not _URL.fullmatch(url):
                raise ConfigError(
                    f"vllm.urls must be like http://host:8000, without a password, not {url!r}"
                )
        if len({url.rstrip("/") for url in self.urls}) < len(self.urls):
            raise ConfigError(f"vllm.urls must name each server once, not {', '.join(self.urls)}")
        if self.server_folder is not None:
            if self.folder is None:
                raise ConfigError("vllm.server_folder needs vllm.folder, the same folder seen here")
            if not Path(self.server_folder).is_absolute():
                raise ConfigError(
                    f"vllm.server_folder must begin with /, not {self.server_folder!r}"
                )
        check_range("vllm.prompts_at_once", self.prompts_at_once, 1, 100_000)
        check_above_zero("vllm.timeout", self.timeout, 100_000)
        check_range("vllm.retries", self.retries, 0, 1000)
        check_above_zero("vllm.most_gap", self.most_gap, 100)
