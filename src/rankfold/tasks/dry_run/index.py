"""The plan of ``index``, after its checks."""

from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.index import build as indexes
from rankfold.index.auto import choose_kind
from rankfold.models.index import open_ranker
from rankfold.tasks.dry_run import outline


def outline_index(model: str | Path, kind: str, *, recall: float, similar: bool) -> dict[str, Any]:
    """Check the building of an index and outline it; the arguments are those of ``add_index``."""
    indexes.find_kind(kind)
    indexes.check_target(recall)
    storage.check_writable(Path(model), "model")
    folder = storage.read(Path(model), "model", full=True)
    vectors = open_ranker(folder).searcher.model.tensors["candidates"]
    n = 2 if similar else 1
    work = {
        "kind": f"{kind}, here {choose_kind(vectors, recall)}" if kind == "auto" else kind,
        "candidates": len(vectors),
        "width": vectors.shape[1],
        "recall": recall,
        "indexes": n,
    }
    return outline("index", work, [model], {model: None}, memory=n * vectors.nbytes)
