"""The plan of ``index``, after its checks."""

from pathlib import Path

from rankfold import storage
from rankfold.index import build as indexes
from rankfold.index.choose import choose_kind
from rankfold.models.index import open_ranker
from rankfold.storage import free_memory
from rankfold.tasks.dry_run import Outline, Read, Written, short_of


def outline_index(model: str | Path, kind: str, *, recall: float, similar: bool) -> Outline:
    """Check the building of an index and outline it; the arguments are those of ``add_index``."""
    indexes.find_kind(kind)
    indexes.check_target(recall)
    storage.check_writable(Path(model), "model")
    folder = storage.read(Path(model), "model", full=True)
    vectors = open_ranker(folder).searcher.model.tensors["candidates"]
    memory = vectors.nbytes * (2 if similar else 1)
    writes = [Written.of(model)]
    return Outline(
        command="index",
        reads=[Read.of(model)],
        writes=writes,
        work={
            "kind": f"{kind}, here {choose_kind(vectors, recall)}" if kind == "auto" else kind,
            "candidates": len(vectors),
            "width": vectors.shape[1],
            "recall": recall,
            "indexes": 2 if similar else 1,
        },
        memory=memory,
        notes=short_of(memory, free_memory(), writes),
    )
