"""The index of a model on disk: built once and kept in the model's folder."""

from functools import partial
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.errors import UserError
from rankfold.index import build as indexes
from rankfold.models.load import from_folder, kind_of
from rankfold.models.ranker import Ranker
from rankfold.models.search import has_own_search
from rankfold.notebook import shown
from rankfold.types import Progress


def add_index(
    path: str | Path,
    kind: str = "auto",
    *,
    recall: float = indexes.DEFAULT_RECALL,
    similar: bool = False,
    seed: int = 0,
    progress: Progress = shown,
) -> dict[str, Any]:
    """Build an index of a model's candidates, measure its recall, and keep it in the folder.

    The other files stay. An existing index is replaced when the new one is complete.

    Args:
        path: the model's folder.
        kind: a key of ``rankfold.index.INDEXES``; ``exact`` stores no index.
        recall: the share of the best candidates to find.
        similar: also build an index of similar candidates, by cosine.
        seed: of all random draws.
        progress: called before each part.

    Returns:
        The facts in the manifest about each index, by its name.
    """
    indexes.find_kind(kind)
    storage.read(Path(path), "model")
    storage.check_writable(Path(path), "model")
    with storage.locked(Path(path)):
        return _add_index(Path(path), kind, recall, seed, progress, similar=similar)


def _add_index(
    path: Path, kind: str, recall: float, seed: int, progress: Progress, *, similar: bool
) -> dict[str, Any]:
    folder = storage.read(path, "model", full=True)
    with storage.check_contents(folder.path):
        searcher = open_ranker(folder).searcher
    make = partial(indexes.build, kind, target=recall, seed=seed)
    candidates, budget = searcher.model.tensors["candidates"], searcher.memory_budget
    progress(f"building the {kind} index", 0.0)
    built = {"index": make(candidates, budget, partial(searcher.some_vectors, seed=seed))}
    if similar:  # its recall is measured with candidates as queries
        progress(f"building the {kind} index of similar candidates", 0.0)
        built[indexes.SIMILAR] = make(searcher.directions, budget, metric=indexes.COSINE)
    progress("writing", 0.0)
    _write(folder, built)
    saved = indexes.SavedIndexes(storage.read(folder.path, "model"))
    return {name: saved.about(name) for name in built}


def open_ranker(folder: storage.Folder) -> Ranker:
    """The model of a folder; a UserError if it has no vectors to search."""
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


def _write(folder: storage.Folder, built: dict[str, indexes.MeasuredIndex]) -> None:
    """Write the folder with these indexes in place of the old ones."""
    meta = {name: value for name, value in folder.meta.items() if name not in indexes.NAMES}
    files: dict[str, storage.Content] = {
        name: folder.reuse(name)
        for name in folder.manifest["files"]
        if name.split("_")[0] not in indexes.NAMES
    }
    for name, measured in built.items():
        files |= measured.index.files(name)
        meta[name] = measured.about
    storage.write(folder.path, "model", meta, files)
