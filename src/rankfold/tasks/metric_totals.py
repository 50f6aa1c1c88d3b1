"""The values of metrics over ranked lists, block by block: of all queries and by frequency."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks
from rankfold.index.exact import block_rows
from rankfold.metrics import CATALOG_METRICS, METRICS, SET_METRICS, MetricSpec
from rankfold.metrics.beyond_accuracy import TrainTaste, taste_of
from rankfold.metrics.coverage import count_returned
from rankfold.metrics.judged import judge
from rankfold.metrics.popularity import popularity_rank
from rankfold.metrics.sets import SetCounts, count_sets
from rankfold.metrics.strata import GROUPS, frequency_groups, within
from rankfold.models.search import Filter, Searcher
from rankfold.models.thresholds import passing
from rankfold.notebook import silent
from rankfold.types import Comm, Interactions, Model, Progress, Texts, TopK


@dataclass(frozen=True, slots=True)
class Stratum:
    """The same lists, judged by the positives of one group of candidates."""

    name: str  # head, torso, tail, or unseen: not in train
    candidates: int  # of the group in the data
    train_pairs: int
    queries: int  # scored queries with a positive in the group
    metrics: Mapping[str, float]  # metrics that read the truth; empty without queries


class Tally:
    """The values of the metrics, added block by block."""

    def __init__(
        self,
        specs: Sequence[MetricSpec],
        n_candidates: int,
        ranks: Tensor | None = None,
        weights: Tensor | None = None,
        comm: Comm = SINGLE_PROCESS,
        taste: TrainTaste | None = None,
    ) -> None:
        each = [spec for spec in specs if spec.name in METRICS]
        all_ = [spec for spec in specs if spec.name in CATALOG_METRICS]
        self.specs = [spec for spec in specs if spec.name not in SET_METRICS]
        self.ranks, self.weights, self.comm, self.taste = ranks, weights, comm, taste
        self.values: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.best: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.shown = {spec: torch.zeros(n_candidates, dtype=torch.int64) for spec in all_}

    def add(self, ids: Tensor, truth: Interactions, rows: Tensor | None = None) -> None:
        """Judge the lists of the queries ``rows``, which metrics of taste need."""
        taste = None if self.taste is None or rows is None else self.taste.of(rows)
        judged = judge(ids, truth, self.ranks, self.weights, taste)
        for spec, parts in self.values.items():
            metric = METRICS[spec.name]
            parts.append(metric.value(judged, spec.k))
            if metric.best is not None:
                self.best[spec].append(metric.best(judged, spec.k))
        for spec, counts in self.shown.items():
            counts += count_returned(ids, spec.k, len(counts))

    def per_query(self) -> dict[str, NDArray[np.float32]]:
        """The value of each query of all processes; the metric is their mean."""
        values = {}
        for spec, parts in self.values.items():
            scaled = METRICS[spec.name].best is not None
            scale = float(self._gather(self.best[spec]).double().mean()) if scaled else 1.0
            values[str(spec)] = (self._gather(parts) / scale).numpy()
        return values

    def means(self) -> dict[str, float]:
        """The value of each metric."""
        values = {**means_of(self.per_query()), **self.of_all()}
        return {str(spec): values[str(spec)] for spec in self.specs}

    def of_all(self) -> dict[str, float]:
        """One value for all queries."""
        shown = {spec: self.comm.sum(counts) for spec, counts in self.shown.items()}
        return {str(spec): float(CATALOG_METRICS[spec.name].value(n)) for spec, n in shown.items()}

    def _gather(self, parts: Sequence[Tensor]) -> Tensor:
        return self.comm.gather(torch.cat([*parts]) if parts else torch.zeros(0))


def score(
    model: Model,
    truth: Interactions,
    seen: Interactions,
    rows: Tensor,
    specs: Sequence[MetricSpec],
    *,
    by: Texts | Interactions | None = None,
    memory_budget: int = 2**30,
    comm: Comm = SINGLE_PROCESS,
    popularity: Tensor | None = None,
) -> tuple[dict[str, NDArray[np.float32]], dict[str, float]]:
    """The values of the metrics for each of ``rows`` of all processes, and of catalog metrics.

    Args:
        model: its candidates are the first columns of ``truth``.
        truth: the positives, a row per query of the data.
        seen: pairs that may not be returned, a row per query of the data.
        rows: the queries to score, as rows of ``truth``.
        specs: the metrics, except propensity-scored ones.
        by: texts or histories of the queries to rank by; None: the model has their vectors.
        memory_budget: bytes for blocks.
        comm: the processes that share the queries.
        popularity: counts of each candidate [N], over all of them; None: those in ``seen``.
    """
    given, texts = (by, None) if isinstance(by, Interactions) else (None, by)
    searcher = Searcher(model, seen, memory_budget, texts)
    if popularity is not None:
        searcher.popularity = popularity
    ranks, taste = popularity_ranks(specs, searcher), train_taste(specs, seen)
    tally = Tally(specs, seen.n_candidates, ranks, comm=comm, taste=taste)
    depth = max(spec.k for spec in specs)
    for block, top in lists(searcher, seen, rows, depth, None, silent, given):
        tally.add(top.ids.cpu(), truth.select(block), block)
    return tally.per_query(), tally.of_all()


def lists(
    searcher: Searcher,
    seen: Interactions,
    rows: Tensor,
    depth: int,
    places: Tensor | None,
    progress: Progress,
    given: Interactions | None = None,
    now: Interactions | None = None,
) -> Iterator[tuple[Tensor, TopK]]:
    """Blocks of the rows, and their lists of ``depth`` results.

    The lists are those of the histories in ``given``, if there are any, else those of the model's
    queries ``places``; None: the rows themselves. ``now`` has what these have chosen by now, for
    models that read it.
    """
    depth = min(depth, seen.n_candidates)
    step = block_rows(depth, searcher.memory_budget)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        hidden = Filter(seen.select(block))
        if given is not None:
            top = searcher.of_histories(given.select(block), depth, hidden)
        else:
            known = block if places is None else places[block]
            if now is None:
                top = searcher.of_queries(known, depth, hidden)
            else:
                top = searcher.of_known(known, now.select(block), depth, hidden)
        yield block, top
        progress("evaluating", min(1.0, (start + step) / len(rows)))


def popularity_ranks(specs: Sequence[MetricSpec], searcher: Searcher) -> Tensor | None:
    """Popularity ranks, if a metric reads them."""
    needed = any(reads(spec) == "popularity" for spec in specs)
    return popularity_rank(searcher.popularity) if needed else None


def train_taste(specs: Sequence[MetricSpec], train: Interactions) -> TrainTaste | None:
    """What metrics beyond accuracy read, if there are any."""
    return taste_of(train) if any(reads(spec) == "taste" for spec in specs) else None


class SetTally:
    """The metrics of the sets of results that reach their thresholds, block by block."""

    def __init__(
        self, specs: Sequence[MetricSpec], searcher: Searcher, goal: str, n_candidates: int
    ) -> None:
        """``n_candidates`` are those of the truth."""
        self.specs = [spec for spec in specs if spec.name in SET_METRICS]
        self.thresholds = searcher.thresholds(goal) if self.specs else None
        self.texts = searcher.texts
        self.counts = {
            spec.k: torch.zeros(3, n_candidates, dtype=torch.int64) for spec in self.specs
        }

    def add(self, top: TopK, truth: Interactions, rows: Tensor) -> None:
        """``rows`` are those of the texts."""
        if self.thresholds is None:
            return
        known = None if self.texts is None else self.texts.counts()[rows] > 0
        for k, counts in self.counts.items():
            ids = passing(top.first(k), self.thresholds, known).ids.cpu()
            counts += torch.stack(count_sets(ids, truth))

    def values(self, comm: Comm) -> dict[str, float]:
        counts = {k: SetCounts(*comm.sum(own)) for k, own in self.counts.items()}
        return {str(one): float(SET_METRICS[one.name].value(counts[one.k])) for one in self.specs}


class GroupTally:
    """A tally of the queries with a positive in a group, judged by the group alone.

    ``members`` are those of the group, by the columns of the truth.
    """

    def __init__(self, members: Tensor, specs: Sequence[MetricSpec], all_: Tally) -> None:
        own = [spec for spec in specs if reads(spec) in ("truth", "propensity")]
        self.tally = Tally(own, 0, weights=all_.weights, comm=all_.comm)
        self.members, self._queries = members, 0

    def add(self, ids: Tensor, truth: Interactions) -> None:
        truth = within(truth, self.members)
        rows = torch.nonzero(truth.counts() > 0).flatten()
        self.tally.add(ids[rows], truth.select(rows))
        self._queries += len(rows)

    def stratum(self, name: str, counts: Tensor) -> Stratum:
        """``counts``: in train, of each candidate of the group."""
        queries = count_over_ranks(self._queries, self.tally.comm)
        means = self.tally.means() if queries > 0 else {}
        return Stratum(name, len(counts), int(counts.sum()), queries, means)


def groups_of(counts: Tensor) -> dict[str, Tensor]:
    """Members [N] of head, torso and tail, and unseen if there are any; counts in train [N]."""
    group = frequency_groups(counts)
    masks = {name: group == number for number, name in enumerate(GROUPS)}
    return {name: mask for name, mask in masks.items() if name != "unseen" or bool(mask.any())}


def reads(spec: MetricSpec) -> str:
    return METRICS[spec.name].reads if spec.name in METRICS else "catalog"


def means_of(per_query: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    return {name: float(values.mean(dtype=np.float64)) for name, values in per_query.items()}
