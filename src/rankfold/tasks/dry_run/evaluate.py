"""The plan of ``evaluate``: a few queries are ranked, to see how long all of them take."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankfold.data.folder import load as load_data
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.models.search import ranks_by_text
from rankfold.notebook import silent
from rankfold.tasks.dry_run import outline, timed
from rankfold.tasks.evaluate import evaluate
from rankfold.types import Dataset, SplitName

_SAMPLE = 100  # queries


def outline_evaluate(
    path: str | Path,
    model: Ranker | Grader,
    data: str | Path,
    *,
    split: SplitName = "test",
    report: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Check an evaluation and outline it; the arguments are those of ``evaluate``.

    ``path`` is the folder of the model, which is open.
    """
    given = load_data(data)
    if isinstance(model, Ranker) and split in ("validation", "test"):
        some, share = _some_queries(model, given, split)
    else:
        some, share, options = given, 1.0, {**options, "bootstrap": 0}
    result, seconds = timed(partial(evaluate, model, some, split=split, progress=silent, **options))
    name = "rows" if isinstance(model, Grader) else "queries"
    source = "without the bootstrap" if name == "rows" else f"as {result.queries:,} of them took"
    work = {
        "method": model.model.method,
        "split": split,
        name: round(result.queries / share),
        "metrics": ", ".join(result.metrics),
    }
    memory = sum(tensor.nbytes for tensor in model.model.tensors.values())
    writes = {} if report is None else {report: None}
    time = seconds / share, source
    return outline("evaluate", work, [path, data], writes, memory=memory, time=time)


def _some_queries(ranker: Ranker, data: Dataset, split: SplitName) -> tuple[Dataset, float]:
    """The data with a few queries of the split that the model knows, and their share."""
    part = data.split(split)
    has_pairs = part.counts() > 0
    if not ranks_by_text(ranker.model):
        has_pairs &= ranker.queries.find(data.queries.keys) >= 0
    rows = has_pairs.nonzero().flatten()
    if len(rows) <= _SAMPLE:
        return data, 1.0
    chosen = rows[torch.arange(_SAMPLE) * len(rows) // _SAMPLE]
    kept = torch.isin(part.query_of_pair(), chosen)
    some: dict[str, Any] = {split: part.keep(kept)}
    return replace(data, **some), _SAMPLE / len(rows)
