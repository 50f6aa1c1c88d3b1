"""One of several processes that answer on the same port; ``processes.py`` starts and leads them."""

import asyncio
import os
import socket
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.errors import UserError
from rankfold.models.imports import import_modules
from rankfold.serve.app import build_app
from rankfold.serve.channel import Channel
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Counts, Metrics, from_plain, to_plain
from rankfold.serve.middleware import Access
from rankfold.serve.models import Models, Served, line_of
from rankfold.serve.server import Server, library_logs

_COUNTS_TIMEOUT = 3.0  # seconds to wait for the counts of the other processes


def main() -> None:
    """Answer requests until the leading process says otherwise, or has ended."""
    import torch

    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    start, (listening, lock) = channel.receive()
    torch.set_num_threads(start["threads"])
    import_modules(start["modules"])
    log = Log(requests=start["requests"], lock=lock, process=start["number"])
    worker = WorkerProcess(channel, start, log)
    with library_logs(log):
        worker.run(socket.socket(fileno=listening))
    log.close()
    sys.stdout.flush()
    os._exit(0)  # a thread may still wait for a message


class WorkerProcess:
    """The models and the server of this process; the leading process sends commands."""

    def __init__(self, channel: Channel, start: dict[str, Any], log: Log) -> None:
        self.channel, limits = channel, Limits(**start["limits"])
        hosts = start["hosts"]
        access = Access(start["token"], None if hosts is None else frozenset(hosts))
        self.models = Models(start["names"], limits, log, Metrics())
        app = build_app(self.models, limits, access, self._counts_of_all)
        self.server = Server(app, limits, start["grace"])
        self._opening = ThreadPoolExecutor(1)
        self._opened: dict[str, tuple[Served, float]] = {}
        self._asked: dict[int, Future[Counts]] = {}
        self._numbers = count()
        self._may_start = threading.Event()
        if not start["replaces"]:
            self._may_start.set()

    def run(self, listening: socket.socket) -> None:
        """Serve. A process that replaces another one opens its models before it answers."""
        threading.Thread(target=self._receive, name="receive", daemon=True).start()
        self._may_start.wait()
        try:
            if not self.server.should_exit:
                self.server.run(sockets=[listening])
        finally:
            with suppress(OSError):
                self._send_counts()
            self.models.close()
            self._opening.shutdown(cancel_futures=True)

    def _receive(self) -> None:
        try:
            while True:
                message, handles = self.channel.receive()
                self._follow(message, [storage.PrivateFile(handle) for handle in handles])
        except (EOFError, OSError):  # the leading process has ended
            self.server.should_exit = True
            self._may_start.set()

    def _follow(self, message: dict[str, Any], files: list[storage.PrivateFile]) -> None:
        name = message.get("name", "")
        match message["command"]:
            case "open":
                self._opening.submit(self._open, message, files)
            case "use":
                self._opening.submit(self._use, name)
            case "drop":
                self._opening.submit(self._opened.pop, name, None)
            case "count":
                self._send_counts()
            case "counted":
                self._asked.pop(message["id"]).set_result(from_plain(message["counts"]))
            case "retire":
                threading.Thread(target=self.server.retire, name="retire", daemon=True).start()

    def _open(self, message: dict[str, Any], files: list[storage.PrivateFile]) -> None:
        name, copies = message["name"], dict(zip(message["files"], files, strict=True))
        folder = storage.Folder(Path(message["path"]), message["manifest"], copies)
        answer: dict[str, Any] = {"event": "opened", "name": name}
        try:
            served = self.models.open(name, folder, message["written"])
            self._opened[name] = served, message["written"]
            answer["line"] = line_of(served.card)
        except Exception as error:
            hint = error.hint if isinstance(error, UserError) else ""
            answer |= {"error": str(error) or repr(error), "hint": hint}
        with suppress(OSError):
            self.channel.send(answer)

    def _use(self, name: str) -> None:
        if name in self._opened:
            served, written = self._opened.pop(name)
            self.models.put(name, served)
            self.channel.send({"event": "used", "name": name, "written": written})
        if self.models.ready and not self._may_start.is_set():
            self._may_start.set()
            self.channel.send({"event": "replaced"})

    def _send_counts(self) -> None:
        self.channel.send({"event": "counted", "counts": to_plain(self.models.counts())})

    async def _counts_of_all(self) -> Counts:
        """Those of all processes; the leading one collects them."""
        number, answer = next(self._numbers), Future[Counts]()
        self._asked[number] = answer
        try:
            self.channel.send({"event": "count", "id": number})
            return await asyncio.wait_for(asyncio.wrap_future(answer), _COUNTS_TIMEOUT)
        except (OSError, TimeoutError):
            self._asked.pop(number, None)
            raise HttpError(503, "the other processes do not answer", "try again later") from None
