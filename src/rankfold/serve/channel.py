"""Messages between a server and its worker processes: JSON and open files, over a socket."""

import json
import socket
import threading
from collections.abc import Sequence
from typing import Any

_MAX_HANDLES = 250  # Linux passes 253 at most


class Channel:
    """One end of a connection between two processes. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any], handles: Sequence[int] = ()) -> None:
        """An OSError if the other process has ended."""
        body = json.dumps(message).encode()
        with self._sending:
            socket.send_fds(self.end, [len(body).to_bytes(8, "little")], handles)
            self.end.sendall(body)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message and the files that came with it; an EOFError at the end."""
        head, handles, _, _ = socket.recv_fds(self.end, 8, _MAX_HANDLES)
        head += self._read(8 - len(head))
        message: dict[str, Any] = json.loads(self._read(int.from_bytes(head, "little")))
        return message, list(handles)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.end.recv(min(size - len(parts), 2**20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
