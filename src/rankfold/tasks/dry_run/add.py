"""The plan of ``add``: the pairs are added to the model in memory, which is not saved."""

from pathlib import Path
from time import perf_counter
from typing import Any

from rankfold import storage
from rankfold.models.load import load_ranker
from rankfold.tasks.dry_run import outline
from rankfold.tasks.update import add


def outline_add(
    model: Path, data: str, query_column: str | None, candidate_column: str | None
) -> dict[str, Any]:
    """Check an addition and outline it; the arguments are those of ``add``."""
    began = perf_counter()
    storage.check_writable(model, "model")
    more = add(load_ranker(model), data, query_column, candidate_column)
    entry = more.model.notes["added"][-1]
    size = sum(tensor.nbytes for tensor in more.model.tensors.values())
    work = {
        "method": more.model.method,
        "pairs to add": entry["pairs"],
        "new queries": entry["queries"],
        "changed queries": entry["changed"],
        "pairs left out": entry["left_out"],
    }
    time = perf_counter() - began, "everything but the writing was done"
    return outline("add", work, [model, data], {model: size}, memory=size, time=time)
