"""Errors that become HTTP responses."""

import json
from collections.abc import Mapping


class HttpError(Exception):
    """A response with an error status. The body holds ``error`` and ``hint``."""

    def __init__(
        self, status: int, error: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.hint = status, error, hint
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return error_body(self.error, self.hint)


def error_body(error: str, hint: str = "") -> bytes:
    """The body of every error, in ASCII: a key may hold half of a surrogate pair."""
    return json.dumps({"error": error, "hint": hint}).encode()


def too_busy(what: str) -> HttpError:
    return HttpError(
        429, f"{what} is busy with other requests", "try again in a moment", {"retry-after": "1"}
    )
