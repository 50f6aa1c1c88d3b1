"""The models of a server: loaded from their folders, followed there, replaced at once.

A request keeps the model that it began with. A folder that cannot be read leaves the old one.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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
from rankfold.models.search import SearchSpec
from rankfold.models.searcher import ranks_by_text
from rankfold.serve.batching import Worker
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Metrics
from rankfold.serve.search import answer
from rankfold.training.history import validation_score

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
POLL = 1.0  # seconds between two looks at the folders
AGAIN = 10.0  # seconds until a folder that could not be read is tried again
NOTES = (
    "data",
    "seed",
    "metric",
    "chosen_by",
    "refit",
    "operating_on",
    "added",
    "extended",
    "removed",
)

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Served:
    """A model that answers, and its card."""

    model: Ranker | Grader
    asks: tuple[str, ...]
    card: Mapping[str, Any]
    document: bytes  # the card as JSON

    def ranker(self) -> Ranker:
        if isinstance(self.model, Ranker):
            return self.model
        raise UserError(
            f"{self.model.model.method} grades rows and ranks no candidates", hint="POST /grade"
        )

    def grader(self) -> Grader:
        if isinstance(self.model, Grader):
            return self.model
        raise UserError(
            f"{self.model.model.method} ranks candidates and grades no rows", hint="POST /search"
        )


class Slot:
    """A name, the folder behind it, and the model that was last read from there."""

    def __init__(self, name: str, folder: Path, worker: Worker) -> None:
        self.name = name
        self.folder = folder
        self.worker = worker
        self.served: Served | None = None
        self.stamp: Stamp | None = None  # of the manifest that was last tried
        self.failed_at: float | None = None  # when that could not be read

    def now(self) -> Served:
        """The model that answers a request from here on."""
        if self.served is None:
            hint = "GET /ready tells when it can"
            raise HttpError(503, f"{self.name} is not loaded yet", hint, {"retry-after": "1"})
        return self.served


class Models:
    """All models, by name; the first is also the one without a name."""

    def __init__(
        self, folders: Mapping[str, Path], limits: Limits, log: Log, metrics: Metrics
    ) -> None:
        self.limits, self.log, self.metrics = limits, log, metrics
        self.slots: dict[str, Slot] = {}
        for name, folder in folders.items():
            worker = Worker(name, limits.waiting, self._counting(name))
            self.slots[name] = Slot(name, folder, worker)
        self.side = Worker("keys", limits.waiting)  # what is not a search, and may take longer
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        return all(slot.served is not None for slot in self.slots.values())

    def slot(self, name: str | None) -> Slot:
        if name is None:
            return next(iter(self.slots.values()))
        if name not in self.slots:
            raise HttpError(404, f"there is no model {name!r:.100}", "GET /models lists the names")
        return self.slots[name]

    def load(self) -> None:
        """Read all folders; a UserError where one cannot be read."""
        for slot in self.slots.values():
            self._read(slot, stamp_of(slot.folder))
        gc.collect()
        gc.freeze()  # what is there stays: looking through it stops all requests for a while

    def follow(self) -> None:
        """From now on, look for changes."""
        self._thread = threading.Thread(target=self._watch, name="follow folders", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        for worker in [*(slot.worker for slot in self.slots.values()), self.side]:
            worker.close()

    def look(self) -> None:
        """Read the folders that changed; those that cannot be read are told of and counted."""
        for slot in self.slots.values():
            stamp = stamp_of(slot.folder)
            again = slot.failed_at is not None and time.monotonic() - slot.failed_at > AGAIN
            if stamp == slot.stamp and not again:
                continue
            try:
                self._read(slot, stamp)
                self.metrics.swaps[slot.name, "done"] += 1
            except Exception as error:  # whatever it is, the old model answers
                told = stamp == slot.stamp and slot.failed_at is not None
                slot.stamp, slot.failed_at = stamp, time.monotonic()
                self.metrics.swaps[slot.name, "failed"] += 1
                if not told:
                    hint = getattr(error, "hint", "")
                    self.log.write(
                        "cannot read the new model, the old one stays",
                        "error",
                        model=slot.name,
                        error=str(error) or repr(error),
                        hint=hint,
                    )

    def _watch(self) -> None:
        while not self._closing.wait(POLL):
            self.look()

    def _read(self, slot: Slot, stamp: Stamp | None) -> None:
        start = time.perf_counter()
        slot.served = opened(slot.name, slot.folder, self.limits)
        slot.stamp, slot.failed_at = stamp, None
        seconds = round(time.perf_counter() - start, 3)
        method = slot.served.card["method"]
        self.log.write("model loaded", model=slot.name, method=method, seconds=seconds)

    def _counting(self, name: str) -> Callable[[int], None]:
        def answered(n: int) -> None:
            self.metrics.searches[name,] += 1
            self.metrics.searched[name,] += n

        return answered


def named(arguments: Sequence[str]) -> dict[str, Path]:
    """``FOLDER`` or ``NAME=FOLDER``; the name of a folder is the model's."""
    found: dict[str, Path] = {}
    for argument in arguments:
        name, is_named, folder = argument.partition("=")
        if not is_named or (not NAME.fullmatch(name) and Path(argument).exists()):
            name, folder = Path(argument).absolute().name, argument
        if not NAME.fullmatch(name):
            raise UserError(
                f"{name!r} cannot be the name of a model in an address",
                hint=f"letters, digits and -_. can: NAME={folder}",
            )
        if name in found:
            raise UserError(
                f"two models are named {name!r}", hint=f"name one of them: NAME={argument}"
            )
        found[name] = Path(folder)
        storage.read(found[name], "model")  # what it lacks is told before anything long is done
    return found


