"""Several processes that answer on one port, and the process that leads them.

This process reads the folders, and sends each private copy to the workers as open files: they all
map the same memory. A model is replaced once every worker has opened it. The sockets stay open
here, so that connections wait while a worker is being replaced.
"""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue
from typing import Any

import torch

from rankfold import storage
from rankfold.errors import UserError
from rankfold.models.imports import imported
from rankfold.serve.channel import Channel
from rankfold.serve.folders import Folders
from rankfold.serve.limits import fit_open_files
from rankfold.serve.log import Log
from rankfold.serve.metrics import Counts, Metrics, from_plain, lasting, to_plain, total
from rankfold.serve.server import Settings, allowed_hosts, listen, url_of

_COUNT_SECONDS = 1.0  # to wait for the counts of a worker; then its last ones are taken
_STABLE_SECONDS = 30.0  # a worker that ends sooner is started again after a pause
_MAX_PAUSE = 30.0
_END_SECONDS = 5.0  # beyond the grace, before a worker is killed
_WORKER = """
from rankfold.interrupts import import_torch
import_torch()
from rankfold.serve.worker import main
main()
"""


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process, and its messages so far."""

    number: int  # of its socket
    process: subprocess.Popen[bytes]
    channel: Channel
    replaces: bool
    started: float = field(default_factory=time.monotonic)
    opened: dict[str, dict[str, Any]] = field(default_factory=dict)  # answers, by model
    used: dict[str, float] = field(default_factory=dict)  # by model: when it was written
    counts: Counts = field(default_factory=dict)
    counted: int = 0  # how often it has sent its counts
    responds: bool = False  # it has started, and answers messages
    ready: bool = False  # for a replacement: it answers requests
    retired: bool = False  # nobody takes its place when it ends
    ended: bool = False

    def send(self, message: dict[str, Any], handles: Sequence[int] = ()) -> None:
        """Send a message; a worker that has ended is noticed elsewhere."""
        with suppress(OSError):
            self.channel.send(message, handles)

    def open(self, name: str, folder: storage.Folder, written: float) -> None:
        self.opened.pop(name, None)
        about = {"path": str(folder.path), "manifest": folder.manifest, "written": written}
        message = {"command": "open", "name": name, "files": list(folder.copies), **about}
        self.send(message, [copy.handle for copy in folder.copies.values()])


def serve_by_processes(n_processes: int, settings: Settings) -> None:
    """Like ``serve``, with several processes. SIGHUP replaces them one after another."""
    if not sys.platform.startswith("linux"):
        raise UserError("several processes on one port need Linux", hint="leave --processes out")
    folders, host, log = settings.folders, settings.host, settings.log
    limits = fit_open_files(settings.limits, len(folders))
    sockets = listen_together(host, settings.port, n_processes)
    url = url_of(sockets[0])
    hosts = None if settings.token else allowed_hosts(host)
    start = {
        "names": list(folders),
        "limits": asdict(limits),
        "token": settings.token,
        "hosts": None if hosts is None else list(hosts),
        "grace": settings.grace,
        "requests": log.requests,
        "threads": torch.get_num_threads(),
        "modules": imported,
    }
    log.write("listening", address=url, connections=limits.connections, processes=n_processes)
    events: SimpleQueue[int | BaseException] = SimpleQueue()
    before = {
        each: signal.signal(each, lambda number, _frame: events.put(number))
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    metrics = Metrics()
    processes = Processes(start, sockets, log, metrics)
    sources = Folders(folders, processes.use, log, metrics, settings.reading)

    def load() -> None:
        try:
            sources.load()
            sources.follow()
            settings.on_ready(url, processes.lines())
        except BaseException as error:
            events.put(error)

    try:
        processes.start_all()
        threading.Thread(target=load, name="load models", daemon=True).start()
        while (event := events.get()) == signal.SIGHUP:
            threading.Thread(target=processes.replace_all, name="replace", daemon=True).start()
    finally:
        sources.close()
        processes.stop(settings.grace)
        for each, handler in before.items():
            signal.signal(each, handler)
        log.write("stopped")
        log.close()
    if isinstance(event, BaseException):
        raise event


def listen_together(host: str, port: int, n: int) -> list[socket.socket]:
    """Sockets of one port; the system divides the connections among them."""
    listen(host, port).close()  # a port that another server has is an error
    sockets = [listen(host, port, shared=True)]
    own = sockets[0].getsockname()[1]
    return [*sockets, *(listen(host, own, shared=True) for _ in range(n - 1))]


class Processes:
    """The workers: one per socket, and for a moment the one that replaces it."""

    def __init__(
        self, start: Mapping[str, Any], sockets: Sequence[socket.socket], log: Log, metrics: Metrics
    ) -> None:
        self.start, self.sockets, self.log, self.metrics = start, sockets, log, metrics
        self.lock = log.share()
        self._workers: list[_Worker] = []
        self._current: dict[str, tuple[storage.Folder, float]] = {}
        self._past: Counts = {}  # of workers that have ended
        self._change = threading.Condition()
        self._replacing = threading.Lock()
        self._stopping = threading.Event()
        self._pauses = [0.0] * len(sockets)

    def start_all(self) -> None:
        for number in range(len(self.sockets)):
            self._start(number, replaces=False)

    def use(self, name: str, folder: storage.Folder, written: float) -> None:
        """Replace a model in all workers, or in none; a UserError if one cannot open it."""
        with self._change:
            asked = list(self._workers)
            for worker in asked:
                worker.open(name, folder, written)
            self._change.wait_for(lambda: all(w.ended or name in w.opened for w in asked))
            answers = [worker.opened[name] for worker in asked if not worker.ended]
            failed = [answer for answer in answers if "error" in answer]
            if failed or not answers:
                for worker in asked:
                    worker.send({"command": "drop", "name": name})
                error = "the worker processes ended while they opened the model"
                first = failed[0] if failed else {"error": error, "hint": "the log says why"}
                raise UserError(first["error"], hint=first["hint"])
            self._current[name] = folder, written
            for worker in self._workers:
                if worker not in asked:
                    worker.open(name, folder, written)
                worker.send({"command": "use", "name": name})
            self._change.wait_for(
                lambda: all(w.ended or w.used.get(name) == written for w in asked)
            )

    def lines(self) -> list[str]:
        """A line about each model."""
        with self._change:
            names = set(self.start["names"])
            opened = next(w.opened for w in self._workers if names <= w.opened.keys())
            return [opened[name]["line"] for name in self.start["names"]]

    def replace_all(self) -> None:
        """Replace all workers, one after another: a new one answers before an old one stops."""
        with self._replacing:
            if all(map(self._replace, range(len(self.sockets)))):
                self.log.write("processes replaced", processes=len(self.sockets))
            elif not self._stopping.is_set():
                self.log.write("cannot replace a process, the old one stays", "error")

    def _replace(self, number: int) -> bool:
        """Replace a worker, unless the new one ends before it answers."""
        old = [worker for worker in self._workers if worker.number == number]
        new = self._start(number, replaces=True)
        with self._change:
            self._change.wait_for(lambda: new.ready or new.ended)
            if new.ended:
                return False
            new.retired = False
            for worker in old:
                worker.retired = True
                worker.send({"command": "retire"})
            self._change.wait_for(lambda: all(worker.ended for worker in old))
        return True

    def stop(self, grace: float) -> None:
        """Let all workers finish their requests, for ``grace`` seconds."""
        self._stopping.set()
        with self._change:
            workers = list(self._workers)
            for worker in workers:
                worker.retired = True
                worker.process.terminate()
        limit = time.monotonic() + grace + _END_SECONDS
        for worker in workers:
            try:
                worker.process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        for each in self.sockets:
            each.close()

    def _start(self, number: int, *, replaces: bool) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(theirs.fileno())],
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        worker = _Worker(number, process, Channel(ours), replaces, retired=replaces)
        handles = [self.sockets[number].fileno(), self.lock]
        start = {**self.start, "number": number, "replaces": replaces}
        with self._change:
            self._workers.append(worker)
            if self._stopping.is_set():
                process.terminate()
            worker.send({"command": "start", **start}, handles)
            for name, model in self._current.items():
                worker.open(name, *model)
                worker.send({"command": "use", "name": name})
        threading.Thread(target=self._listen, args=[worker], daemon=True).start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        """Handle the messages of a worker until it ends."""
        with suppress(EOFError, OSError):
            while True:
                message, _ = worker.channel.receive()
                with self._change:
                    self._note(worker, message)
                    self._change.notify_all()
        code = worker.process.wait()
        worker.channel.end.close()
        with self._change:
            worker.ended = True
            self._workers.remove(worker)
            self._past = total([self._past, lasting(worker.counts)])
            self._change.notify_all()
        if not worker.retired:
            self.log.write("a process ended, another one starts", "error", exit_code=code)
            self._start_again(worker)

    def _note(self, worker: _Worker, message: dict[str, Any]) -> None:
        worker.responds = True
        match message["event"]:
            case "opened":
                worker.opened[message["name"]] = message
                if worker.replaces and not worker.ready and "error" in message:
                    worker.process.terminate()
            case "used":
                worker.used[message["name"]] = message["written"]
            case "replaced":
                worker.ready = True
            case "counted":
                worker.counts, worker.counted = from_plain(message["counts"]), worker.counted + 1
            case "count":
                target = threading.Thread(
                    target=self._answer_counts, args=[worker, message["id"]], daemon=True
                )
                target.start()

    def _answer_counts(self, worker: _Worker, number: int) -> None:
        """Send the counts of all workers to one of them."""
        with self._change:
            asked = {each: each.counted for each in self._workers if each.responds}
            for each in asked:
                each.send({"command": "count"})
            self._change.wait_for(
                lambda: all(w.ended or w.counted > before for w, before in asked.items()),
                _COUNT_SECONDS,
            )
            own = lasting(self.metrics.counts({}, {}))
            counts = total([self._past, own, *(each.counts for each in self._workers)])
            plain = to_plain(counts)
        worker.send({"command": "counted", "id": number, "counts": plain})

    def _start_again(self, worker: _Worker) -> None:
        number = worker.number
        stable = time.monotonic() - worker.started > _STABLE_SECONDS
        pause = self._pauses[number] = 0.0 if stable else self._pauses[number]
        self._pauses[number] = min(_MAX_PAUSE, max(1.0, 2 * pause))
        if not self._stopping.wait(pause):
            with self._replacing:
                self._start(number, replaces=True).retired = False
