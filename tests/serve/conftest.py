"""Three small models, one of each kind, and a server for them in this process."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing
from linear_grades import LINEAR, data_of, grader_of
from serving import Client, fit_notes, fit_shop

from rankfold.methods import METHODS
from rankfold.serve.app import build_app
from rankfold.serve.folders import Folders, Reading
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics
from rankfold.serve.middleware import Access
from rankfold.serve.models import Models
from rankfold.serve.server import Server, listen, url_of

Start = Callable[..., Client]


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("serve")
    fit_shop(home / "shop")
    grader_of(data_of()).save(home / "patients")
    return home


@pytest.fixture
def folders(
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra_methods: None,  # noqa: ARG001
) -> dict[str, Path]:
    monkeypatch.setitem(METHODS, "linear", LINEAR)
    if not (fitted / "notes").exists():
        fit_notes(fitted / "notes", tmp_path)
    return {name: fitted / name for name in ("shop", "notes", "patients")}


@pytest.fixture
def start(folders: dict[str, Path]) -> Iterator[Start]:
    """Start an application with the three models, and with the given limits and access."""
    opened: list[Client] = []

    def begin(limits: Limits | None = None, access: Access | None = None, **named: Path) -> Client:
        given, stream = limits or Limits(), io.StringIO()
        log, metrics, paths = Log(stream), Metrics(), named or folders
        models = Models(paths, given, log, metrics)
        source = Folders(paths, models.use, log, metrics, Reading())
        source.load()
        opened.append(Client(build_app(models, given, access), models, source, stream))
        return opened[-1]

    yield begin
    for client in opened:
        client.models.close()
        client.models.log.close()


@pytest.fixture
def client(start: Start) -> Client:
    return start()


@pytest.fixture
def live(start: Start) -> Iterator[Callable[..., tuple[str, int]]]:
    """Start a server on a free port; returns host and port."""
    running: list[tuple[Server, threading.Thread]] = []

    def begin(limits: Limits, access: Access | None = None) -> tuple[str, int]:
        client = start(limits, access)
        server, listening = Server(client.app, limits, 5.0), listen("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        host, port = url_of(listening).removeprefix("http://").split(":")
        return host, int(port)

    yield begin
    for server, thread in running:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def page(window: Browser, server: Callable[[], str]) -> Iterator[Browser]:
    """After each test: an empty console, no requests elsewhere, and no key ran as a script."""
    window.address = server()
    window.size(1280)
    window.console()
    yield window
    messages = [
        line for line in window.console() if "the server responded with a status" not in line
    ]
    assert messages == []
    assert [name for name in window.requests() if not name.startswith(window.address)] == []
    assert window.js("return document.title") not in ("taken", "1")
