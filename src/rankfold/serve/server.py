"""The server process: a socket, uvicorn, model loading in the background, graceful shutdown."""

import asyncio
import errno
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from rankfold.errors import UserError
from rankfold.serve.app import build_app
from rankfold.serve.folders import Folders, Reading
from rankfold.serve.limits import Limits, fit_open_files
from rankfold.serve.log import Log, LogHandler
from rankfold.serve.metrics import Metrics
from rankfold.serve.middleware import Access, Middleware
from rankfold.serve.models import Models, line_of
from rankfold.serve.protocol import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server answers for, where, and how."""

    folders: Mapping[str, Path]  # of the models, by name
    host: str
    port: int  # 0: a free one
    limits: Limits
    token: str | None  # that requests must send; None: none is needed
    grace: float  # seconds for open requests to finish after a signal
    reading: Reading
    log: Log
    on_ready: Callable[[str, Sequence[str]], None]
    """Called with the URL and a line per model, once the models are loaded."""


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM."""
    folders, host, log = settings.folders, settings.host, settings.log
    limits = fit_open_files(settings.limits, len(folders))
    listening = listen(host, settings.port)
    url = url_of(listening)
    metrics = Metrics()
    models = Models(folders, limits, log, metrics)
    sources = Folders(folders, models.use, log, metrics, settings.reading)
    access = Access(settings.token, None if settings.token else allowed_hosts(host))
    server = Server(build_app(models, limits, access), limits, settings.grace)
    errors: list[BaseException] = []

    def load() -> None:
        try:
            sources.load()
            sources.follow()
            cards = [slot.now().card for slot in models.slots.values()]
            settings.on_ready(url, list(map(line_of, cards)))
        except BaseException as error:
            errors.append(error)
            server.should_exit = True

    threading.Thread(target=load, name="load models", daemon=True).start()
    with library_logs(log):
        log.write("listening", address=url, connections=limits.connections)
        try:
            server.run(sockets=[listening])
        finally:
            sources.close()
            models.close()
            log.write("stopped")
            log.close()
    if errors:
        raise errors[0]


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; with ``shared``, others may be bound to the same port."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError) as error:
        raise UserError(f"cannot listen on {host}: {error}", hint="try --host 127.0.0.1") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise UserError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            hint="--host must be an address of this machine, such as 127.0.0.1"
            if error.errno == errno.EADDRNOTAVAIL
            else "choose another --port; 0 picks a free one",
        ) from None
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str) -> frozenset[str] | None:
    """The Host headers that a loopback server accepts; None: any other server accepts all."""
    return frozenset({"localhost", "127.0.0.1", "[::1]", host}) if is_loopback(host) else None


@contextmanager
def library_logs(log: Log) -> Iterator[None]:
    """Send the records of uvicorn and asyncio to the log."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    handler = LogHandler(log)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True


class Server(uvicorn.Server):
    """uvicorn, with our protocol, and exit code 0 after a signal."""

    def __init__(self, app: Middleware, limits: Limits, grace: float) -> None:
        protocol = type("LimitedProtocol", (Protocol,), {"limits": limits})

        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, int(limits.idle_timeout)),
                timeout_graceful_shutdown=max(1, int(grace)),
            )
        )
        self.app = app
        self._idle_timeout = limits.idle_timeout
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def retire(self) -> None:
        """Leave new connections to another process, and stop once the open ones have ended.

        Each response closes its connection, and idle ones time out: no request is lost.
        """
        self.app.retiring = True
        if self._loop is not None:
            for server in self.servers:
                self._loop.call_soon_threadsafe(server.close)
        limit = time.monotonic() + 2 * self._idle_timeout
        while self.server_state.connections and time.monotonic() < limit:
            time.sleep(0.05)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.closing = True
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but without raising the signals again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
