"""The global optimum of a separable quadratic objective: a truncated singular value decomposition.

With weights W_xy = a_x b_y and regularisers in proportion to them, the minimiser of every rank and
every regularisation is the soft-thresholded SVD of one matrix that is sparse plus rank one. Block
Krylov iteration computes it by products with the matrix alone.

Each of several processes multiplies the rows of its own queries, and a pass ends with one sum of
its block of columns over all processes. Each computes the rest from that sum by itself; small
decompositions, whose signs may differ between machines, are broadcast by the first. With ``Shards``
a process has only some rows of the candidates, and inner products of columns are summed as well.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks
from rankfold.kernels.sparse import Blocks, PairBlocks, pair_runs, row_sums
from rankfold.kernels.threads import in_threads, inner, product, summed
from rankfold.objectives.quadratic import Objective
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions

_MAX_SPACE = 6  # times the width: the size at which an unconverged iteration ends


class Target:
    """T' = diag(1/sqrt a) (l 1^T + diag(pull) R) diag(sqrt b): the matrix to decompose; [M, N].

    Its best approximation of rank D gives the objective's minimiser. It is never formed.
    """

    def __init__(
        self, objective: Objective, memory_budget: int, shards: Shards | None = None
    ) -> None:
        if objective.extra or objective.centre or objective.cross:
            raise ValueError("only an objective without extra, centre and cross is separable")
        self._rows, self._memory_budget = objective.rows, memory_budget
        self.comm, self.shards = objective.comm, shards
        root = objective.query_weight.clamp(min=0).sqrt()
        inverse = torch.where(root > 0, 1 / root, 0.0)
        self.pull = (objective.pull * inverse).float()[:, None]
        self.line = (objective.background * inverse).float()[:, None]
        whole = objective.candidate_weight.sqrt().float()[:, None]  # sqrt b
        self.root = whole if shards is None else whole[shards.rows]

    @cached_property
    def pairs(self) -> Blocks:
        return Blocks(self._rows, self._memory_budget)

    @property
    def is_zero(self) -> bool:
        """Whether every query chose all or nothing, so that its pull and its line cancel."""
        counts = self._rows.counts()
        whole = counts == self._rows.n_candidates
        rest = (self.pull + self.line).abs()[:, 0] <= 1e-6 * self.pull.abs()[:, 0]
        zero = bool(((counts == 0) | (whole & rest)).all()) and self._rows.grades is None
        return count_over_ranks(0 if zero else 1, self.comm) == 0

    @property
    def shape(self) -> tuple[int, int]:
        """The number of all queries and candidates."""
        return count_over_ranks(len(self.pull), self.comm), self._rows.n_candidates

    def multiply_queries(self, vectors: Tensor, queries: Tensor) -> Tensor:
        """T' V for some queries of this process; [B, K]."""
        if self.shards is not None:
            return self._sharded(vectors)[queries]
        return self.times(vectors, self._rows.select(queries), queries)

    def times(self, vectors: Tensor, rows: Interactions, queries: slice | Tensor) -> Tensor:
        """T' V for some queries; [B, K]."""
        scaled = self.root * vectors
        sums = row_sums(rows, scaled, rows.grades)
        return self.pull[queries] * sums + self.line[queries] * scaled.sum(dim=0)

    def normal(self, vectors: Tensor) -> Tensor:
        """T'^T T' V, block by block of queries or of candidates; [N, K]."""
        if self.shards is not None:
            product = self._sharded(vectors)
            line = self.comm.sum((self.line * product).sum(dim=0, dtype=torch.float64))
            total = self.shards.spread(product.mul_(self.pull))
            return self.root * (total + line.to(total.dtype))
        total, scaled = torch.zeros_like(vectors), self.root * vectors
        line = torch.zeros(vectors.shape[1], dtype=torch.float64, device=vectors.device)
        for block in self.pairs:
            line += self._add_block(block, scaled, total)
        total, line = self.comm.sum(total), self.comm.sum(line)
        return total.add_(line.to(total.dtype)).mul_(self.root)

    def _add_block(self, block: PairBlocks, scaled: Tensor, total: Tensor) -> Tensor:
        """Add R^T diag(pull) T' V of some queries to ``total``. Returns line^T T' V, [K]."""
        whole, first = scaled.sum(dim=0), block.queries.start
        weighted = scaled.new_empty(block.rows.n_queries, scaled.shape[1])

        def to_queries(run: tuple[int, int]) -> Tensor:
            own, rows = slice(first + run[0], first + run[1]), block.rows.part(*run)
            product = self.pull[own] * row_sums(rows, scaled, rows.grades)
            product.addcmul_(self.line[own], whole)
            torch.mul(product, self.pull[own], out=weighted[slice(*run)])
            return product.mul_(self.line[own]).sum(dim=0, dtype=torch.float64)

        def to_candidates(run: tuple[int, int]) -> None:
            columns = block.columns.part(*run)
            total[slice(*run)] += row_sums(columns, weighted, columns.grades)

        line = summed(to_queries, pair_runs(block.rows))
        in_threads(to_candidates, pair_runs(block.columns))
        return line

    def _sharded(self, vectors: Tensor) -> Tensor:
        """T' V for all queries of this process; [M, K]."""
        assert self.shards is not None
        scaled = self.root * vectors
        whole = self.comm.sum(scaled.sum(dim=0))
        return self.pull * self.shards.sums(scaled) + self.line * whole

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        """left^T right over all candidates, the same on all processes."""
        here = inner(left, right)
        return self.comm.broadcast(here) if self.shards is None else self.comm.sum(here)

    def norm(self, columns: Tensor) -> Tensor:
        """The Frobenius norm over all candidates, the same on all processes."""
        length = columns.norm()
        if self.shards is None:
            return self.comm.broadcast(length)
        return self.comm.sum(length**2).sqrt()

    def start(self, width: int, rng: torch.Generator) -> Tensor:
        """Random columns, the rows of this process."""
        device = self.root.device
        if self.shards is not None:
            return self.shards.start(width, rng, device)
        return torch.randn(len(self.root), width, generator=rng).to(device)

    def own(self, table: Tensor) -> Tensor:
        """The rows of this process, from a table that may have been divided in another way."""
        if len(table) == len(self.root):
            return table
        whole = table if len(table) == self._rows.n_candidates else self.comm.gather(table)
        return whole if self.shards is None else whole[self.shards.rows]


