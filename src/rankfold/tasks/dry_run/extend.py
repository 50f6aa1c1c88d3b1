"""The plan of ``extend``: the candidates are added to the model in memory, which is not saved."""

from pathlib import Path
from time import perf_counter
from typing import Any

from rankfold import storage
from rankfold.models.load import load_ranker
from rankfold.tasks.dry_run import outline


def outline_extend(
    model: Path,
    table: str,
    key_column: str | None,
    text_column: str | None,
    documents: Path | None = None,
) -> dict[str, Any]:
    """Check an extension and outline it; the arguments are those of ``extend``."""
    began = perf_counter()
    storage.check_writable(model, "model")
    wider = load_ranker(model).extend(table, key_column, text_column, documents)
    entry = wider.model.notes["extended"][-1]
    size = sum(tensor.nbytes for tensor in wider.model.tensors.values())
    work = {
        "method": wider.model.method,
        "candidates to add": entry["candidates"],
        "candidates in all": len(wider.candidates),
        "rows left out": entry["left_out"],
    }
    if documents is not None:
        work["pairs to add"] = wider.model.notes["added"][-1]["pairs"]
    reads: list[str | Path] = [model, table, *([] if documents is None else [documents])]
    time = perf_counter() - began, "everything but the writing was done"
    return outline("extend", work, reads, {model: size}, memory=size, time=time)
