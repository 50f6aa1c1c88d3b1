"""Several fits of an in-batch method at once, which take every step together.

A step of a small batch is over before a GPU has its next one to start. Here the tables of T fits
are one tensor, and an operation serves all of them. The fits share the method and the batch size
and differ in rate, weight decay and seed.

They are those of ``METHODS[method].fit``: the same first vectors, order of pairs, random numbers,
schedule and Adam, so the same result up to rounding. A test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.quality.quadratic import DEVICE, start
from rankfold.kernels.single_positive import SINGLE_POSITIVE
from rankfold.methods import METHODS
from rankfold.methods.gradient.comparison import sampler_context
from rankfold.methods.gradient.model import make_encoder
from rankfold.samplers.resampling import picks_at
from rankfold.training.loop import seed_of
from rankfold.training.schedules import SCHEDULES
from rankfold.types import Dataset, Model

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
_SCORES = 2**28  # numbers in the scores of a step, at most


class Point(NamedTuple):
    """What distinguishes the fits of a stack."""

    lr: float
    decay: float
    seed: int


def largest(method: str, batch: int) -> int:
    """How many fits a stack may have."""
    pool = 2 * batch if method == "xir" else batch
    return max(1, _SCORES // (batch * pool))


class Stack:
    """T fits of a method, between two epochs."""

    def __init__(
        self, data: Dataset, method: str, batch: int, width: int, points: Sequence[Point]
    ) -> None:
        self.method, self.batch, self.points = method, batch, list(points)
        rows = data.split("train").to(DEVICE)
        self.sizes = rows.n_queries, rows.n_candidates
        self.pairs = rows.query_of_pair().long(), rows.candidates.long()
        self.config: Any = METHODS[method].config(width=width, batch_size=batch)
        self.sampler = sampler_context(rows, self.config)
        self.log_pop = self.sampler.log_pop.to(DEVICE)
        self.runs = {point.seed: start(data, point.seed) for point in points}
        first = {}
        for seed, run in self.runs.items():
            made = make_encoder(data, rows, "tables", width, run)
            first[seed] = torch.cat([made.queries.weight.detach(), made.candidates.weight.detach()])
        self.table = torch.stack([first[point.seed] for point in points])  # [T, M + N, D]
        self.moments = torch.zeros_like(self.table), torch.zeros_like(self.table)
        self.draws = {
            seed: torch.Generator(DEVICE).manual_seed(seed_of(run, "draws"))
            for seed, run in self.runs.items()
        }
        shape = len(points), self.sizes[1]
        self.occurrences = torch.ones(shape, dtype=torch.int64, device=DEVICE)  # of xir
        self.picked = torch.ones(shape, dtype=torch.bool, device=DEVICE)
        self.epochs, self.steps = 0, 0

    def learn(self) -> None:
        """An epoch."""
        count, seeds = len(self.pairs[0]), list(self.runs)
        orders = []
        for run in self.runs.values():
            seed = seed_of(run, f"order of epoch {self.epochs}")
            rng = torch.Generator(DEVICE).manual_seed(seed)
            orders.append(torch.randperm(count, generator=rng, device=DEVICE))
        order = torch.stack(orders)
        place = torch.tensor([seeds.index(point.seed) for point in self.points], device=DEVICE)
        factor = SCHEDULES[self.config.schedule](self.epochs, math.inf)
        rates = self._column([point.lr * factor for point in self.points])
        decays = self._column([point.decay for point in self.points])
        for first in range(0, count, self.batch):
            some = order[:, first : first + self.batch]
            queries, candidates = (side[some][place] for side in self.pairs)
            self._update(self._gradient(queries, candidates, place), rates, decays)
        self.epochs += 1

    def keep(self, places: Sequence[int]) -> None:
        """End the other fits."""
        at = torch.tensor(places, device=DEVICE)
        self.points = [self.points[place] for place in places]
        self.table, self.occurrences, self.picked = (
            one[at] for one in (self.table, self.occurrences, self.picked)
        )
        self.moments = self.moments[0][at], self.moments[1][at]
        left = {point.seed for point in self.points}
        self.runs = {seed: run for seed, run in self.runs.items() if seed in left}

    def model(self, place: int) -> Model:
        queries, candidates = self.table[place].split(self.sizes)
        return Model(self.method, {}, {"queries": queries, "candidates": candidates}, {})

    def state(self) -> dict[str, Tensor]:
        return {
            "table": self.table,
            "moment": self.moments[0],
            "second": self.moments[1],
            "occurrences": self.occurrences,
            "picked": self.picked,
            "numbers": torch.tensor([self.epochs, self.steps]),
            **{f"draws.{seed}": rng.get_state() for seed, rng in self.draws.items()},
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; the points are those of then."""
        names = ("table", "moment", "second", "occurrences", "picked")
        self.table, *moments, self.occurrences, self.picked = (
            state[name].to(DEVICE) for name in names
        )
        self.moments = moments[0], moments[1]
        self.epochs, self.steps = state["numbers"].tolist()
        for seed, rng in self.draws.items():
            rng.set_state(state[f"draws.{seed}"])

    def _column(self, values: list[float]) -> Tensor:
        return torch.tensor(values, device=DEVICE)[:, None, None]

    def _update(self, grad: Tensor, rates: Tensor, decays: Tensor) -> None:
        """Adam with a rate and a decay for each fit."""
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in _BETAS)
        moment, square = self.moments
        grad.addcmul_(self.table, decays)
        moment.lerp_(grad, 1 - _BETAS[0])
        square.mul_(_BETAS[1]).addcmul_(grad, grad, value=1 - _BETAS[1])
        torch.sqrt(square, out=grad)
        grad.add_(_EPSILON * math.sqrt(second)).mul_(-first / math.sqrt(second) / rates)
        self.table.addcdiv_(moment, grad)

    def _gradient(self, queries: Tensor, candidates: Tensor, place: Tensor) -> Tensor:
        """Of the mean loss of each fit's batch; [T, M + N, D]."""
        pool = candidates
        if self.method == "xir":
            pool = torch.cat([pool, self._cache(place)], dim=1)
        size, (n_fits, n_rows, width) = queries.shape[1], self.table.shape
        ids = torch.cat([queries, pool + self.sizes[0]], dim=1)
        ids = ids + n_rows * torch.arange(n_fits, device=DEVICE)[:, None]
        vectors = self.table.view(-1, width).index_select(0, ids.flatten()).requires_grad_()
        own, others = vectors.view(n_fits, -1, width).split([size, pool.shape[1]], dim=1)
        positive, scores = (own * others[:, :size]).sum(dim=2), own @ others.transpose(1, 2)
        losses = self._losses(positive, scores, candidates, pool, place)
        losses.view(n_fits, size).mean(dim=1).sum().backward()
        assert vectors.grad is not None
        grad = torch.zeros_like(self.table).view(-1, width)
        return grad.index_add_(0, ids.flatten(), vectors.grad).view(self.table.shape)

    def _losses(
        self, positive: Tensor, scores: Tensor, candidates: Tensor, pool: Tensor, place: Tensor
    ) -> Tensor:
        """Of each pair; [T x B]."""
        softmax, log_q = SINGLE_POSITIVE["softmax"], self.log_pop[pool]
        size = candidates.shape[1]
        if self.method == "ssl-pop":
            positive, scores = positive - log_q, scores - log_q[:, None]
            others = candidates[:, :, None] != pool[:, None]  # mask = own
            return softmax(positive.flatten(), scores.flatten(0, 1), others.flatten(0, 1))
        draws, share = (
            self.sampler.batch_size,
            self.config.cache_share if self.method == "xir" else 0.0,
        )
        groups = [(slice(size), 1 - share)]
        if self.method == "xir":
            draws = max(draws // 2, 1)
            groups.append((slice(size, None), share))
        total, counts = torch.zeros_like(positive).flatten(), []
        for part, weight in groups:
            logits = scores.detach()[:, :, part] - log_q[:, None, part]
            starts = self._uniforms(size, place, torch.float32)
            weights = logits.softmax(dim=2).flatten(0, 1)
            times = picks_at(weights, draws, starts.view(-1, 1)).view(logits.shape)
            some = scores[:, :, part].flatten(0, 1)
            total = total + weight * softmax(positive.flatten(), some, times.flatten(0, 1))
            counts.append(times.sum(dim=1, dtype=torch.float64).long())
        if self.method == "xir":
            self._observe(pool, torch.cat(counts, dim=1))
        return total

    def _cache(self, place: Tensor) -> Tensor:
        """Candidates in proportion to their occurrences, among those picked in the last step."""
        ends = (self.occurrences * self.picked).double().cumsum(dim=1)
        drawn = self._uniforms(self.sampler.batch_size, place, torch.float64) * ends[:, -1:]
        return torch.searchsorted(ends, drawn, right=True).clamp_(max=self.sizes[1] - 1)

    def _observe(self, pool: Tensor, times: Tensor) -> None:
        new = torch.zeros_like(self.occurrences).scatter_add_(1, pool, times)
        self.occurrences += new
        self.picked = new > 0

    def _uniforms(self, count: int, place: Tensor, dtype: torch.dtype) -> Tensor:
        """Random numbers of each fit, the same for one seed; [T, count]."""
        every = [
            torch.rand(count, generator=self.draws[seed], dtype=dtype, device=DEVICE)
            for seed in self.runs
        ]
        return torch.stack(every)[place]
