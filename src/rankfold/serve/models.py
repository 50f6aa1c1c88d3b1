"""The models of a server: loaded from folders, and replaced when a folder changes.

A request keeps the model that it began with. If a folder cannot be read, the old model stays.
"""

import gc
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from rankfold import storage
from rankfold.errors import UserError
from rankfold.index.build import SIMILAR
from rankfold.methods import METHODS
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import SearchSpec
from rankfold.models.search import ranks_by_text
from rankfold.serve.batching import Worker
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics
from rankfold.serve.search import answer
from rankfold.training.history import validation_score

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_POLL_SECONDS = 1.0  # between two checks of the folders
RETRY_SECONDS = 10.0  # until a folder that could not be read is tried again
_FACTS = ("data", "seed", "metric", "chosen_by", "refit", "operating_on")  # notes of a fit
_NOTES = (*_FACTS, "added", "extended", "removed")

_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Served:
    """A loaded model and its card."""

    model: Ranker | Grader
    accepts: tuple[str, ...]
    card: Mapping[str, Any]
    document: bytes  # the card as JSON

    def ranker(self) -> Ranker:
        if isinstance(self.model, Ranker):
            return self.model
        raise UserError(
            f"{self.model.model.method} grades rows and does not rank", hint="POST /grade"
        )

    def grader(self) -> Grader:
        if isinstance(self.model, Grader):
            return self.model
        raise UserError(
            f"{self.model.model.method} ranks candidates and does not grade", hint="POST /search"
        )


@dataclass(slots=True, eq=False)
class Slot:
    """A name, its folder, and the model that was last read from there."""

    name: str
    folder: Path
    worker: Worker
    served: Served | None = None
    stamp: _Stamp | None = None  # of the manifest that was read last
    failed_at: float | None = None  # when that could not be read

    def now(self) -> Served:
        """The current model."""
        if self.served is None:
            hint = "GET /ready says when it is"
            raise HttpError(503, f"{self.name} is not loaded yet", hint, {"retry-after": "1"})
        return self.served


