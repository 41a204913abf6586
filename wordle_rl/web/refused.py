"""The one kind of error that a request can end with."""

from __future__ import annotations


class Refused(Exception):
    """A request cannot be answered. The message is one line for the person at the page."""

    def __init__(self, status: int, message: str) -> None:
        """status: of HTTP, 400 to 599."""
        super().__init__(message)
        self.status, self.message = status, message
