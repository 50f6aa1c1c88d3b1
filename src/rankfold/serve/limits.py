"""How much a request may ask for, and what it is told when it asks for more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server takes on."""

    body: int = 2**20  # bytes
    batch: int = 256  # queries, histories, texts or candidates of a request
    rows: int = 2048  # to grade in a request
    k: int = 1000
    results: int = 50_000  # of a request: lists times k
    keys: int = 10_000  # in a history, in exclude, in allow
    excluded: int = 500_000  # of a request: lists times keys in exclude
    text: int = 10_000  # characters of a text
    in_flight: int = 512  # requests at the same time
    waiting: int = 256  # of these, for one model
    connections: int = 1024
    head: int = 2**15  # bytes of a request before its body
    seconds: float = 10.0  # from the last byte of a request to its answer
    arriving: float = 10.0  # seconds for a head, and again for a body
    idle: float = 15.0  # seconds between two requests of a connection


class Problem(Exception):
    """An answer that is not the one asked for."""

    def __init__(
        self, status: int, error: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.hint = status, error, hint
        self.headers = dict(headers or {})


def error_json(error: str, hint: str = "") -> bytes:
    """The body of every error. ASCII: a key may hold half of a surrogate pair."""
    return json.dumps({"error": error, "hint": hint}).encode()


def too_much(what: str) -> Problem:
    return Problem(
        429, f"{what} is busy with other requests", "try again in a moment", {"retry-after": "1"}
    )