def expected_share(columns: int, width: int) -> float:
    """The approximate progress of a decomposition whose space has so many columns."""
    return min(0.95, columns / (2.5 * width))


class Decomposition(NamedTuple):
    """The largest singular values and right singular vectors, as far as they are known."""

    values: Tensor  # sigma [K], descending
    vectors: Tensor | None  # V [N, K]; None before the last pass
    residual: float  # |T'^T T' V - V sigma^2| / |sigma^2|, Frobenius norms; 1 where not measured
    columns: int  # of the Krylov space
    state: dict[str, Tensor]  # ``decompose`` resumes from it


def decompose(
    target: Target,
    width: int,
    rng: torch.Generator,
    *,
    tolerance: float,
    resume: Mapping[str, Tensor] | None = None,
) -> Iterator[Decomposition]:
    """Block Krylov iteration on T'^T T', a decomposition per pass, until the residual is small.

    Every pass multiplies a block of columns and adds the part of the product that lies outside the
    space to it. Once the space is twice as wide as requested, it takes the best vectors in the
    space (Rayleigh-Ritz on the candidates' side); [musco2015]. Their residual is the part of the
    last product that lies outside. The iteration ends when the residual is at most ``tolerance``,
    when the space is exhausted, or at ``_MAX_SPACE`` times the width.

    A matrix of smaller rank gives fewer than ``width`` columns.
    """
    shape = target.shape
    n, width = shape[1], min(width, *shape)
    block = min(max(16, width // 4), n)
    largest = max(_MAX_SPACE * width // block, 4) * block
    space = _Space(target, min(n, largest))
    if target.is_zero:
        yield space.decomposition(width, outside=None)
        return
    outside = target.normal(target.start(block, rng)) if resume is None else space.load(resume)
    while True:
        fresh = orthonormal(outside, space.columns, space.floor, target)[:, : space.room]
        if fresh.shape[1] == 0:
            yield space.decomposition(width, outside=None)
            return
        outside = space.add(fresh, target.normal(fresh))
        if space.size < min(2 * width, space.largest):
            nothing = outside.new_empty(0)
            yield Decomposition(nothing, None, 1.0, space.size, space.state(outside))
            continue
        result = space.decomposition(width, outside)
        if result.residual <= tolerance or space.room == 0:
            yield result._replace(state={})  # the space is no longer needed
            return
        yield result._replace(vectors=None)


class _Space:
    """A growing orthonormal basis, and T'^T T' projected on it."""

    def __init__(self, target: Target, largest: int) -> None:
        self.largest, self.size, self.last, self.target = largest, 0, 0, target
        device = target.root.device
        self._basis = torch.empty(len(target.root), largest, device=device)
        self._projected = torch.zeros(largest, largest, dtype=torch.float64, device=device)

    @property
    def room(self) -> int:
        return self.largest - self.size

    @property
    def floor(self) -> float:
        """The length below which a part outside the space is rounding."""
        return 1e-5 * float(self._projected.diagonal().max())

    @property
    def columns(self) -> Tensor:
        return self._basis[:, : self.size]

    def add(self, fresh: Tensor, image: Tensor) -> Tensor:
        """Add ``fresh`` and its product. Returns the part of the product outside the space."""
        new = slice(self.size, self.size + fresh.shape[1])
        self._basis[:, new] = fresh
        self.last, self.size = fresh.shape[1], new.stop
        projections = self.target.inner(self.columns, image)
        self._projected[: self.size, new] = projections.double()
        self._projected[new, : self.size] = projections.double().T
        return product(self.columns, projections, out=image, alpha=-1)

    def decomposition(self, width: int, outside: Tensor | None) -> Decomposition:
        """The best vectors in the space. Their residual is the part outside of it."""
        values, basis = _ritz(self._projected[: self.size, : self.size], width, self.target.comm)
        residual = 0.0
        if outside is not None:
            rest = product(outside, basis[self.size - self.last :].to(outside.dtype))
            residual = float(self.target.norm(rest) / (values**2).norm().clamp(min=1e-30))
        vectors = product(self.columns, basis.to(self._basis.dtype))
        state = {} if outside is None else self.state(outside)
        return Decomposition(values.float(), vectors, residual, self.size, state)

    def state(self, outside: Tensor) -> dict[str, Tensor]:
        projected = self._projected[: self.size, : self.size]
        return {"space": self.columns, "projected": projected, "outside": outside}

    def load(self, state: Mapping[str, Tensor]) -> Tensor:
        self.size = len(state["projected"])
        self.columns.copy_(self.target.own(state["space"]))
        self._projected[: self.size, : self.size] = state["projected"].to(self._projected)
        return self.target.own(state["outside"]).to(self._basis)


def _ritz(projected: Tensor, width: int, comm: Comm) -> tuple[Tensor, Tensor]:
    values, basis = _eigh((projected + projected.T) / 2, comm)
    values, basis = values.flip(0)[:width], basis.flip(1)[:, :width]
    kept = values > 1e-12 * values[:1]
    return values[kept].clamp(min=0).sqrt(), basis[:, kept]


def _eigh(matrix: Tensor, comm: Comm) -> tuple[Tensor, Tensor]:
    """Eigenvalues and basis of a symmetric matrix, the same on all processes."""
    values, basis = torch.linalg.eigh(matrix)
    return comm.broadcast(values), comm.broadcast(basis)


def orthonormal(
    columns: Tensor, space: Tensor, floor: float = 0.0, target: Target | None = None
) -> Tensor:
    """Orthonormal columns that span the part of the given ones outside the space.

    Directions shorter than ``floor`` are rounding and left out. A block with nearly dependent
    columns is orthogonalised again, because dividing by small numbers magnifies the rounding.
    """
    inner_of = inner if target is None else target.inner
    comm = SINGLE_PROCESS if target is None else target.comm
    while True:
        columns = columns - product(space, inner_of(space, columns))
        gram = inner_of(columns, columns).double()
        lengths = gram.diagonal().sqrt()
        kept = lengths > floor
        lengths = lengths[kept]
        values, basis = _eigh(gram[kept][:, kept] / torch.outer(lengths, lengths), comm)
        good = values > 1e-6
        turn = basis[:, good] * values[good].rsqrt() / lengths[:, None]
        columns = product(columns[:, kept], turn.to(columns.dtype))
        if len(values) == 0 or values[0] > 1e-2:
            return columns
        floor = 0.5
