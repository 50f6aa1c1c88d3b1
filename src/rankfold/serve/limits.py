"""How much a request may ask for, and how long it may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server accepts."""

    body: int = 2**20  # bytes
    batch: int = 256  # queries, histories, texts or candidates in a request
    rows: int = 2048  # rows to grade in a request
    k: int = 1000
    results: int = 50_000  # in a response: rankings times k
    keys: int = 10_000  # in a history, in exclude, in allow
    excluded: int = 500_000  # in a request: rankings times keys in exclude
    text: int = 10_000  # characters in a text
    requests: int = 512  # at the same time
    waiting: int = 256  # of these, for one model
    connections: int = 1024
    headers: int = 2**15  # bytes of the request line and the headers
    timeout: float = 10.0  # seconds from the last byte of a request to its response
    receive_timeout: float = 10.0  # seconds for the headers, and again for the body
    idle_timeout: float = 15.0  # seconds between two requests on a connection
