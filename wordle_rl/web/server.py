"""Serves the page on the loopback interface until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.web.app import Page, build_app
from wordle_rl.web.guard import Guard

_LOOPBACK = "127.0.0.1"
_MOST_CONNECTIONS = 32
_HEADER_BYTES = 16_384


def serve(page: Page, *, port: int, open_browser: bool) -> None:
    """Print the address and serve until Ctrl-C. port: 0 for any free one.

    Raises ConfigError when the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_LOOPBACK, port))
        except OSError as error:
            raise ConfigError(
                f"--port must be a free one, not {port} ({error.strerror}); without it, the page "
                "finds one"
            ) from None
        listening.listen()  # a browser may come as soon as the address is known
        port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        app = guarded(page, token, port)
        address = f"http://{_LOOPBACK}:{port}/{token}/"
        print(f"{address}\nCtrl-C ends it.", flush=True)
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, lifespan="off", ws="none",
                loop="asyncio", http="h11", server_header=False, date_header=False,
                limit_concurrency=_MOST_CONNECTIONS, h11_max_incomplete_event_size=_HEADER_BYTES,
                timeout_keep_alive=30, timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        if open_browser and can_open():
            webbrowser.open(address)
        try:
            server.run(sockets=[listening])
        finally:
            page.models.close()
            page.files.close()


def guarded(page: Page, token: str, port: int) -> ASGIApp:
    """The application behind its guard."""
    return Guard(build_app(page), token=token, hosts=[f"{_LOOPBACK}:{port}", f"localhost:{port}"])


def can_open(environment: Callable[[str], str | None] = os.environ.get) -> bool:
    """Whether there is a desktop to open a browser on: one for terminals would take this one."""
    if sys.platform.startswith("linux"):
        return bool(environment("DISPLAY") or environment("WAYLAND_DISPLAY"))
    return True
