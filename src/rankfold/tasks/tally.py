"""The sums that an evaluation of lists keeps, block by block: over all queries and by frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.metrics import (
    CATALOG_METRICS,
    METRICS,
    MetricSpec,
    count_returned,
    frequency_groups,
    judge,
    within,
)
from rankfold.metrics.strata import GROUPS
from rankfold.types import Comm, Dataset, Interactions


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
    ) -> None:
        each = [spec for spec in specs if spec.name not in CATALOG_METRICS]
        all_ = [spec for spec in specs if spec.name in CATALOG_METRICS]
        self.ranks, self.weights, self.comm = ranks, weights, comm
        self.values: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.best: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.shown = {spec: torch.zeros(n_candidates, dtype=torch.int64) for spec in all_}

    def add(self, ids: Tensor, truth: Interactions) -> None:
        judged = judge(ids, truth, self.ranks, self.weights)
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

    def of_all(self) -> dict[str, float]:
        """One value for all queries."""
        shown = {spec: self.comm.sum(counts) for spec, counts in self.shown.items()}
        return {str(spec): float(CATALOG_METRICS[spec.name].value(n)) for spec, n in shown.items()}

    def _gather(self, parts: Sequence[Tensor]) -> Tensor:
        return self.comm.gather(torch.cat([*parts]) if parts else torch.zeros(0))


class GroupTally:
    """A tally of the queries with a positive in a group, judged by the group alone."""

    def __init__(
        self, specs: Sequence[MetricSpec], members: Tensor, weights: Tensor | None, comm: Comm
    ) -> None:
        own = [spec for spec in specs if reads(spec) in ("truth", "propensity")]
        self.tally = Tally(own, 0, weights=weights, comm=comm)
        self.members = members
        self._queries = 0

    def add(self, ids: Tensor, truth: Interactions) -> None:
        truth = within(truth, self.members)
        rows = torch.nonzero(truth.counts() > 0).flatten()
        self.tally.add(ids[rows], truth.select(rows))
        self._queries += len(rows)

    def means(self) -> tuple[int, dict[str, float]]:
        """The number of queries, and their means if there are any."""
        queries = sum_over_ranks(self._queries, self.tally.comm)
        return queries, means_of(self.tally.per_query()) if queries > 0 else {}


class FrequencyGroup(NamedTuple):
    name: str
    members: Tensor  # [N] bool, of the data's candidates
    train_pairs: int


def groups_of(train: TrainCounts) -> list[FrequencyGroup]:
    """Head, torso and tail, and unseen if there are such candidates."""
    counts = train.candidates()
    group = frequency_groups(counts)
    masks = [(name, group == number) for number, name in enumerate(GROUPS)]
    return [
        FrequencyGroup(name, members, int(counts[members].sum()))
        for name, members in masks
        if name != "unseen" or bool(members.any())
    ]


def stratum_of(group: FrequencyGroup, part: GroupTally) -> Stratum:
    candidates = int(group.members.sum())
    return Stratum(group.name, candidates, group.train_pairs, *part.means())


@dataclass(frozen=True, slots=True)
class TrainCounts:
    """Counts in the training pairs of all processes."""

    data: Dataset
    comm: Comm

    def candidates(self) -> Tensor:
        return self.comm.sum(self.data.split("train").candidate_counts())

    def queries(self) -> int:
        return sum_over_ranks(int((self.data.split("train").counts() > 0).sum()), self.comm)


def reads(spec: MetricSpec) -> str:
    return METRICS[spec.name].reads if spec.name in METRICS else "catalog"


def means_of(per_query: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    return {name: float(values.mean(dtype=np.float64)) for name, values in per_query.items()}


def sum_over_ranks(number: int, comm: Comm) -> int:
    return int(comm.sum(torch.tensor(number)))
