"""The models of a server. A request keeps the model that it began with."""

import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic_core import to_json

from rankfold import storage
from rankfold.errors import UserError
from rankfold.index.build import SIMILAR
from rankfold.methods import METHODS, answers_of
from rankfold.models.grader import Grader
from rankfold.models.load import open_folder
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import SearchSpec
from rankfold.models.search import ranks_by_text
from rankfold.models.thresholds import are_learnt
from rankfold.serve.batching import Worker
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.metrics import Counts, Labels, Metrics
from rankfold.serve.search import answer
from rankfold.training.early_stopping import validation_score
from rankfold.types import Columns

_FACTS = ("data", "seed", "metric", "chosen_by", "refit", "operating_on")  # notes of a fit
_NOTES = (*_FACTS, "added", "extended", "removed")


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
    """A name, the model that has it now, and the thread that runs it."""

    name: str
    worker: Worker
    served: Served | None = None

    def now(self) -> Served:
        """The current model."""
        if self.served is None:
            hint = "GET /ready says when it is"
            raise HttpError(503, f"{self.name} is not loaded yet", hint, {"retry-after": "1"})
        return self.served


class Models:
    """All models, by name; the first is the default."""

    def __init__(self, names: Iterable[str], limits: Limits, log: Log, metrics: Metrics) -> None:
        self.limits, self.log, self.metrics = limits, log, metrics
        self.slots: dict[str, Slot] = {}
        for name in names:
            worker = Worker(name, limits.waiting, partial(self._count, name))
            self.slots[name] = Slot(name, worker)
        self.side = Worker("keys", limits.waiting)  # for other requests, which may take longer

    @property
    def ready(self) -> bool:
        return all(slot.served is not None for slot in self.slots.values())

    def slot(self, name: str | None) -> Slot:
        if name is None:
            return next(iter(self.slots.values()))
        if name not in self.slots:
            raise HttpError(404, f"unknown model {name!r:.100}", "GET /models lists the names")
        return self.slots[name]

    def use(self, name: str, folder: storage.Folder, written: float) -> None:
        """Open a model and put it into use; an error leaves the one before it."""
        self.put(name, self.open(name, folder, written))

    def open(self, name: str, folder: storage.Folder, written: float) -> Served:
        return opened(name, folder, written, self.limits)

    def put(self, name: str, served: Served) -> None:
        """Put a model into use."""
        first = not self.ready
        self.slots[name].served = served
        if first and self.ready:
            gc.collect()
            gc.freeze()  # the models stay: scanning them would pause all requests

    def counts(self) -> Counts:
        """The counts of this process."""
        slots = self.slots.items()
        loaded: dict[Labels, int] = {(name,): int(slot.served is not None) for name, slot in slots}
        waiting: dict[Labels, int] = {(name,): len(slot.worker) for name, slot in slots}
        return self.metrics.counts(loaded, waiting)

    def close(self) -> None:
        for worker in [*(slot.worker for slot in self.slots.values()), self.side]:
            worker.close()
        for slot in self.slots.values():
            slot.served = None  # frozen objects are never collected: they must not hold files open

    def _count(self, name: str, n_requests: int) -> None:
        self.metrics.searches[name,] += 1
        self.metrics.searched[name,] += n_requests


def opened(name: str, folder: storage.Folder, written: float, limits: Limits) -> Served:
    """A model that has answered once, so that lazy parts are loaded, and its card.

    ``written`` is the time when the folder was written, in seconds since 1970.
    """
    model = open_folder(folder)
    accepts, notes = _accepted_inputs(model), model.model.notes
    history, score = notes.get("history", []), validation_score(notes)
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
        "versions": dict(folder.manifest["versions"]),
        "written": datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds"),
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
        card["filters"] = [] if model.features is None else _listed(model.features.columns)
        card["thresholds"] = are_learnt(model.model)
        if "features" in accepts:
            card["features"] = _listed(model.query_columns)
    else:
        _ = model.opened, model.calibrates
        card["sizes"] = {"grades": len(model.grades)}
        columns = [] if model.columns is None else _listed(model.columns)
        if model.columns is not None and model.profile is not None:
            typical = model.profile.typical(model.columns)
            columns = [{**one, "typical": typical[one["name"]]} for one in columns]
        card |= {"grades": model.names, "columns": columns}
        card |= {"importance": notes.get("importance"), "explains": model.explains}
    return Served(model, accepts, card, to_json(card, inf_nan_mode="null"))


def _listed(columns: Columns) -> list[dict[str, Any]]:
    """Each column with its type and levels."""
    numbers: list[dict[str, Any]] = [{"name": name, "type": "number"} for name in columns.numbers]
    texts = [{"name": n, "type": "text", "levels": list(v)} for n, v in columns.levels.items()]
    return numbers + texts


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
    vectors = model.model.tensors.get("candidates")
    reads = model.tokenizer is not None and (model.texts is None or model.texts.weights is None)
    able = {
        "queries": True,
        "history": "histories" in answers_of(model.model),
        "features": "query_columns" in model.model.notes,
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
