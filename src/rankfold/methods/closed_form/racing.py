"""The best of many by the validation queries: the fewer are left, the more queries compare them.

All are measured on a sample. Those that may yet prove better than the best by more than ``GAIN``
are measured on as many queries again, then on twice and on four times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset, sum_over_ranks
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions, Judge

STAGES = (1, 1, 2, 4)  # times the sample
DOUBT = 1.5  # standard errors by which a difference may be wrong
GAIN = 0.01  # of the best score: what is worth measuring on

P = TypeVar("P")


class Stage(NamedTuple):
    """Queries to be ranked, and those of them that this process is to judge."""

    queries: Tensor  # of this process, rows of the data
    seen: Interactions  # candidates not to be returned, of all queries to be ranked
    own: slice  # where the queries of this process stand among these


def stages(judge: Judge, n: int, comm: Comm, shards: Shards | None) -> Iterator[Stage]:
    """About n of the queries, evenly from all, then more from the rest."""
    rest = judge.queries
    for times in STAGES:
        queries = _evenly(rest, times * n, comm)
        if sum_over_ranks(len(queries), comm) == 0:
            return
        rest = rest[~torch.isin(rest, queries)]
        seen, first = judge.hidden(queries), 0
        if shards is not None:  # each process ranks the queries of all
            seen, (first, _) = shards.seen(seen), row_offset(len(queries), comm)
        yield Stage(queries, seen, slice(first, first + len(queries)))


def race(
    points: Iterable[P],
    values: dict[P, list[Tensor]],
    measure: Callable[[list[P], int], dict[P, Tensor]],
    n_stages: int,
) -> P:
    """The best of the points by as many queries as it takes.

    Args:
        points: at least one.
        values: the metric's values in each stage that a point has been in; what is measured is
            added.
        measure: gives them for some points in a stage.
        n_stages: at most so many.
    """
    left = list(points)
    for stage in range(n_stages):
        missing = [point for point in left if len(values.get(point, [])) <= stage]
        for point, found in measure(missing, stage).items() if missing else ():
            values.setdefault(point, []).append(found)
        known = {point: torch.cat(values[point][: stage + 1]) for point in left}
        best = max(left, key=lambda point: mean(known[point])[0])
        worth = GAIN * mean(known[best])[0]
        leads = {point: mean(known[best] - known[point]) for point in left}
        chance = {point: DOUBT * error - lead for point, (lead, error) in leads.items()}
        left = [point for point in left if point == best or chance[point] > worth]
        if len(left) == 1:
            break
    return best


def mean(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    spread = float(values.double().std()) if len(values) > 1 else 0.0
    return float(values.double().mean()), spread / len(values) ** 0.5


def _evenly(queries: Tensor, n: int, comm: Comm) -> Tensor:
    """About n of the queries of all processes: those that are here."""
    before, total = row_offset(len(queries), comm)
    step = max(1, total // n)
    return queries[(step // 2 - before) % step :: step]
