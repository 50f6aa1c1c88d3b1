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

from rankfold.answering import Answers
from rankfold.data.folder import check_pairs
from rankfold.data.folder import load as load_data
from rankfold.data.matching import renumber, rows_of, same_keys
from rankfold.data.reading import silent
from rankfold.errors import UserError
from rankfold.index.exact import block_rows
from rankfold.metrics import (
    METRICS,
    SHOWN_METRICS,
    MetricSpec,
    count_shown,
    judge,
    parse,
    popularity_rank,
)
from rankfold.ranker import Ranker, load
from rankfold.types import Dataset, Interactions, Model, Progress, SplitName

DEFAULT_METRICS = ("ndcg@10", "mrr@10", "recall@20", "hit@10", "coverage@10")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over queries, and the values they are the means of."""

    split: str
    queries: int  # that were scored
    without_positive: int  # queries left out because the split has no pair of theirs
    unknown: int  # queries left out because the model does not know them
    trained_on: int  # pairs of the split that the model was fitted on: the values are too high
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
            "trained_on": self.trained_on,
            "metrics": dict(self.metrics),
        }


def evaluate(
    ranker: Ranker | str | Path,
    data: Dataset | str | Path,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] | str = DEFAULT_METRICS,
    memory_budget: int = 2**30,
    progress: Progress = silent,
) -> Evaluation:
    """Rank all candidates for every query with a pair in ``split``.

    Training pairs may not be returned when validation is scored, nor training and validation pairs
    when test is. Data other than the model's own is matched by key: a query that the model does not
    know is left out and counted; a candidate that it does not know is a positive it cannot find.
    """
    data = data if isinstance(data, Dataset) else load_data(data)
    ranker = ranker if isinstance(ranker, Ranker) else load(ranker)
    if split not in ("validation", "test"):
        raise UserError(f"cannot evaluate on {split!r}", hint="use --split validation or test")
    specs = [parse(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    if not specs:
        raise UserError("no metric was asked for", hint=f"say {', '.join(DEFAULT_METRICS)}")
    check_pairs(data)
    truth, seen, train = data.split(split), data.seen(split), data.split("train")
    places = torch.arange(len(data.queries))
    if not same_keys(ranker.queries, data.queries):
        places = ranker.queries.find(data.queries.keys)
    if not same_keys(ranker.candidates, data.candidates):
        rows = rows_of(ranker.candidates, data.candidates)
        n = len(ranker.candidates)
        truth = renumber(truth, rows, n + len(rows))
        seen, train = renumber(seen, rows, n), renumber(train, rows, n)
    has_positive = truth.counts() > 0
    rows = torch.nonzero(has_positive & (places >= 0)).flatten()
    if len(rows) == 0:
        raise UserError(
            f"no query of the {split} split is known to the model",
            hint="was the model fitted on other data?",
        )
    per_query, shown = score(
        ranker.model,
        truth,
        seen,
        rows,
        specs,
        places=places,
        train=train,
        memory_budget=memory_budget,
        progress=progress,
    )
    means = {name: float(values.mean(dtype=np.float64)) for name, values in per_query.items()}
    return Evaluation(
        split=split,
        queries=len(rows),
        without_positive=int((~has_positive).sum()),
        unknown=int((has_positive & (places < 0)).sum()),
        trained_on=_trained_on(ranker, data, truth, places),
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
    train: Interactions | None = None,
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
        train: the pairs that popularity is counted in; None: ``seen``.
        memory_budget: bytes for blocks.
        progress: told after each block.
    """
    answers = Answers(model, seen if train is None else train, memory_budget)
    n = seen.n_candidates
    depth = min(max(spec.k for spec in specs), n)
    asked = any(spec.name == "popularity" for spec in specs)
    ranks = popularity_rank(answers.popularity) if asked else None
    step = block_rows(depth, memory_budget)
    values: dict[str, list[Tensor]] = {str(s): [] for s in specs if s.name in METRICS}
    nothing = torch.zeros(n, dtype=torch.int64)
    shown = {spec: nothing.clone() for spec in specs if spec.name in SHOWN_METRICS}
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        own = block if places is None else places[block]
        ids = answers.of_queries(own, depth, seen.select(block)).ids.cpu()
        judged = judge(ids, truth.select(block), ranks)
        for spec in specs:
            if spec.name in METRICS:
                values[str(spec)].append(METRICS[spec.name](judged, spec.k))
            else:
                shown[spec] += count_shown(ids, spec.k, n)
        progress("evaluating", min(1.0, (start + step) / len(rows)))
    return (
        {name: torch.cat(parts).numpy() for name, parts in values.items()},
        {str(spec): float(SHOWN_METRICS[spec.name](counts)) for spec, counts in shown.items()},
    )


def _trained_on(ranker: Ranker, data: Dataset, truth: Interactions, places: Tensor) -> int:
    """How many pairs of the truth the model has learnt; there should be none.

    A fit without a refit learns the training pairs of its data alone, whatever else it has seen; a
    query that was folded in since has learnt all that it has seen.
    """
    notes, n = ranker.model.notes, len(ranker.candidates)
    queries = places[truth.query_of_pair().long()]
    known = (queries >= 0) & (truth.candidates < n)
    if data.fingerprint and notes.get("data") == data.fingerprint and not notes.get("refit"):
        folded_in = ranker.model.tensors.get("folded_in")
        if folded_in is None:
            return 0
        known &= folded_in[queries]
    pairs = queries[known] * n + truth.candidates[known]
    seen = ranker.seen.query_of_pair().long() * n + ranker.seen.candidates
    return int(torch.isin(pairs, seen).sum())
