"""Hides the passwords in addresses of databases before they are shown or stored.

SQLAlchemy reads the addresses. When it cannot read one, only the scheme is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

HIDDEN = "***"
STORAGE = "WORDLE_RL_STORAGE"  # the environment variable with the address of a study's database
_SECRET = re.compile(r"pass(?!file)|pwd|secret|token|credential|odbc_connect", re.I)  # query keys
_WITHIN = re.compile(r"(pass\w*|pwd|secret|token)\s*=", re.I)  # inside some other part
_SCHEME = re.compile(r"(?!https?:)[A-Za-z][\w+.-]*://", re.I)  # not web pages
_SHORTEST = 4  # letters of a password that is masked wherever it occurs in a message
# An address in an argument: the value of the setting or the option, or all from a scheme on.
_GIVEN = (
    re.compile(
        r"""^(?:\+*hydra\.sweeper\.|--)storage=(?P<quote>['"]?)(?P<address>.*[@=].*)""", re.S
    ),
    re.compile(rf"""(?P<quote>['"]?)(?P<address>{_SCHEME.pattern}.*)""", re.S),
)


def shown_address(address: str) -> str:
    """An address without its passwords."""
    url = _parsed(address)
    if url is None:
        scheme = _SCHEME.match(address)
        return (scheme[0] if scheme else "") + HIDDEN
    if not _secrets(url):
        return address
    query = {key: HIDDEN if _SECRET.search(key) else value for key, value in url.query.items()}
    text = url.set(query=query).render_as_string(hide_password=True)
    return text.replace(quote_plus(HIDDEN), HIDDEN)


def readable(address: str) -> bool:
    """Whether the secret parts of an address can be told from the others."""
    return _parsed(address) is not None


def without_hidden(address: str) -> str:
    """A shown address without its hidden passwords, for drivers that find the password elsewhere.

    PostgreSQL's drivers read PGPASSWORD and ~/.pgpass.
    """
    from sqlalchemy.engine import URL

    url = _parsed(address)
    if url is None:
        return address
    return URL.create(
        url.drivername, url.username, None if url.password == HIDDEN else url.password,
        url.host, url.port, url.database, {k: v for k, v in url.query.items() if v != HIDDEN},
    ).render_as_string(hide_password=False)  # fmt: skip


def hidden(text: str, arguments: Iterable[str]) -> str:
    """The text with the passwords of all addresses in these arguments hidden."""
    for argument in arguments:
        found = next(filter(None, (given.search(argument) for given in _GIVEN)), None)
        if found is None:
            continue
        quote, address = found["quote"], found["address"]
        address = address.rpartition(quote)[0] or address if quote else address.rstrip("]}")
        text = text.replace(address, shown_address(address))
        url = _parsed(address)
        for secret in _secrets(url) if url else ():
            if len(secret) >= _SHORTEST:
                text = text.replace(secret, HIDDEN)
    return text


def shown_command(arguments: Iterable[str]) -> list[str]:
    """A command without passwords, as it may be stored in a file."""
    return [hidden(argument, [argument]) for argument in arguments]


def _parsed(address: str) -> URL | None:
    """None when part of a password may have been read as another part, as in user:p@ss@host."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError:  # it comes with Optuna
        return None
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        return None
    others = [v for key in url.query if not _SECRET.search(key) for v in _values(url, key)]
    parts = [part or "" for part in (url.username, url.host, url.database)]
    server = url.username is not None or url.host is not None  # a file's path may have an @
    if any(map(_WITHIN.search, [*parts, *others])) or (server and "@" in "".join(parts[1:])):
        return None
    return url


def _secrets(url: URL) -> list[str]:
    found = [v for key in url.query if _SECRET.search(key) for v in _values(url, key)]
    return [secret for secret in (url.password, *found) if secret]


def _values(url: URL, key: str) -> Sequence[str]:
    value = url.query[key]
    return (value,) if isinstance(value, str) else value
