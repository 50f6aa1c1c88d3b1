"""A connection: what arrives and what is read of the answers, within bounds.

uvicorn bounds neither the head of a request, nor how long it takes to arrive, nor how long a client
leaves its answers unread.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rankfold.serve.limits import Limits, error_json
from rankfold.serve.middleware import HEADERS

READ = 2**14  # bytes that have to be read of what was written, in the time that may be idle
Refusal = tuple[int, str, str]  # status, error, hint
BROKEN: Refusal = (400, "that is no HTTP request", "speak HTTP/1.1")
TOO_LARGE: Refusal = (431, "the head of the request is too large", "send fewer headers")


class Protocol(HttpToolsProtocol):
    """uvicorn's, with bounds on heads, on connections, and on how long nobody reads an answer."""

    bounds = Limits()
    _timer: asyncio.TimerHandle | None = None  # of what is to arrive
    _reader: asyncio.TimerHandle | None = None  # of what is to be read
    _answering: RequestResponseCycle | None = None  # others wait behind it
    _refusal: Refusal | None = None  # what is said after the answers that are due
    _head = 0  # bytes since the last head was complete, or since the connection was made
    _fields = 0  # bytes of the address and the headers of this request
    _inside = False  # a body: what arrives is no head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            self._end((503, "too many connections", "close some, or try again later"))
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        for cycle in (self._answering, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:  # uvicorn tells only the last
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._refusal is not None:
            return
        if not self._inside:
            self._head += len(data)
            if self._timer is None:
                self._wait()
        super().data_received(data)
        if not self._inside and self._head > self.bounds.head and self._refusal is None:
            self._refuse(TOO_LARGE)

    def on_message_begin(self) -> None:
        self._fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._inside, self._head = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._inside, self._head = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch()
        elif self._refusal is not None and self._is_done:
            self._end(self._refusal)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        if not self.transport.is_closing():
            self._refuse(TOO_LARGE if self._fields > self.bounds.head else BROKEN)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_done(self) -> bool:
        """Whether all that was asked is answered."""
        return not self.pipeline and (self._answering is None or self._answering.response_complete)

    def _count(self, size: int) -> None:
        """Stops the parser where a head is too large, also one that arrives all at once."""
        self._fields += size
        if self._fields > self.bounds.head:
            raise ValueError("the head is too large")

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.bounds.arriving, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # another is still being answered
        elif not self.transport.is_closing():
            self._end((408, "the request did not arrive in time", "send it faster"))

    def _watch(self) -> None:
        """End the connection of who does not read what was written to it."""
        self._stop_watching()
        left = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(self.bounds.idle, self._unread, left)

    def _stop_watching(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - READ:
            self.transport.abort()
        else:
            self._watch()  # slowly, but it is read

    def _refuse(self, refusal: Refusal) -> None:
        """What follows is not read; what was asked before is answered first."""
        self._stop_waiting()
        self._refusal = refusal
        if self._inside and self.pipeline:
            self.pipeline.popleft()  # the last, whose body is broken
        elif self._inside or self._is_done:
            self._end(refusal)

    def _end(self, refusal: Refusal) -> None:
        """Answer where there is no request to answer, and close."""
        self._stop_waiting()
        status, error, hint = refusal
        body = error_json(error, hint)
        headers = [(b"content-type", b"application/json"), *HEADERS]
        lines = [b"%s: %s\r\n" % header for header in headers]
        head = b"HTTP/1.1 %d \r\n" % status
        end = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join([head, *lines, end, body]))
        self.transport.close()
        self._watch()
