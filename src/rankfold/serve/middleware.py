"""What stands before every request: who may ask, how much, how long; and what is noted of it.

Plain ASGI, around the whole application. A body is read here, up to its limit, before anything else
looks at it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from rankfold.serve.limits import Limits, Problem, error_json, too_much
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = "; ".join(
    [
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    ]
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
OPEN = re.compile(
    r"/(health|ready|docs|openapi\.json|docs/.*|page/.*)?"
)  # no token: nothing of a model
ALWAYS = ("/health", "/ready", "/metrics")  # however busy the server is
ENDPOINTS = {"search", "grade", "history", "keys", "card"}
DRAINED = 4  # times the limit of a body: so much more is read, that the refusal is not lost


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask."""

    token: str | None = None  # None: everybody
    hosts: frozenset[str] | None = None  # names of the server that are good; None: all


class Guard:
    """An application and what it is guarded by."""

    def __init__(
        self, app: App, access: Access, limits: Limits, log: Log, metrics: Metrics
    ) -> None:
        self.app, self.access, self.limits, self.log, self.metrics = (
            app,
            access,
            limits,
            log,
            metrics,
        )
        self.closing = False  # finishes what has begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = time.perf_counter(), 0
        self.metrics.in_flight += 1
        try:
            try:
                messages = await self._answered(scope, receive)
            except Problem as problem:
                messages = _refusal(problem)
            except Exception as error:
                self.log.fault("a bug", error, path=scope["path"])
                messages = _refusal(Problem(500, "the server made a mistake", "its log tells more"))
            status = messages[0]["status"]
            for message in messages:
                await send(_finished(message, scope["method"]))
        finally:
            self.metrics.in_flight -= 1
            seconds = time.perf_counter() - start
            self.metrics.count(endpoint_of(scope["path"]), status, seconds)
            if self.log.requests:
                self._note(scope, status, seconds)

    async def _answered(self, scope: Scope, receive: Receive) -> list[Message]:
        """The whole answer, before any of it is sent: how slowly it is read does not count."""
        self._check(scope)
        inner = await self._read(scope, receive)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app({**scope, "method": method}, inner, keep)
        except TimeoutError:
            hint = "ask for less at a time, or again later"
            raise Problem(504, f"it took more than {self.limits.seconds:g} s", hint) from None
        return messages

    def _check(self, scope: Scope) -> None:
        headers, path = dict(scope["headers"]), scope["path"]
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Problem(400, "the request has several Host headers", "send one")
        self._check_host(headers.get(b"host", b""))
        self._check_token(path, headers.get(b"authorization", b""))
        if path not in ALWAYS:
            if self.closing:
                raise Problem(503, "the server is shutting down", "ask another, or again later")
            if self.metrics.in_flight > self.limits.in_flight:
                raise too_much("the server")

    def _check_host(self, host: bytes) -> None:
        """A page of another site whose name was turned to this address has that site's name."""
        if self.access.hosts is None:
            return
        name = re.sub(r":\d*$", "", host.decode("latin-1")).lower()
        if name not in self.access.hosts:
            hint = "use its address, or start it with a token, and it answers to any name"
            raise Problem(400, f"this server does not go by the name {name!r:.100}", hint)

    def _check_token(self, path: str, given: bytes) -> None:
        if self.access.token is None or OPEN.fullmatch(path):
            return
        wanted = f"Bearer {self.access.token}".encode()
        if not hmac.compare_digest(_canonical(given), wanted):
            hint = "send the header `Authorization: Bearer TOKEN`"
            raise Problem(
                401, "the token is missing or wrong", hint, {"www-authenticate": "Bearer"}
            )

    async def _read(self, scope: Scope, receive: Receive) -> Receive:
        """What gives the application the body, which is all there."""
        headers, limit = dict(scope["headers"]), self.limits.body
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return receive
        closing, length = {"connection": "close"}, headers.get(b"content-length", b"0")
        body = None
        if length.isdigit() and int(length[:20]) <= limit:
            try:
                async with asyncio.timeout(self.limits.arriving):
                    body = await _body(receive, limit)
            except TimeoutError:
                hint = "send it faster, or less of it"
                raise Problem(408, "the body did not arrive in time", hint, closing) from None
        if body is None:
            await _drain(receive, DRAINED * limit)
            hint = "ask in several requests"
            raise Problem(413, f"the body has more than {limit:,} bytes", hint, closing)
        return _replay(body, receive)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        client = scope.get("client") or ("", 0)
        self.log.say(
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round(1000 * seconds, 2),
            client=client[0],
        )


def endpoint_of(path: str) -> str:
    """What is asked, without who is: a label that has few values."""
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "models" and parts[3] in ENDPOINTS:
        return f"/models/{{name}}/{parts[3]}"
    if len(parts) == 2 and (parts[1] in ENDPOINTS or path in (*ALWAYS, "/", "/models", "/docs")):
        return path
    return "other"


def _canonical(given: bytes) -> bytes:
    """The scheme's letters may be of any case."""
    scheme, _, rest = given.partition(b" ")
    return b"Bearer " + rest.strip() if scheme.lower() == b"bearer" else given


def _refusal(problem: Problem) -> list[Message]:
    body = error_json(problem.error, problem.hint)
    headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return [
        {"type": "http.response.start", "status": problem.status, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]


def _finished(message: Message, method: str) -> Message:
    """With the headers of every answer; HEAD gets these alone."""
    if message["type"] == "http.response.start":
        return {**message, "headers": [*message.get("headers", ()), *HEADERS]}
    return {**message, "body": b""} if method == "HEAD" else message


async def _body(receive: Receive, limit: int) -> bytes | None:
    """All of it; None where it is too large."""
    size, parts = 0, []
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "the connection was closed", "nobody reads this")
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if size <= limit else None
    return None


async def _drain(receive: Receive, most: int) -> None:
    """Read on for a while: who is still sending does not see an answer."""
    size = 0
    try:
        async with asyncio.timeout(1.0):
            while size < most:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def inner() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return inner