def stamp_of(folder: Path) -> Stamp | None:
    """Differs when the folder was written; None where it is not there."""
    try:
        found = (folder / storage.MANIFEST).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def opened(name: str, folder: Path, limits: Limits) -> Served:
    """A model that has answered once: what is read or made when first needed is there."""
    model = load(folder)
    manifest = storage.read(folder, "model").manifest
    asks = _asks(model)
    written = datetime.fromtimestamp((folder / storage.MANIFEST).stat().st_mtime, UTC)
    card: dict[str, Any] = {
        "name": name,
        "method": model.model.method,
        "data_kind": METHODS[model.model.method].data_kind,
        "asks": asks,
        "config": dict(model.model.config),
        "sizes": _sizes(model),
        "metrics": _metrics(model.model.notes),
        "notes": dict(_notes(model.model.notes)),
        "index": None,
        "versions": dict(manifest["versions"]),
        "written": written.isoformat(timespec="seconds"),
        "limits": {name: getattr(limits, name) for name in ("k", "batch", "rows", "keys", "text")},
    }
    if isinstance(model, Ranker):
        _warm(model)
        card["index"] = model.about
    else:
        card |= {"grades": model.names, "columns": _columns(model)}
    return Served(model, asks, card, to_json(card, inf_nan_mode="null"))


def _warm(ranker: Ranker) -> None:
    first = ranker.queries.keys.head(1).to_list()
    if first:
        for document in answer(ranker, [SearchSpec("queries", first, 1)]):
            if isinstance(document, Exception):
                raise document
    _ = ranker.candidates.texts
    if ranker.saved is not None and SIMILAR in ranker.saved:
        _ = ranker.searcher.similar  # its file may be gone when somebody asks


def _asks(model: Ranker | Grader) -> tuple[str, ...]:
    """What can be asked of it."""
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


def _sizes(model: Ranker | Grader) -> dict[str, int]:
    if isinstance(model, Grader):
        return {"grades": len(model.grades)}
    pairs = model.seen.n_pairs
    return {"queries": len(model.queries), "candidates": len(model.candidates), "pairs": pairs}


def _columns(grader: Grader) -> list[dict[str, Any]]:
    """In the order of the model; ``levels`` are what a text may say."""
    if grader.columns is None:
        return []
    numbers = [{"name": name, "type": "number"} for name in grader.columns.numbers]
    levels = grader.columns.levels.items()
    return [*numbers, *({"name": n, "type": "text", "levels": list(v)} for n, v in levels)]


def _notes(notes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a person wants to know of a fit: how long it took, and how good it was."""
    for name in NOTES:
        if name in notes:
            yield name, notes[name]
    history = notes.get("history", [])
    yield "steps", len(history)
    yield "seconds", sum(entry.get("seconds", 0.0) for entry in history)


def _metrics(notes: Mapping[str, Any]) -> dict[str, float]:
    """What was kept of how good it is: its score on validation."""
    score = validation_score(notes)
    if score is None or "metric" not in notes:
        return {}
    return {f"{notes['metric']}, validation": score}


def line_of(card: Mapping[str, Any]) -> str:
    """The card in a line, for people."""
    sizes = ", ".join(f"{n:,} {what}" for what, n in card["sizes"].items())
    index = (card["index"] or {}).get("kind")
    searched = f"; index: {index}" if index else ""
    return f"{card['name']}: {card['method']}; {sizes}{searched}; asks: {', '.join(card['asks'])}"
