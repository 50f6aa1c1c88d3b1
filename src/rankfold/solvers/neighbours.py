"""The strongest co-occurrences of each candidate: a sparse matrix, candidates by candidates.

With R the pairs, w a weight per query and s a factor per candidate::

    G = diag(s) R^T diag(w) R diag(s), its diagonal set to 0

Each row keeps its largest entries. G is computed some rows at a time and never held. The work is
one product for each two pairs of a query, so very active queries dominate it: ``thinned`` bounds
them.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.kernels.sparse import blocks, csr, transposed
from rankfold.kernels.threads import in_threads, n_threads
from rankfold.types import Comm, Interactions

MIN_PRODUCTS, PRODUCTS_PER_PAIR = 2**28, 16  # the larger bound applies
_PRODUCT_BYTES = 64  # allocated for each product of a block, at most
_BLOCKS = 64  # of rows, at least, if there are as many
_PAIRS = 2**24  # read at a time
_SHORTEST = 32  # entries of the shortest rows that are ranked together


class Neighbours(NamedTuple):
    """Entries of each row of a sparse matrix: those of ``neighbours`` in descending order."""

    ids: Tensor  # [N, L] int32
    weights: Tensor  # [N, L] float32; 0 where a row has fewer, with any id


def neighbours(
    rows: Interactions,
    query_weight: Tensor,
    scale: Tensor,
    most: int,
    *,
    memory_budget: int = 2**30,
    comm: Comm = SINGLE_PROCESS,
) -> Neighbours:
    """The ``most`` largest entries of each row of G.

    Each of several processes has the pairs of its own queries, and gets the rows of G of its share
    of the candidates.

    Args:
        rows: R, [M, N], with grades as its entries if it has any.
        query_weight: w, [M].
        scale: s, [N].
        most: at least 1; fewer if there are fewer candidates.
        memory_budget: bytes for the blocks.
        comm: the processes.
    """
    n, device = rows.n_candidates, rows.candidates.device
    most = min(most, max(1, n - 1))
    columns = transposed(rows, memory_budget)
    factor = scale.float()
    first, last = comm.share(n)
    ids = torch.zeros(last - first, most, dtype=torch.int32, device=device)
    weights = torch.zeros(last - first, most, device=device)

    def work(bounds: tuple[int, int]) -> None:
        start, stop = bounds
        part = columns.part(start, stop)
        left = query_weight.float()[part.candidates.long()] * part.all_grades()
        counts, others, values = _entries(replace(part, grades=left), rows)
        if comm.size > 1:
            counts, others, values = _summed_over_ranks(counts, others, values, n, comm)
        own = range(max(start, first), min(stop, last))
        if len(own) == 0:
            return
        before, until = (int(counts[: end - start].sum()) for end in (own[0], own[-1] + 1))
        counts, others = counts[own[0] - start : own[-1] + 1 - start], others[before:until]
        row = torch.repeat_interleave(torch.tensor(own, device=device), counts)
        values = values[before:until] * factor[others]
        values[others == row] = 0.0
        here = slice(own[0] - first, own[-1] + 1 - first)
        _keep_largest(counts, others, values, ids[here], weights[here])
        weights[here] *= factor[own[0] : own[-1] + 1, None]

    runs = _runs(rows, columns, memory_budget, comm)
    if comm.size > 1 or device.type != "cpu":  # collective calls have one order on all processes
        for run in runs:
            work(run)
    else:
        in_threads(work, runs)
    return Neighbours(ids, weights)


def gram_diagonal(
    rows: Interactions, query_weight: Tensor, scale: Tensor, comm: Comm = SINGLE_PROCESS
) -> Tensor:
    """The diagonal of G before it is set to 0, [N] float64; arguments as of ``neighbours``."""
    total = torch.zeros(rows.n_candidates, dtype=torch.float64, device=rows.offsets.device)
    for start, stop in blocks(rows, rows.n_queries, _PAIRS):
        part = rows.part(start, stop)
        weight = query_weight[start:stop].double().repeat_interleave(part.counts())
        total.index_add_(0, part.candidates.long(), weight * part.all_grades().double() ** 2)
    return comm.sum(total) * scale.double() ** 2


def neighbours_reference(
    rows: Interactions, query_weight: Tensor, scale: Tensor, most: int
) -> Neighbours:
    """The same from a dense G."""
    dense = csr(rows, rows.all_grades().double(), torch.float64).to_dense()
    gram = dense.T @ (query_weight.double()[:, None] * dense) * torch.outer(scale, scale).double()
    gram.fill_diagonal_(0.0)
    top = gram.topk(min(most, max(1, len(gram) - 1)), dim=1)
    return Neighbours(top.indices.int(), top.values.float())


def thinned(
    rows: Interactions, rng: torch.Generator, comm: Comm = SINGLE_PROCESS
) -> tuple[Interactions, Tensor]:
    """Fewer pairs of very active queries, and the weight of each query that makes up for them.

    A query with more than H pairs keeps each with the probability H / |I_x|, and its weight is
    (|I_x| / H)^2: two of its pairs are counted with the right weight in expectation. H is as large
    as ``MIN_PRODUCTS`` and ``PRODUCTS_PER_PAIR`` allow. Other queries keep all, with weight 1.
    """
    sizes = rows.counts()
    longest = _longest_history(sizes, comm)
    weight = (sizes / longest).clamp(min=1.0) ** 2
    if not bool((sizes > longest).any()):
        return rows, weight
    share = (longest / sizes.clamp(min=1)).clamp(max=1.0)
    parts = []
    for start, stop in blocks(rows, rows.n_queries, _PAIRS):
        part = rows.part(start, stop)
        drawn = torch.rand(part.n_pairs, generator=rng).to(share.device)
        parts.append(part.keep(drawn < share[start:stop].repeat_interleave(part.counts())))
    counts = torch.cat([part.counts() for part in parts])
    candidates = torch.cat([part.candidates for part in parts])
    grades = None if rows.grades is None else torch.cat([part.all_grades() for part in parts])
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return Interactions(offsets, candidates, grades, rows.n_candidates), weight


def _longest_history(sizes: Tensor, comm: Comm) -> int:
    """The largest H with sum_x min(|I_x|, H)^2 within the bound on products."""
    bound = max(MIN_PRODUCTS, PRODUCTS_PER_PAIR * int(comm.sum(sizes.sum().double())))
    low, high = 1, max(1, int(comm.gather(sizes.max()[None] if len(sizes) else sizes).max()))
    while low < high:
        middle = (low + high + 1) // 2
        products = comm.sum((sizes.clamp(max=middle).double() ** 2).sum())
        low, high = (middle, high) if float(products) <= bound else (low, middle - 1)
    return low


def _runs(
    rows: Interactions, columns: Interactions, memory_budget: int, comm: Comm
) -> list[tuple[int, int]]:
    """Start and stop of runs of candidates whose products fit in the memory budget."""
    sizes = rows.counts().double()
    products = torch.zeros(columns.n_queries, dtype=torch.float64, device=sizes.device)
    for start, stop in blocks(columns, columns.n_queries, _PAIRS):
        part = columns.part(start, stop)
        products[start:stop].index_add_(
            0, part.query_of_pair().long(), sizes[part.candidates.long()]
        )
    total = torch.cat([products.new_zeros(1), comm.sum(products).cumsum(0)]).long()
    most = memory_budget // 2 // (_PRODUCT_BYTES * n_threads())
    most = max(1, min(most, int(total[-1]) // _BLOCKS))
    return list(blocks(Interactions(total, columns.candidates, None, 0), columns.n_queries, most))


def _entries(left: Interactions, rows: Interactions) -> tuple[Tensor, Tensor, Tensor]:
    """The number of entries of each row of L R, their columns and values; L has few of the queries.

    A product of two matrices in rows is twice as fast on a CPU, but loses memory in each call.
    """
    queries, place = left.candidates.unique(return_inverse=True)
    some = rows.select(queries.long())
    narrow = Interactions(left.offsets, place, left.grades, len(queries))
    factors = csr(narrow, left.grades), csr(some, some.all_grades())
    product = torch.sparse.mm(*(factor.to_sparse_coo() for factor in factors)).coalesce()
    (row, columns), values = product.indices(), product.values()
    return torch.bincount(row, minlength=left.n_queries), columns, values


def _summed_over_ranks(
    counts: Tensor, columns: Tensor, values: Tensor, n: int, comm: Comm
) -> tuple[Tensor, Tensor, Tensor]:
    """The entries of the sum of all processes' products."""
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    codes, place = comm.gather(rows * n + columns).unique(return_inverse=True)
    total = torch.zeros(len(codes), device=values.device)
    total.index_add_(0, place, comm.gather(values))
    return torch.bincount(codes // n, minlength=len(counts)), codes % n, total


def _keep_largest(
    counts: Tensor, columns: Tensor, values: Tensor, ids: Tensor, weights: Tensor
) -> None:
    """Write the largest entries of each row: rows of similar lengths at a time, padded."""
    first, most = counts.cumsum(0) - counts, ids.shape[1]
    shortest, longest = 0, _SHORTEST
    while shortest < int(counts.max() if len(counts) else 0):
        rows = ((counts > shortest) & (counts <= longest)).nonzero()[:, 0]
        for some in rows.split(max(1, 2**22 // longest)):
            offset = torch.arange(longest, device=counts.device)
            place = (first[some, None] + offset).clamp(max=len(values) - 1)
            padded = values[place].where(offset < counts[some, None], 0.0)
            top = padded.topk(min(most, longest), dim=1)
            width = top.values.shape[1]
            weights[some, :width] = top.values
            ids[some, :width] = columns[place.gather(1, top.indices)].int()
        shortest, longest = longest, 2 * longest
