"""The search for the settings of ``ease``.

The scores of a point are measured without its matrix: for the histories of the validation queries a
linear system is solved by conjugate gradients. That system depends on four settings. The other two,
``diagonal`` and ``discount``, multiply the column of each candidate, so all their values are
measured from one solution.

From a start, each of the four settings moves to a neighbouring value while the score rises. The
points race on the validation queries (``racing.py``). The mean of those that cannot be
distinguished is taken.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold.methods.closed_form.racing import (
    choice_notes,
    choose,
    histories_of,
    mean,
    measure_scores,
    race,
    stages,
)
from rankfold.solvers.progress import Work, part
from rankfold.solvers.ridge import Gram, inverse_diagonal, solve
from rankfold.types import Interactions, Judge, Run


class EasePoint(NamedTuple):
    """The settings that make a model."""

    query_exponent: float
    candidate_exponent: float
    reg: float
    candidate_reg: float
    diagonal: float
    discount: float


DEFAULTS = EasePoint(-0.125, 0.25, 10.0, 0.0, 0.0, 0.1)  # and the start of the search
GRIDS: Mapping[str, tuple[float, ...]] = {
    "reg": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    "candidate_exponent": (0.0, 0.125, 0.25, 0.375, 0.5),
    "query_exponent": (-0.5, -0.25, -0.125, 0.0),
    "candidate_reg": (0.0, 1.0, 3.0),
    "diagonal": (0.0, 0.1, 1.0),
    "discount": (0.0, 0.1, 0.2, 0.3),
}
_ORDER = ("reg", "candidate_exponent", "query_exponent", "candidate_reg", "reg")
_SYSTEM = 4  # the settings of a point that its system depends on come first
_PROBES = 256  # for the diagonal of an inverse
_UPHILL_STAGES, _UPHILL = 2, 0.4  # of the queries; of the time
_FINALISTS = 3  # systems that are compared on more queries
_MOST_QUERIES = 128  # at a time: blocks of more leave the cache


class System(NamedTuple):
    """A = G + diag(shift), with the counts of candidates that make G."""

    gram: Gram
    shift: Tensor  # [N]
    counts: Tensor  # of candidates, at least 1; [N]

    def columns(self, point: EasePoint, diagonal: Tensor) -> Tensor:
        """The factors of the columns of A^-1; [N]. ``diagonal`` [N] is that of A^-1.

        It is -max(shift, (1 - xi) / P_jj) c_j^(beta - d): with it no candidate has a larger weight
        for itself than xi (before the powers of counts), and those with a smaller one keep it.
        """
        scale = torch.maximum(self.shift, (1 - point.diagonal) / diagonal)
        return -scale * self.counts ** (point.candidate_exponent - point.discount)


def system_of(rows: Interactions, columns: Interactions, point: EasePoint) -> System:
    """The system of a point. ``columns`` are ``rows`` by candidate."""
    counts = columns.counts().clamp(min=1).float()
    weight = rows.counts().clamp(min=1).float() ** (2 * point.query_exponent)
    gram = Gram(rows, columns, weight, counts**-point.candidate_exponent)
    own = gram.diagonal
    shift = point.reg * own.mean().clamp(min=1e-30) + point.candidate_reg * own
    return System(gram, shift, counts)


class SettingsSearch:
    """Measures points on the validation queries and finds the best one."""

    def __init__(
        self,
        rows: Interactions,
        given: Interactions | None,
        fixed: Mapping[str, float],
        n_queries: int,
        judge: Judge,
        run: Run,
    ) -> None:
        """``fixed`` settings are not searched. ``given`` are histories that are not in ``rows``."""
        self.rows, self.columns, self.run, self.judge = rows, rows.transpose(), run, judge
        self.fixed = dict(fixed)
        self.stages = list(stages(judge, n_queries, run.comm, None))
        self.histories = histories_of(self.stages, rows, given)
        self.values: dict[EasePoint, list[Tensor]] = {}  # of the metric, a tensor for each stage
        self.diagonals: dict[tuple[float, ...], Tensor] = {}  # estimates, of each system

    def best(self) -> Work[EasePoint]:
        point, names = DEFAULTS._replace(**self.fixed), [n for n in _ORDER if n not in self.fixed]
        for place, name in enumerate(names):
            own = _UPHILL * place / len(names), _UPHILL * (place + 1) / len(names)
            point = yield from part(self.uphill(point, name), *own)
        points = self.finalists() or self.variants(point)
        work = choose(points, self.values, self.measure, len(self.stages), middle)
        return (yield from part(work, _UPHILL if names else 0, 1))

    def finalists(self) -> list[EasePoint]:
        """The points of the best systems so far."""
        most = max(map(len, self.values.values()), default=0)
        known = [point for point, values in self.values.items() if len(values) == most]
        known.sort(key=lambda point: -mean(torch.cat(self.values[point]))[0])
        systems = list(dict.fromkeys(point[:_SYSTEM] for point in known))[:_FINALISTS]
        return [point for point in known if point[:_SYSTEM] in systems]

    def uphill(self, best: EasePoint, name: str) -> Work[EasePoint]:
        """The best point with neighbouring values of one setting, until no neighbour is better."""
        grid, tried, n_races = GRIDS[name], set[float](), 0  # how many follow is not known
        while True:
            place = grid.index(getattr(best, name))
            near = set(grid[max(0, place - 1) : place + 2])
            if near <= tried:
                return best
            tried |= near
            options = [best._replace(**{name: value}) for value in sorted(tried)]
            points = [variant for option in options for variant in self.variants(option)]
            n_stages = min(_UPHILL_STAGES, len(self.stages))
            first, last = (1 - 0.5**races for races in (n_races, n_races + 1))
            work = race(points, self.values, self.measure, n_stages)
            best, n_races = next(iter((yield from part(work, first, last)))), n_races + 1

    def variants(self, point: EasePoint) -> list[EasePoint]:
        """The points that share a system with this one."""
        diagonals, discounts = (
            (self.fixed[name],) if name in self.fixed else GRIDS[name]
            for name in ("diagonal", "discount")
        )
        return [
            point._replace(diagonal=diagonal, discount=discount)
            for diagonal, discount in product(diagonals, discounts)
        ]

    def measure(self, points: list[EasePoint], stage: int) -> dict[EasePoint, Tensor]:
        """The metric at some points, for the queries of a stage."""
        n_numbers = 8 * self.rows.n_candidates + 2 * self.rows.n_queries
        most = max(1, min(_MOST_QUERIES, self.run.memory_budget // (4 * n_numbers)))

        def scores(some: Sequence[EasePoint], own: slice) -> Iterator[tuple[EasePoint, Tensor]]:
            histories = self.histories[stage].part(own.start, own.stop)
            for _, same in groupby(sorted(some), key=lambda point: point[:_SYSTEM]):
                similar = list(same)
                system = system_of(self.rows, self.columns, similar[0])
                solved = solutions(system, histories)
                diagonal = self.diagonal(similar[0], system)
                for point in similar:
                    yield point, solved * system.columns(point, diagonal)

        return measure_scores(self.judge, self.stages[stage], points, most, scores)

    def diagonal(self, point: EasePoint, system: System) -> Tensor:
        """The diagonal of the inverse, estimated."""
        if point[:_SYSTEM] not in self.diagonals:
            rng = torch.Generator().manual_seed(self.run.rng.initial_seed())
            estimate = inverse_diagonal(system.gram, system.shift, _PROBES, rng)
            self.diagonals[point[:_SYSTEM]] = estimate
        return self.diagonals[point[:_SYSTEM]]

    def notes(self, point: EasePoint) -> dict[str, Any]:
        return choice_notes(self.values, point, EasePoint._asdict)


def solutions(system: System, histories: Interactions) -> Tensor:
    """Of histories x, the rows x diag(s) A^-1; [B, N]."""
    block = system.gram.scale.new_zeros(system.gram.rows.n_candidates, histories.n_queries)
    chosen = histories.candidates.long()
    block[chosen, histories.query_of_pair().long()] = system.gram.scale[chosen]
    return solve(system.gram, system.shift, block).T.contiguous()


def middle(weights: Mapping[EasePoint, float]) -> EasePoint:
    """The weighted mean of points: of ``reg`` geometrically."""
    total = sum(weights.values())

    def mean_of(place: int) -> float:
        values = {point[place]: weight for point, weight in weights.items()}
        if len(values) == 1:
            return next(iter(values))
        is_reg = EasePoint._fields[place] == "reg"
        powers = [math.log(point[place]) if is_reg else point[place] for point in weights]
        result = sum(w * x for w, x in zip(weights.values(), powers, strict=True)) / total
        return round(math.exp(result) if is_reg else result, 3)

    return EasePoint(*map(mean_of, range(len(EasePoint._fields))))
