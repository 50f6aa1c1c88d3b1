"""The log: one JSON object per line on stderr, written by its own thread.

Requests never wait for the log. Bodies, keys and query strings are not logged: they may be
personal data.
"""

import json
import logging
import os
import sys
import threading
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

_MAX_WAITING_LINES = 10_000  # further lines are counted and dropped
_WRITE_INTERVAL = 0.05  # seconds


class Log:
    """Lines for a stream. ``close`` writes the rest."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        requests: bool = True,
        lock: int | None = None,
        **fields: Any,
    ) -> None:
        """``requests``: each has a line. ``lock``: from ``share``. ``fields``: of all lines."""
        self.stream = sys.stderr if stream is None else stream
        self.requests, self._lock, self._fields = requests, lock, fields
        self._lines: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        if len(self._lines) >= _MAX_WAITING_LINES:
            self._dropped += 1
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lines.append({"time": now, "level": level, "event": event, **self._fields, **fields})

    def share(self) -> int:
        """A lock for the logs of other processes with this stream: their lines do not mix."""
        self._lock = os.memfd_create("log")
        return self._lock

    def write_exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """An unexpected error, with its traceback."""
        trace = "".join(traceback.format_exception(error))
        self.write(event, "error", error=repr(error), trace=trace, **fields)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        done = False
        while not done:
            done = self._closing.wait(_WRITE_INTERVAL)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self.write("lines dropped", "warning", lines=dropped)
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                self._flush("".join(json.dumps(line) + "\n" for line in lines))

    def _flush(self, text: str) -> None:
        try:
            if self._lock is not None:
                import fcntl

                fcntl.lockf(self._lock, fcntl.LOCK_EX)
            self.stream.write(text)
            self.stream.flush()
            if self._lock is not None:
                fcntl.lockf(self._lock, fcntl.LOCK_UN)
        except (OSError, ValueError):  # the reader has gone, or the stream is closed
            return


class LogHandler(logging.Handler):
    """Writes the ``logging`` records of libraries to a log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.write_exception(record.getMessage().strip(), error)
        else:
            self.log.write(record.getMessage(), record.levelname.lower())
