"""The metric at points on the paths of ``rg2``, on the validation queries.

The candidates that are best at a few points far apart are the shortlist of a query. At all other
points, of this path and of those for other exponents, only the shortlist is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.kernels.sparse import row_sums
from rankfold.kernels.threads import in_threads
from rankfold.kernels.topk import top_k
from rankfold.methods.closed_form import tail
from rankfold.methods.closed_form.path_grid import RANKS, PathGrid
from rankfold.methods.closed_form.racing import RacingStage, histories_of
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import row_sizes
from rankfold.solvers.neighbours import Neighbours
from rankfold.solvers.path import (
    Mix,
    PathPoint,
    Shortlist,
    Tail,
    factors_of,
    path_scores,
    popularity,
    queries_at_once,
    shortlist,
)
from rankfold.solvers.shards import Shards
from rankfold.solvers.spectral import Decomposition, Target
from rankfold.types import Interactions, Run, TopK

if TYPE_CHECKING:
    from rankfold.methods.closed_form.rg2 import Config

_SHORTEST, _DEPTHS = 64, 3  # candidates of each anchor; at least so many times the metric's depth
_ANCHORS = 3  # at most
_KEPT = 4  # shortlists are kept in this part of the memory budget
_TINY = 1e-30  # of what divides


class Solved(NamedTuple):
    """The solution of one pair of exponents."""

    objective: Objective
    spectrum: Decomposition
    grid: PathGrid


class PathScores:
    """Scores points of solved paths for the queries of each stage."""

    def __init__(
        self,
        rows: Interactions,
        given: Interactions | None,
        counts: Tensor,
        stages: list[RacingStage],
        config: Config,
        run: Run,
        shards: Shards | None,
    ) -> None:
        self.rows, self.given, self.counts, self.stages = rows, given, counts, stages
        self.config, self.run, self.shards = config, run, shards
        self.solved: dict[int, Solved] = {}
        self.spreads: dict[int, Tensor] = {}  # of the factors' scores, for each place
        self.products: dict[tuple[int, int], Tensor] = {}  # by place and stage
        self.lists: dict[tuple[int, int], Shortlist] = {}  # by stage and first query
        # Scores of the factors on the shortlists at each rank, by place, stage and first query.
        self.factors: dict[tuple[int, int, int], dict[int, Tensor]] = {}

    def keep(self, places: Sequence[int]) -> None:
        """Forget all other places."""
        self.products = {key: one for key, one in self.products.items() if key[0] in places}
        self.factors = {key: one for key, one in self.factors.items() if key[0] in places}
        self.solved = {place: self.solved[place] for place in places}

    def measure(self, points: list[PathPoint], stage: int) -> dict[PathPoint, Tensor]:
        """The metric at some points, for the queries of a stage on all processes."""
        ids: dict[PathPoint, dict[int, TopK]] = {point: {} for point in points}
        n, most = self.stages[stage].seen.n_queries, self.queries_at_once
        parts = {point: (self.tau(point), self.mix(point)) for point in points}
        on_path = {
            place: list(same)
            for place, same in groupby(sorted(points), key=lambda point: point.place)
        }
        for place in on_path:  # before the threads: they share these
            self.products_of(place, stage)

        def score(start: int) -> None:
            lists = self.shortlist(min(on_path), stage, start)
            for place, same in on_path.items():
                factors = self.factors_of(lists, place, stage, start)
                for point in same:
                    scores = lists.scores(factors[point.rank], point, *parts[point])
                    ids[point][start] = self.best(lists, scores)

        starts = range(0, n, most)
        if self.shards is None and self.counts.device.type == "cpu":
            in_threads(score, starts)
        else:  # collective calls must have the same order on all processes
            for start in starts:
                score(start)
        return {
            point: self.judged([found[start] for start in starts], stage)
            for point, found in ids.items()
        }

    def best(self, lists: Shortlist, scores: Tensor) -> TopK:
        """The best of a shortlist, this process's candidates."""
        assert self.run.judge is not None
        columns, values = top_k(scores, min(self.run.judge.depth, scores.shape[1]))
        ids = lists.ids.long().gather(1, columns.clamp(min=0))
        return TopK(torch.where(columns >= 0, ids, -1), values)

    def judged(self, parts: list[TopK], stage: int) -> Tensor:
        """The metric's values for the queries of all processes, in the order of one process."""
        assert self.run.judge is not None
        queries, _, own = self.stages[stage]
        values = torch.zeros(0)
        if parts:
            best = TopK(*map(torch.cat, zip(*parts, strict=True)))
            if self.shards is not None:
                best = self.shards.merge(best, min(self.run.judge.depth, len(self.counts)))
            if len(queries) > 0:
                values = self.run.judge.values(queries, best.ids[own])
        return self.run.comm.gather(values)

    def shortlist(self, place: int, stage: int, start: int) -> Shortlist:
        """That of the queries of a block, by one of the paths. It is kept if memory allows."""
        if (stage, start) in self.lists:
            return self.lists[stage, start]
        objective, spectrum, grid = self.solved[place]
        anchors = grid.anchors()
        assert spectrum.vectors is not None
        own, seen = self.block(stage, start)
        products = self.products_of(place, stage)[own]
        root = self.here(objective.candidate_weight.rsqrt())
        scales = {
            discount: (root * self.here(self.counts**-discount)).float()
            for discount in {point.discount for point in anchors}
        }
        values, tails = spectrum.values.to(products.device), None
        if self.has_tail:
            histories = self.histories[stage].part(own.start, own.stop)
            scores = tail.dense_scores(self.neighbours, histories, self.shards)
            powers = {d: self.here(self.counts**-d).float() for d in scales}
            factors = {point: self.mix(point).tail for point in anchors}
            tails = Tail(scores, factors, powers)
        scored = path_scores(
            products, values, spectrum.vectors, anchors, scales, seen, len(products), tails
        )
        ids = [top_k(scores, self.length).ids for _, scores in scored]
        assert self.run.judge is not None
        result = shortlist(
            torch.cat([*ids, self.popular(seen)], dim=1), self.here(self.counts.log()).float(),
            None if tails is None else tails.scores, self.run.judge.depth,
        )  # fmt: skip
        if self.are_kept:
            self.lists[stage, start] = result
        return result

    def factors_of(self, lists: Shortlist, place: int, stage: int, start: int) -> dict[int, Tensor]:
        """The scores of the factors on the shortlists of a block. They are kept as those are."""
        key = (place, stage, start)
        if key in self.factors:
            return self.factors[key]
        objective, spectrum, grid = self.solved[place]
        assert spectrum.vectors is not None
        own, _ = self.block(stage, start)
        products, root = self.products_of(place, stage)[own], objective.candidate_weight.rsqrt()
        values = spectrum.values.to(products.device)
        scale = self.here(root).float()
        result = factors_of(lists, products, values, spectrum.vectors, grid.ranks, scale)
        if self.are_kept:
            self.factors[key] = result
        return result

    def block(self, stage: int, start: int) -> tuple[slice, Interactions]:
        """The places of a block of queries in their stage, and what they may not be given."""
        seen = self.stages[stage].seen
        own = slice(start, min(start + self.queries_at_once, seen.n_queries))
        return own, seen.part(own.start, own.stop).to(self.counts.device)

    def popular(self, seen: Interactions) -> Tensor:
        """The most popular candidates that are not seen; [B, P], -1 where there are fewer."""
        order, rank = self.by_popularity
        longest = int(seen.counts().max()) if seen.n_queries > 0 else 0
        head = order[: self.length + longest]
        scores = -torch.arange(len(head), device=head.device).float().repeat(seen.n_queries, 1)
        ranks = rank[seen.candidates.long()]
        inside = ranks < len(head)
        scores[seen.query_of_pair()[inside].long(), ranks[inside]] = -torch.inf
        best = top_k(scores, self.length).ids
        return head[best.clamp(min=0)].where(best >= 0, -1)

    @cached_property
    def by_popularity(self) -> tuple[Tensor, Tensor]:
        """Candidates of this process, the most popular ones first, and the place of each."""
        order = self.here(self.counts).argsort(descending=True, stable=True)
        return order, order.argsort()

    @cached_property
    def queries_at_once(self) -> int:
        return queries_at_once(self.largest_share, self.run.memory_budget)

    @property
    def length(self) -> int:
        """The number of candidates that an anchor adds."""
        assert self.run.judge is not None
        return max(_SHORTEST, _DEPTHS * self.run.judge.depth)

    @cached_property
    def are_kept(self) -> bool:
        """Whether the shortlists of all stages fit in their part of the memory budget."""
        numbers = len(RANKS) * 2 + 3  # 4 bytes each
        queries = sum(one.seen.n_queries for one in self.stages)
        lists = 4 * numbers * _ANCHORS * min(self.length, self.largest_share)
        return 2 * queries * lists <= self.run.memory_budget // _KEPT

    @property
    def largest_share(self) -> int:
        """The largest number of candidates on a process: all use equal blocks of queries."""
        n = len(self.counts)
        return n if self.shards is None else -(-n // self.shards.comm.size)

    @property
    def has_tail(self) -> bool:
        return self.config.tail != "none" and self.config.tail_weight != 0

    def here(self, numbers: Tensor) -> Tensor:
        """The entries of this process's candidates, from a number per candidate."""
        return numbers if self.shards is None else numbers[self.shards.rows]

    def tau(self, point: PathPoint) -> float:
        values = self.solved[point.place].spectrum.values
        return point.threshold * float(values[point.rank - 1])

    def products_of(self, place: int, stage: int) -> Tensor:
        """T' V for the queries of a stage, of all processes with shards; [B, K]."""
        if (place, stage) not in self.products:
            objective, spectrum, _ = self.solved[place]
            if self.shards is None:
                assert spectrum.vectors is not None
                products = linear(objective, spectrum.vectors, self.histories[stage])
            else:
                queries = self.stages[stage].queries
                products = self.shards.comm.gather(self.divided(objective, spectrum, queries))
            self.products[place, stage] = products
        return self.products[place, stage]

    def divided(self, objective: Objective, spectrum: Decomposition, queries: Tensor) -> Tensor:
        """``linear`` of some queries of this process, where candidates are divided."""
        assert spectrum.vectors is not None
        target = Target(objective, self.run.memory_budget, self.shards)
        products = target.multiply_queries(spectrum.vectors, queries)
        return products / target.pull[queries].clamp(min=_TINY)

    @cached_property
    def histories(self) -> list[Interactions]:
        """The pairs of the queries of each stage; with shards as ``Shards.seen``."""
        parts = histories_of(self.stages, self.rows, self.given)
        return parts if self.shards is None else list(map(self.shards.seen, parts))

    @cached_property
    def neighbours(self) -> Neighbours:
        most, reg = self.config.neighbours, self.config.tail_reg
        table = tail.tail_neighbours(self.rows, self.counts, most, reg, self.run)
        return table if self.shards is not None else Neighbours(*map(self.run.comm.gather, table))

    @cached_property
    def spread(self) -> tail.Spread:
        return tail.Spread(self.rows, self.counts, self.run.comm, self.shards)

    @cached_property
    def spread_of_tail(self) -> float:
        return self.spread.of_tail(self.neighbours)

    @cached_property
    def spread_of_popularity(self) -> float:
        queries = sum_over_ranks(len(self.spread.queries), self.run.comm)
        return queries * float(popularity(self.counts).square().sum())

    def mix(self, point: PathPoint) -> Mix:
        """The factors that give the tail and popularity their relative weights."""
        if point.tail_weight == 0 and point.popularity == 0:
            return Mix(0.0, 0.0)
        objective, spectrum, _ = self.solved[point.place]
        assert spectrum.vectors is not None
        if point.place not in self.spreads:
            if self.shards is None:
                products = linear(objective, spectrum.vectors, self.spread.rows)
            else:
                products = self.divided(objective, spectrum, self.spread.queries)
            root = self.here(objective.candidate_weight.rsqrt())
            parts = self.spread.of_factors(products, spectrum.vectors, root)
            self.spreads[point.place] = parts.cpu()
        values = spectrum.values[: point.rank].cpu()
        shrunk = (1 - point.threshold * values[-1:] / values).clamp(min=0)
        relative = partial(tail.relative_weight, self.spreads[point.place], shrunk)
        return Mix(
            point.tail_weight * relative(self.spread_of_tail) if point.tail_weight > 0 else 0.0,
            point.popularity * relative(self.spread_of_popularity) if point.popularity > 0 else 0.0,
        )


def linear(objective: Objective, vectors: Tensor, rows: Interactions) -> Tensor:
    """T' V for queries with the histories ``rows``, without its factor per query; [B, K].

    With b the candidates' weights and z_y = sqrt(b_y) V_y::

        sum_{y in I_x} r_xy z_y - |I_x|/N sum_y z_y
    """
    scaled = objective.candidate_weight.sqrt().float()[:, None] * vectors
    shares = (row_sizes(rows) / rows.n_candidates).float()[:, None]
    return row_sums(rows, scaled, rows.grades).sub_(shares * scaled.sum(dim=0))
