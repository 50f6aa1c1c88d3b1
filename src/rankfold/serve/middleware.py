"""Middleware: access, limits, timeouts and logging around the whole application.

Plain ASGI. A request's body is read here, up to its limit, before the application sees it. Some
endpoints are called from here: routing costs as much time as a search, and does little for an
endpoint that checks its own body.
"""

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from rankfold.errors import UserError
from rankfold.serve.errors import HttpError, too_busy
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics

Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[_Message]]
Send = Callable[[_Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = Callable[[bytes, bytes], Awaitable[bytes]]
"""``(content type, body)`` to a JSON document."""

_CONTENT_POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    b"object-src 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", _CONTENT_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_CLOSE = (b"connection", b"close")
_PORT = re.compile(r":\d*$")  # at the end of a Host header
_PUBLIC_PATHS = re.compile(  # need no token: they show nothing of a model
    r"/(health|ready|docs|openapi\.json|docs/.*|page/.*)?"
)
_MONITORING_PATHS = ("/health", "/ready", "/metrics")  # answered however busy the server is
_DRAIN_FACTOR = 4  # a refused body is read up to this many times its limit, so that the client
# gets to read the error


@dataclass(frozen=True, slots=True)
class Access:
    """Which requests are allowed."""

    token: str | None = None  # None: no token is needed
    hosts: frozenset[str] | None = None  # accepted values of the Host header; None: any


class Middleware:
    """An application with its access rules, limits, log and metrics."""

    def __init__(
        self,
        app: App,
        direct: Mapping[tuple[str, str], Endpoint],
        endpoints: Collection[str],
        access: Access,
        limits: Limits,
        log: Log,
        metrics: Metrics,
    ) -> None:
        """``direct``: by method and path. ``endpoints`` are those of a model: ``search``, ..."""
        self.app, self.direct, self.endpoints, self.access = app, direct, endpoints, access
        self.limits, self.log, self.metrics = limits, log, metrics
        self.closing = False  # finish open requests, refuse new ones
        self.retiring = False  # answer, and close the connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = time.perf_counter(), 0
        self.metrics.in_flight += 1
        try:
            try:
                messages = await self._respond(scope, receive)
            except HttpError as error:
                messages = _error_messages(error)
            except UserError as error:
                messages = _error_messages(HttpError(400, str(error), error.hint))
            except Exception as error:
                self.log.write_exception("internal error", error, path=scope["path"])
                hint = "this is a bug in rankfold; the traceback is in the server's log"
                messages = _error_messages(HttpError(500, "internal error", hint))
            status = messages[0]["status"]
            close = self.closing or self.retiring  # not every uvicorn announces it at a shutdown
            for message in messages:
                await send(_completed(message, scope["method"], close=close))
        finally:
            self.metrics.in_flight -= 1
            seconds = time.perf_counter() - start
            self.metrics.count(endpoint_label(scope["path"], self.endpoints), status, seconds)
            if self.log.requests:
                what = {"path": scope["path"][:200], "status": status}
                what |= {"ms": round(1000 * seconds, 2), "client": (scope.get("client") or [""])[0]}
                self.log.write("request", method=scope["method"], **what)

    async def _respond(self, scope: Scope, receive: Receive) -> list[_Message]:
        """The complete response, before any of it is sent: a slow reader does not time out."""
        headers = dict(scope["headers"])
        self._check(scope, headers)
        body = await self._body(headers, receive)
        endpoint = self.direct.get((scope["method"], scope["path"]))
        try:
            async with asyncio.timeout(self.limits.timeout):
                if endpoint is None:
                    return await self._ask_app(scope, receive, body)
                document = await endpoint(headers.get(b"content-type", b""), body or b"")
                return _json_messages(200, document)
        except TimeoutError:
            hint = "ask for less, or try again later"
            error = f"the answer took more than {self.limits.timeout:g} s"
            raise HttpError(504, error, hint) from None

    async def _ask_app(self, scope: Scope, receive: Receive, body: bytes | None) -> list[_Message]:
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        messages: list[_Message] = []

        async def collect(message: _Message) -> None:
            messages.append(message)

        await self.app(scope, receive if body is None else _replay(body, receive), collect)
        return messages

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        path = scope["path"]
        names = [name for name, _ in scope["headers"]]
        if len(names) > len(headers) and names.count(b"host") > 1:
            raise HttpError(400, "the request has several Host headers", "send one")
        self._check_host(headers.get(b"host", b""))
        self._check_token(path, headers.get(b"authorization", b""))
        if path not in _MONITORING_PATHS:
            if self.closing:
                raise HttpError(503, "the server is shutting down", "try again later")
            if self.metrics.in_flight > self.limits.requests:
                raise too_busy("the server")

    def _check_host(self, host: bytes) -> None:
        """Prevent DNS rebinding: a foreign name that resolves to this address is refused."""
        if self.access.hosts is None:
            return
        name = _PORT.sub("", host.decode("latin-1")).lower()
        if name not in self.access.hosts:
            hint = "use the server's address; a server with a token accepts any name"
            raise HttpError(400, f"the Host header {name!r:.100} is not accepted", hint)

    def _check_token(self, path: str, given: bytes) -> None:
        if self.access.token is None or _PUBLIC_PATHS.fullmatch(path):
            return
        scheme, _, token = given.partition(b" ")
        same = hmac.compare_digest(token.strip(), self.access.token.encode())
        if scheme.lower() != b"bearer" or not same:
            raise HttpError(
                401,
                "the token is missing or wrong",
                "send the header `Authorization: Bearer TOKEN`",
                {"www-authenticate": "Bearer"},
            )

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """The complete body; None if the request has none."""
        limit = self.limits.body
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return None
        close, length = {"connection": "close"}, headers.get(b"content-length", b"0")
        body = None
        if length.isdigit() and int(length[:20]) <= limit:
            try:
                async with asyncio.timeout(self.limits.receive_timeout):
                    body = await _read_body(receive, limit)
            except TimeoutError:
                hint = "send it faster, or send less"
                raise HttpError(408, "the body did not arrive in time", hint, close) from None
        if body is None:
            await _drain(receive, _DRAIN_FACTOR * limit)
            hint = "split it into several requests"
            raise HttpError(413, f"the body has more than {limit:,} bytes", hint, close)
        return body


def endpoint_label(path: str, model_endpoints: Collection[str]) -> str:
    """The endpoint of a path for metrics: a label with few values."""
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "models" and parts[3] in model_endpoints:
        return f"/models/{{name}}/{parts[3]}"
    others = (*_MONITORING_PATHS, "/", "/models", "/docs")
    if len(parts) == 2 and (parts[1] in model_endpoints or path in others):
        return path
    return "other"


def _error_messages(error: HttpError) -> list[_Message]:
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return _json_messages(error.status, error.body, headers)


def _json_messages(
    status: int, body: bytes, headers: Collection[tuple[bytes, bytes]] = ()
) -> list[_Message]:
    own = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
    return [
        {"type": "http.response.start", "status": status, "headers": [*headers, *own]},
        {"type": "http.response.body", "body": body},
    ]


def _completed(message: _Message, method: str, *, close: bool) -> _Message:
    """Add the security headers; drop the body of a response to HEAD."""
    if message["type"] == "http.response.start":
        headers = [*message.get("headers", ()), *SECURITY_HEADERS]
        return {**message, "headers": [*headers, _CLOSE] if close else headers}
    return {**message, "body": b""} if method == "HEAD" else message


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The complete body; None if it is too large."""
    size, parts = 0, []
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the client closed the connection")
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if size <= limit else None
    return None


async def _drain(receive: Receive, limit: int) -> None:
    """Read on for a moment: a client that is still sending does not see the response."""
    size = 0
    try:
        async with asyncio.timeout(1.0):
            while size < limit:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> _Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
