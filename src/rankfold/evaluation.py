"""How well a model ranks what it has not seen: every candidate ranked, seen pairs left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.folder import load as load_data
from rankfold.data.reading import silent
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.metrics import (
    METRICS,
    SHOWN_METRICS,
    MetricSpec,
    count_shown,
    judge,
    parse,
    popularity_rank,
)
from rankfold.ranker import Ranker
from rankfold.types import Dataset, Interactions, Model, Progress, SplitName, Vocabulary, from_pairs

DEFAULT_METRICS = ("ndcg@10", "mrr@10", "recall@20", "hit@10", "coverage@10")
BLOCK = 4096  # queries between two reports of progress


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over queries, and the values they are the means of."""

    split: str
    queries: int  # that were scored
    without_positive: int  # queries left out because the split has no pair of theirs
    unknown: int  # queries left out because the model does not know them
    metrics: Mapping[str, float]
    per_query: Mapping[str, NDArray[np.float32]]  # in the order of ``rows``
    rows: NDArray[np.int64]  # the scored queries' rows in the data

    def __getitem__(self, metric: str) -> float:
        return self.metrics[metric]

    def to_json(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "queries": self.queries,
            "without_positive": self.without_positive,
            "unknown": self.unknown,
            "metrics": dict(self.metrics),
        }


def evaluate(
    ranker: Ranker,
    data: Dataset | str | Path,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] = DEFAULT_METRICS,
    memory_budget: int = 2**30,
    progress: Progress = silent,
) -> Evaluation:
    """Rank all candidates for every query with a pair in ``split``.

    Training pairs may not be returned when validation is scored, nor training and validation pairs
    when test is. Data other than the model's own is matched by key: a query that the model does not
    know is left out and counted; a candidate that it does not know is a positive it cannot find.
    """
    if not isinstance(data, Dataset):
        data = load_data(data)
    if split not in ("validation", "test"):
        raise UserError(f"cannot evaluate on {split!r}", hint="use --split validation or test")
    specs = [parse(name) for name in metrics]
    truth, seen = data.split(split), data.seen(split)
    places = torch.arange(len(data.queries))
    if not _same_keys(ranker.queries, data.queries):
        places = ranker.queries.find(data.queries.keys)
    if not _same_keys(ranker.candidates, data.candidates):
        truth, seen = _in_rows_of(ranker.candidates, data.candidates, truth, seen)
    has_positive = truth.counts() > 0
    rows = torch.nonzero(has_positive & (places >= 0)).flatten()
    if len(rows) == 0:
        raise UserError(
            f"no query of the {split} split is known to the model",
            hint="was the model fitted on other data?",
        )
    budget, told = memory_budget, progress
    per_query, shown = score(
        ranker.model, truth, seen, rows, specs, places=places, memory_budget=budget, progress=told
    )
    means = {name: float(values.mean(dtype=np.float64)) for name, values in per_query.items()}
    return Evaluation(
        split=split,
        queries=len(rows),
        without_positive=int((~has_positive).sum()),
        unknown=int((has_positive & (places < 0)).sum()),
        metrics={str(spec): {**means, **shown}[str(spec)] for spec in specs},
        per_query=per_query,
        rows=rows.numpy(),
    )


def score(
    model: Model,
    truth: Interactions,
    seen: Interactions,
    rows: Tensor,
    specs: Sequence[MetricSpec],
    *,
    places: Tensor | None = None,
    memory_budget: int = 2**30,
    progress: Progress = silent,
) -> tuple[dict[str, NDArray[np.float32]], dict[str, float]]:
    """The metrics' values for each of ``rows``, and those that have one value for all.

    Args:
        model: its candidates are the first of the truth's.
        truth: the positives, a row per query of the data.
        seen: what may not be returned, likewise.
        rows: the queries to score, as rows of ``truth``.
        specs: the metrics.
        places: the model's row of each query of the data; None: the same.
        memory_budget: bytes for blocks of scores.
        progress: told after each block.
    """
    candidates = model.tensors["candidates"]
    index = Exact(candidates, memory_budget)
    depth = max(spec.k for spec in specs)
    ranks = None
    if any(spec.name == "popularity" for spec in specs):
        ranks = popularity_rank(seen.candidate_counts())
    values: dict[str, list[Tensor]] = {str(s): [] for s in specs if s.name in METRICS}
    nothing = torch.zeros(len(candidates), dtype=torch.int64)
    shown = {spec: nothing.clone() for spec in specs if spec.name in SHOWN_METRICS}
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        vectors = model.tensors["queries"][block if places is None else places[block]]
        ids = index.search(vectors, depth, seen.select(block).to(vectors.device)).ids.cpu()
        judged = judge(ids, truth.select(block), ranks)
        for spec in specs:
            if spec.name in METRICS:
                values[str(spec)].append(METRICS[spec.name](judged, spec.k))
            else:
                shown[spec] += count_shown(ids, spec.k, len(candidates))
        progress("evaluating", min(1.0, (start + BLOCK) / len(rows)))
    return (
        {name: torch.cat(parts).numpy() for name, parts in values.items()},
        {str(spec): float(SHOWN_METRICS[spec.name](counts)) for spec, counts in shown.items()},
    )


def _same_keys(ours: Vocabulary, theirs: Vocabulary) -> bool:
    return len(ours) == len(theirs) and ours.keys.equals(theirs.keys)


def _in_rows_of(
    ours: Vocabulary, theirs: Vocabulary, truth: Interactions, seen: Interactions
) -> tuple[Interactions, Interactions]:
    """Truth and seen pairs with our rows of the candidates; unknown ones come after all ours."""
    rows = ours.find(theirs.keys)
    unknown = rows < 0
    rows[unknown] = len(ours) + torch.arange(int(unknown.sum()))
    return _renumber(truth, rows, len(ours) + len(rows)), _renumber(seen, rows, len(ours))


def _renumber(pairs: Interactions, rows: Tensor, n: int) -> Interactions:
    """Candidate y becomes ``rows[y]``; those that become n or more are left out."""
    candidates = rows[pairs.candidates]
    kept = torch.nonzero(candidates < n).flatten()
    keys = pairs.query_of_pair().long()[kept] * n + candidates[kept]
    keys, order = torch.sort(keys)
    grades = None if pairs.grades is None else pairs.grades[kept][order]
    return from_pairs(keys // n, keys % n, grades, (pairs.n_queries, n))