class Models:
    """All models, by name; the first is the default."""

    def __init__(
        self, folders: Mapping[str, Path], limits: Limits, log: Log, metrics: Metrics
    ) -> None:
        self.limits, self.log, self.metrics = limits, log, metrics
        self.slots: dict[str, Slot] = {}
        for name, folder in folders.items():
            worker = Worker(name, limits.waiting, partial(self._count, name))
            self.slots[name] = Slot(name, folder, worker)
        self.side = Worker("keys", limits.waiting)  # for other requests, which may take longer
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        return all(slot.served is not None for slot in self.slots.values())

    def slot(self, name: str | None) -> Slot:
        if name is None:
            return next(iter(self.slots.values()))
        if name not in self.slots:
            raise HttpError(404, f"unknown model {name!r:.100}", "GET /models lists the names")
        return self.slots[name]

    def load(self) -> None:
        """Read all folders; a UserError for one that cannot be read."""
        for slot in self.slots.values():
            self._read(slot, _stamp_of(slot.folder))
        gc.collect()
        gc.freeze()  # the models stay: scanning them would pause all requests

    def follow(self) -> None:
        """Start to watch the folders for changes."""
        self._thread = threading.Thread(target=self._watch, name="follow folders", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        for worker in [*(slot.worker for slot in self.slots.values()), self.side]:
            worker.close()

    def look(self) -> None:
        """Read the folders that changed; a failure is logged and counted."""
        for slot in self.slots.values():
            stamp = _stamp_of(slot.folder)
            again = slot.failed_at is not None and time.monotonic() - slot.failed_at > RETRY_SECONDS
            if stamp == slot.stamp and not again:
                continue
            try:
                self._read(slot, stamp)
                self.metrics.swaps[slot.name, "done"] += 1
            except Exception as error:  # the old model stays
                logged = stamp == slot.stamp and slot.failed_at is not None
                slot.stamp, slot.failed_at = stamp, time.monotonic()
                self.metrics.swaps[slot.name, "failed"] += 1
                if not logged:
                    event = "cannot read the new model, the old one stays"
                    what = {"error": str(error) or repr(error), "hint": getattr(error, "hint", "")}
                    self.log.write(event, "error", model=slot.name, **what)

    def _watch(self) -> None:
        while not self._closing.wait(_POLL_SECONDS):
            self.look()

    def _read(self, slot: Slot, stamp: _Stamp | None) -> None:
        start = time.perf_counter()
        slot.served = opened(slot.name, slot.folder, self.limits)
        slot.stamp, slot.failed_at = stamp, None
        seconds = round(time.perf_counter() - start, 3)
        method = slot.served.card["method"]
        self.log.write("model loaded", model=slot.name, method=method, seconds=seconds)

    def _count(self, name: str, n_requests: int) -> None:
        self.metrics.searches[name,] += 1
        self.metrics.searched[name,] += n_requests


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


def opened(name: str, folder: Path, limits: Limits) -> Served:
    """A model that has answered once, so that lazy parts are loaded, and its card."""
    model = load(folder)
    manifest = storage.read(folder, "model").manifest
    accepts, notes = _accepted_inputs(model), model.model.notes
    history, score = notes.get("history", []), validation_score(notes)
    written = datetime.fromtimestamp((folder / storage.MANIFEST).stat().st_mtime, UTC)
    card: dict[str, Any] = {
        "name": name,
        "method": model.model.method,
        "data_kind": METHODS[model.model.method].data_kind,
        "accepts": accepts,
        "config": dict(model.model.config),
        "sizes": {},
        "metrics": {},
        "notes": {name: notes[name] for name in _NOTES if name in notes},
        "index": None,
        "versions": dict(manifest["versions"]),
        "written": written.isoformat(timespec="seconds"),
        "limits": {name: getattr(limits, name) for name in ("k", "batch", "rows", "keys", "text")},
    }
    card["notes"]["steps"] = len(history)
    card["notes"]["seconds"] = sum(entry.get("seconds", 0.0) for entry in history)
    if score is not None and "metric" in notes:
        card["metrics"][f"{notes['metric']}, validation"] = score
    if isinstance(model, Ranker):
        _warm(model)
        card["index"] = model.about
        sides = {"queries": len(model.queries), "candidates": len(model.candidates)}
        card["sizes"] = {**sides, "pairs": model.seen.n_pairs}
    else:
        _ = model.opened
        card["sizes"] = {"grades": len(model.grades)}
        numbers, levels = ((), {}) if (own := model.columns) is None else (own.numbers, own.levels)
        columns: list[dict[str, Any]] = [{"name": name, "type": "number"} for name in numbers]
        columns += [{"name": n, "type": "text", "levels": list(v)} for n, v in levels.items()]
        card |= {"grades": model.names, "columns": columns}
    return Served(model, accepts, card, to_json(card, inf_nan_mode="null"))


def _warm(ranker: Ranker) -> None:
    first = ranker.queries.keys.head(1).to_list()
    if first:
        for document in answer(ranker, [SearchSpec("queries", first, 1)]):
            if isinstance(document, Exception):
                raise document
    _ = ranker.candidates.texts
    if ranker.saved is not None and SIMILAR in ranker.saved:
        _ = ranker.searcher.similar  # its file may be gone later


def _accepted_inputs(model: Ranker | Grader) -> tuple[str, ...]:
    """The inputs that it accepts."""
    if isinstance(model, Grader):
        return ("rows",) if model.columns is not None else ()
    method, vectors = METHODS[model.model.method], model.model.tensors.get("candidates")
    reads = model.tokenizer is not None and (model.texts is None or model.texts.weights is None)
    able = {
        "queries": True,
        "history": "histories" in method.answers,
        "text": ranks_by_text(model.model) and reads,
        "candidates": vectors is not None and vectors.shape[1] > 1,
    }
    return tuple(name for name, can in able.items() if can)


def line_of(card: Mapping[str, Any]) -> str:
    """The card in one line, for people."""
    sizes = ", ".join(f"{n:,} {what}" for what, n in card["sizes"].items())
    index = (card["index"] or {}).get("kind")
    searched = f"; index: {index}" if index else ""
    accepts = ", ".join(card["accepts"])
    return f"{card['name']}: {card['method']}; {sizes}{searched}; accepts {accepts}"
