"""One JSON object per line on stderr, written by a thread of its own: a request never waits for it.

Bodies, keys and query strings are not logged: they may be about people.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

MOST = 10_000  # lines that wait; where more do, they are counted and left out
PAUSE = 0.05  # seconds between two writes


class Log:
    """Lines for a stream. ``close`` writes what is left."""

    def __init__(self, stream: TextIO | None = None, *, requests: bool = True) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.requests = requests  # also a line for each request
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def say(self, event: str, level: str = "info", **fields: Any) -> None:
        if len(self._lines) >= MOST:
            self._left_out += 1
            return
        self._lines.append({"time": _now(), "level": level, "event": event, **fields})

    def fault(self, event: str, error: BaseException, **fields: Any) -> None:
        """Something that should not have happened, with where it did."""
        trace = "".join(traceback.format_exception(error))
        self.say(event, "error", error=repr(error), trace=trace, **fields)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _write(self) -> None:
        done = False
        while not done:
            done = self._closing.wait(PAUSE)
            left_out, self._left_out = self._left_out, 0
            if left_out:
                self.say("lines left out", "warning", lines=left_out)
            text = "".join(json.dumps(line) + "\n" for line in self._taken())
            if text:
                self._put(text)

    def _taken(self) -> list[dict[str, Any]]:
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def _put(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads, or it was closed
            return


class Forward(logging.Handler):
    """What a library says by ``logging``, as lines of a log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.fault(record.getMessage().strip(), error)
        else:
            self.log.say(record.getMessage(), record.levelname.lower())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
