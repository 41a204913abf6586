"""What a request must pass before anything looks at it, and what every answer says to a browser.

The server listens on the loopback interface, which other programs and pages of this machine can
reach too. So a request needs the token of the address, and must name this machine as its host: a
page of another site whose name was made to point here (DNS rebinding) names that site.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wordle_rl.web.fields import MOST_BYTES
from wordle_rl.web.refused import Refused

_LONGEST_PATH = 200  # characters
_HEADERS = {
    # Nothing but the page's own files, and no address outside it.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # an address holds the token
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Lets requests through to an application whose paths begin behind /<token>."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Collection[str]) -> None:
        """hosts: what the Host header may be, such as 127.0.0.1:8000."""
        self._app, self._token, self._hosts = app, token.encode(), frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            behind = self._check(scope)
        except Refused as refused:
            await as_json(refused)(scope, receive, send_safely)
            return
        if not behind:
            home: Response = RedirectResponse(f"{scope['path']}/")
            await home(scope, receive, send_safely)
            return
        await self._app({**scope, "path": behind, "root_path": ""}, _limited(receive), send_safely)

    def _check(self, scope: Scope) -> str:
        """The path behind the token. Raises Refused."""
        headers, path = Headers(scope=scope), scope["path"]
        if headers.get("host") not in self._hosts:
            raise Refused(421, "this address is not the page's own")
        origin = headers.get("origin")
        if origin is not None and _address_of(origin) not in self._hosts:
            raise Refused(403, "another site may not use this page")
        _, token, *rest = path.split("/", 2) if path.startswith("/") else ("", "")
        if not secrets.compare_digest(token.encode("utf-8", "surrogatepass"), self._token):
            raise Refused(403, "the address lacks the token: open the one that the command printed")
        if len(path) > len(self._token) + _LONGEST_PATH:
            raise Refused(414, "the address is too long")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BYTES:
            raise Refused(413, f"the body must have at most {MOST_BYTES} bytes")
        return f"/{rest[0]}" if rest else ""


def _address_of(origin: str) -> str | None:
    """Host and port of an origin, None for what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def as_json(refused: Refused) -> JSONResponse:
    """The answer to a request that is refused."""
    return JSONResponse({"error": refused.message}, refused.status)


def _limited(receive: Receive) -> Receive:
    """Receive a body of at most so many bytes, also without a header that says its length."""
    left = MOST_BYTES

    async def limited() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise Refused(413, f"the body must have at most {MOST_BYTES} bytes")
        return message

    return limited
