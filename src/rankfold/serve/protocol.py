"""A connection with limits on what arrives and on how long responses stay unread.

uvicorn limits neither the headers of a request, nor how long it takes to arrive, nor how long a
client leaves its responses unread.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.middleware import SECURITY_HEADERS

MIN_READ = 2**14  # bytes of a response that a client must read within the idle timeout


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on headers, connections and unread responses."""

    limits = Limits()
    _arrival_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _current: RequestResponseCycle | None = None  # pipelined requests wait for it
    _error: HttpError | None = None  # sent after the responses that are due
    _unparsed = 0  # bytes since the headers of the last request were complete
    _header_bytes = 0  # of this request: its URL and headers
    _in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(HttpError(503, "too many connections", "close some, or try again later"))
            return
        self._start_arrival_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_arrival_timer()
        self._stop_read_timer()
        for cycle in (self._current, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:  # uvicorn notifies only the last
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._error is not None:
            return
        if not self._in_body:
            self._unparsed += len(data)
        super().data_received(data)
        if self._in_body or self._unparsed == 0 or self._error is not None:
            return  # most requests arrive at once, and need no timer
        if self._unparsed > self.limits.headers:
            self._fail(_headers_too_large())
        elif self._arrival_timer is None and not self.transport.is_closing():
            self._start_arrival_timer()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_arrival_timer()
        self._in_body, self._unparsed = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body, self._unparsed = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_read_timer()
        elif self._error is not None and self._all_answered:
            self._end(self._error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_read_timer()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        if self.transport.is_closing():
            return
        if self._header_bytes > self.limits.headers:
            self._fail(_headers_too_large())
        else:
            self._fail(HttpError(400, "invalid HTTP request", "send HTTP/1.1"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._current = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _all_answered(self) -> bool:
        return not self.pipeline and (self._current is None or self._current.response_complete)

    def _count(self, size: int) -> None:
        """Stop the parser if the headers are too large, even if they arrive all at once."""
        self._header_bytes += size
        if self._header_bytes > self.limits.headers:
            raise ValueError("the headers are too large")

    def _start_arrival_timer(self) -> None:
        self._arrival_timer = self.loop.call_later(self.limits.receive_timeout, self._on_late)

    def _stop_arrival_timer(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _on_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_arrival_timer()  # an earlier request is still being answered
        elif not self.transport.is_closing():
            self._end(HttpError(408, "the request did not arrive in time", "send it faster"))

    def _start_read_timer(self) -> None:
        """Close the connection later if the client does not read its responses."""
        self._stop_read_timer()
        unread = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.limits.idle_timeout, self._on_unread, unread)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - MIN_READ:
            self.transport.abort()
        else:
            self._start_read_timer()  # the client reads slowly, but it does

    def _fail(self, error: HttpError) -> None:
        """Read no further; send the error after the responses to earlier requests."""
        self._stop_arrival_timer()
        self._error = error
        if self._in_body and self.pipeline:
            self.pipeline.popleft()  # the last request, whose body is broken
        elif self._in_body or self._all_answered:
            self._end(error)

    def _end(self, error: HttpError) -> None:
        """Send an error without a request, and close."""
        self._stop_arrival_timer()
        body = error.body
        headers = [(b"content-type", b"application/json"), *SECURITY_HEADERS]
        lines = [b"%s: %s\r\n" % header for header in headers]
        first = b"HTTP/1.1 %d \r\n" % error.status
        last = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join([first, *lines, last, body]))
        self.transport.close()
        self._start_read_timer()


def _headers_too_large() -> HttpError:
    return HttpError(431, "the request headers are too large", "send fewer or shorter headers")
