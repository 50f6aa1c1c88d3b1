"""The index of a model on disk: built once and kept in the model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankfold.data.read.files import silent
from rankfold.errors import UserError
from rankfold.index.build import COSINE, NAMES, WANTED, Saved, Served, build
from rankfold.models.load import from_folder, kind_of
from rankfold.models.ranker import Ranker
from rankfold.models.searcher import Searcher, find_index, has_own_search
from rankfold.storage import folder as store
from rankfold.types import Progress


def add_index(
    path: str | Path,
    kind: str = "auto",
    *,
    recall: float = WANTED,
    likeness: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Build an index of a model's candidates, measure its recall, and keep it in the folder.

    The other files stay. An existing index is replaced when the new one is complete.

    Args:
        path: the model's folder.
        kind: a key of ``rankfold.index.INDEXES``; ``exact`` stores no index.
        recall: the share of the best candidates to find.
        likeness: also build an index of similar candidates, by cosine.
        seed: of all random draws.
        progress: called before each part.

    Returns:
        The facts in the manifest about each index, by its name.
    """
    folder = store.read(Path(path), "model", full=True)
    with store.understood(folder.path):
        searcher = _ranker(folder).searcher
    find_index(kind, searcher.model)
    store.check_writable(folder.path, "model")
    built: dict[str, Served] = {}
    progress(f"building the {kind} index", 0.0)
    built["index"] = build(
        kind,
        searcher.model.tensors["candidates"],
        searcher.memory_budget,
        lambda n: searcher.some_vectors(n, seed),
        target=recall,
        seed=seed,
    )
    if likeness:
        progress(f"building the {kind} index of likeness", 0.0)
        built["likeness"] = _likeness(searcher, kind, recall, seed)
    progress("writing", 0.0)
    _write(folder, built)
    saved = Saved(store.read(folder.path, "model"))
    return {name: saved.about(name) for name in built}


def _ranker(folder: store.Folder) -> Ranker:
    if kind_of(folder) == "graded":
        raise UserError(
            f"{folder.path} grades rows and has no vectors to search",
            hint="only a model that ranks has an index",
        )
    ranker = from_folder(folder, "exact")
    if has_own_search(ranker.model):
        raise UserError(
            f"{ranker.model.method} has no vectors for an index to search",
            hint="the model brings its own search",
        )
    return ranker


def _likeness(searcher: Searcher, kind: str, recall: float, seed: int) -> Served:
    """Its recall is measured with candidates as queries."""
    directions = searcher.likeness.directions
    return build(kind, directions, searcher.memory_budget, target=recall, seed=seed, metric=COSINE)


def _write(folder: store.Folder, built: dict[str, Served]) -> None:
    """Write the folder with these indexes in place of the old ones."""
    meta = {name: value for name, value in folder.meta.items() if name not in NAMES}
    files: dict[str, store.Content] = {
        name: folder.kept(name)
        for name in folder.manifest["files"]
        if name.split("_")[0] not in NAMES
    }
    for name, served in built.items():
        files |= served.index.files(name)
        meta[name] = served.about
    store.write(folder.path, "model", meta, files)
