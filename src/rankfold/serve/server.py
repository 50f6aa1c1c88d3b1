"""A server process: a socket, uvicorn, models that load while it answers, an orderly end."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from rankfold.errors import UserError
from rankfold.serve.app import build
from rankfold.serve.limits import Limits
from rankfold.serve.log import Forward, Log
from rankfold.serve.metrics import Metrics
from rankfold.serve.middleware import Access, Guard
from rankfold.serve.models import Models
from rankfold.serve.protocol import Protocol


def serve(
    folders: Mapping[str, Path],
    place: tuple[str, int],
    *,
    limits: Limits,
    token: str | None,
    grace: float,
    log: Log,
    told: Callable[[str, Models], None],
) -> None:
    """Serve until a signal ends it.

    Args:
        folders: of models, by name.
        place: host and port; port 0: any that is free.
        limits: what is taken on.
        token: that requests have to bring; None: none.
        grace: seconds that requests have to finish after a signal.
        log: where lines go.
        told: called with the address and the models, when these are loaded.
    """
    listening = listen(*place)
    address = address_of(listening)
    models = Models(folders, limits, log, Metrics())
    access = Access(token, None if token else hosts_of(place[0]))
    guard = build(models, limits, access)
    server = Server(guard, limits, grace)
    failed: list[BaseException] = []

    def load() -> None:
        try:
            models.load()
            models.follow()
            told(address, models)
        except BaseException as error:
            failed.append(error)
            server.should_exit = True

    loading = threading.Thread(target=load, name="load models", daemon=True)
    loading.start()
    with _forwarded(log):
        log.say("listening", address=address)
        try:
            server.run(sockets=[listening])
        finally:
            models.close()
            log.say("stopped")
            log.close()
    if failed:
        raise failed[0]


def listen(host: str, port: int) -> socket.socket:
    """A socket that waits for connections."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError) as error:
        raise UserError(f"cannot listen at {host}: {error}", hint="try --host 127.0.0.1") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise UserError(
            f"cannot listen at {host}, port {port}: {error.strerror}",
            hint="an address of this machine is asked for: try --host 127.0.0.1"
            if error.errno == errno.EADDRNOTAVAIL
            else "choose another --port; 0 takes any that is free",
        ) from None
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts_of(host: str) -> frozenset[str] | None:
    """The names that a server of this machine alone goes by; another may have any."""
    return frozenset({"localhost", "127.0.0.1", "[::1]", host}) if is_loopback(host) else None


@contextmanager
def _forwarded(log: Log) -> Iterator[None]:
    """What uvicorn and asyncio say goes to the log."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    handler = Forward(log)
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
    """uvicorn, that ends with the code 0 when it is told to end."""

    def __init__(self, guard: Guard, limits: Limits, grace: float) -> None:
        class Bounded(Protocol):
            bounds = limits

        super().__init__(
            uvicorn.Config(
                guard,
                http=Bounded,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, int(limits.idle)),
                timeout_graceful_shutdown=max(1, int(grace)),
            )
        )
        self.guard = guard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.guard.closing = True
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signals are not raised again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in wanted}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
