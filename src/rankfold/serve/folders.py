"""The folders of the models: each is copied when it is read, and read again when it changes.

Nothing that happens to a folder reaches a request: the copy is private, and only a folder that
matches its checksums replaces the model before it.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankfold import storage
from rankfold.errors import UserError
from rankfold.models.load import kind_of
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_POLL_SECONDS = 1.0  # between two checks of the folders
RETRY_SECONDS = 10.0  # until a folder that could not be read is tried again

_Stamp = tuple[int, int, int]
Use = Callable[[str, storage.Folder, float], None]
"""``(name, private copy, time written)``: puts a model into use; an error leaves the old one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How folders are read."""

    memory: int | None = None  # larger models are copied to disk; None: half of the free memory
    any_kind: bool = False  # a model may be replaced by one of another kind of data


@dataclass(slots=True, eq=False)
class _Source:
    """A folder, and what was read from it last."""

    folder: Path
    kind: str | None = None
    stamp: _Stamp | None = None  # of the manifest that was read last
    failed_at: float | None = None  # when that could not be read


class Folders:
    """Reads the folders of all models, and those that change again."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        use: Use,
        log: Log,
        metrics: Metrics,
        reading: Reading,
    ) -> None:
        self.use, self.log, self.metrics, self.reading = use, log, metrics, reading
        self.sources = {name: _Source(folder) for name, folder in folders.items()}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def load(self) -> None:
        """Read all folders; a UserError for one that cannot be read."""
        for name, source in self.sources.items():
            self._read(name, source, _stamp_of(source.folder))

    def follow(self) -> None:
        """Start to watch the folders for changes."""
        self._thread = threading.Thread(target=self._watch, name="follow folders", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def look(self) -> None:
        """Read the folders that changed; a failure is logged and counted."""
        for name, source in self.sources.items():
            stamp, failed_at = _stamp_of(source.folder), source.failed_at
            again = failed_at is not None and time.monotonic() - failed_at > RETRY_SECONDS
            if stamp == source.stamp and not again:
                continue
            try:
                self._read(name, source, stamp)
                self.metrics.swaps[name, "done"] += 1
            except Exception as error:  # the old model stays
                logged = stamp == source.stamp and failed_at is not None
                source.stamp, source.failed_at = stamp, time.monotonic()
                self.metrics.swaps[name, "failed"] += 1
                if not logged:
                    event = "cannot read the new model, the old one stays"
                    what = {"error": str(error) or repr(error), "hint": getattr(error, "hint", "")}
                    self.log.write(event, "error", model=name, **what)

    def _watch(self) -> None:
        while not self._closing.wait(_POLL_SECONDS):
            self.look()

    def _read(self, name: str, source: _Source, stamp: _Stamp | None) -> None:
        start = time.perf_counter()
        self._check_kind(source, storage.read(source.folder, "model"))  # before it is copied
        memory = self.reading.memory
        memory = storage.free_memory() // 2 if memory is None else memory
        folder = storage.read_copy(source.folder, "model", memory)
        kind = self._check_kind(source, folder)
        self.use(name, folder, 0.0 if stamp is None else stamp[2] / 1e9)
        source.kind, source.stamp, source.failed_at = kind, stamp, None
        seconds = round(time.perf_counter() - start, 3)
        method = folder.manifest["method"]
        self.log.write("model loaded", model=name, method=method, seconds=seconds)

    def _check_kind(self, source: _Source, folder: storage.Folder) -> str:
        kind = kind_of(folder)
        if source.kind not in (None, kind) and not self.reading.any_kind:
            raise UserError(
                f"{folder.path} holds a model of the kind {kind!r}; a model of the kind "
                f"{source.kind!r} is being served",
                hint="serve it under another name, or allow this with --any-kind",
            )
        return kind


def named(arguments: Sequence[str]) -> dict[str, Path]:
    """Models from ``FOLDER`` or ``NAME=FOLDER``; the default name is that of the folder."""
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, is_named, folder = argument.partition("=")
        if not is_named or (not NAME.fullmatch(name) and Path(argument).exists()):
            name, folder = Path(argument).absolute().name, argument
        if not NAME.fullmatch(name):
            raise UserError(
                f"{name!r} cannot be the name of a model in a URL",
                hint=f"use letters, digits and -_. only: NAME={folder}",
            )
        if name in folders:
            raise UserError(
                f"two models have the name {name!r}", hint=f"rename one: NAME={argument}"
            )
        folders[name] = Path(folder)
        storage.read(folders[name], "model")  # errors come before anything slow
    return folders


def _stamp_of(folder: Path) -> _Stamp | None:
    """Changes when the folder is written; None without a folder."""
    try:
        status = (folder / storage.MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
