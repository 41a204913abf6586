"""The address of the page to play."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.web.server import serve


def test_a_port_in_use_is_named_and_what_else_to_do():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port, page = other.getsockname()[1], object()
        unused: Any = page  # the page is not looked at before
        with pytest.raises(ConfigError, match=rf"--port must be a free one, not {port} \(Address"):
            serve(unused, port=port, open_browser=False)
