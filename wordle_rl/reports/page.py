"""Makes a page of a template: one file that opens offline and asks nobody for anything.

Its policy (Content-Security-Policy) lets a browser run the page's own script, whose digest it
names, and load nothing. Texts from a run folder are escaped by the template engine.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from wordle_rl.reports.drawing import Chart
from wordle_rl.reports.svg import Styles
from wordle_rl.reports.tables import Table
from wordle_rl.runs.untrusted import printable

_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link to a file beside the page, or a folder below."""

    href: str  # relative
    text: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a page under its own heading."""

    key: str  # of the heading, for links
    title: str
    lines: Sequence[str] = ()
    strong: bool = False  # whether the first line is the headline
    links: Sequence[Link] = ()
    charts: Sequence[Chart | None] = ()
    tables: Sequence[Table | None] = ()
    pairs: Sequence[Mapping[str, Any]] = ()  # from shown_games.boards_beside
    games: Mapping[str, Any] | None = None  # from shown_games.game_data

    @property
    def empty(self) -> bool:
        return not (
            self.lines or self.links or self.pairs or self.games or any(self.charts)
            or any(self.tables)
        )  # fmt: skip


def render(
    title: str, facts: Sequence[str], missing: Sequence[str], parts: Sequence[Part], styles: Styles
) -> str:
    """The HTML of a page. Empty parts are left out.

    facts: lines below the title. missing: sentences about what could not be read. styles: of the
    pictures in the parts.
    """
    css, script = f"{_read('page.css')}\n{styles.css}", _read("games.js")
    policy = (
        f"default-src 'none'; style-src {_digest(css)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_plain,
    )  # fmt: skip
    whole = [
        replace(part, charts=[*filter(None, part.charts)], tables=[*filter(None, part.tables)])
        for part in parts
        if not part.empty
    ]
    # Style and script are of this package, and a browser compares them with their digests.
    return engine.get_template("page.html.j2").render(
        policy=policy, css=Markup(css), script=Markup(script), title=title,
        facts=facts, missing=missing, parts=whole,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """A text without characters that turn its direction."""
    return printable(value) if type(value) is str else value


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """A source of the policy: the sha256 of an element's text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
