"""The plan of ``predict``: the first rows are ranked or graded, and nothing is written."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.notebook import silent
from rankfold.tasks.dry_run import outline, timed
from rankfold.tasks.dry_run.heads import Heads
from rankfold.tasks.predict import check_file, predict

HEAD_BYTES = 2**14  # of a text file
HEAD_ROWS = 500  # of a Parquet file


def outline_predict(
    model: str | Path,
    inputs: Sequence[str],
    out: str | Path,
    *,
    index: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Check a prediction and outline it; the arguments are those of ``predict``."""
    loaded = load(model, index=index)
    check_file(Path(out), inputs)
    with storage.scratch() as scratch:
        heads = Heads(scratch, HEAD_BYTES, HEAD_ROWS)
        first = heads.of(list(inputs))
        done, took = timed(partial(predict, loaded, first, progress=silent, **options))
        seconds, n = heads.estimate(took), heads.estimate(done["queries"])
    name = "rows" if isinstance(loaded, Grader) else "queries"
    work = {
        "method": loaded.model.method,
        "k": None if name == "rows" else options.get("k", 10),
        name: None if n is None else round(n),
        "unknown to the model": done.get("unknown") or None,
    }
    notes = ["only the first rows were read: figures are estimates"] if heads.is_cut else []
    memory = sum(tensor.nbytes for tensor in loaded.model.tensors.values())
    source = "as the first rows took" if heads.is_cut else "all rows were read"
    time = seconds, None if seconds is None else source
    reads = [model, *heads.files]
    return outline("predict", work, reads, {out: None}, memory=memory, time=time, notes=notes)
