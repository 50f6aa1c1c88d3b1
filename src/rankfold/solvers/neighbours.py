"""The strongest co-occurrences of each candidate: a sparse matrix, candidates by candidates.

With R the pairs, w a weight per query and s a factor per candidate::

    G = diag(s) R^T diag(w) R diag(s), its diagonal set to 0

Each row keeps its largest entries. G is computed some rows at a time and never held. The work is
one product for each two pairs of a query, so very active queries dominate it: ``thinned`` bounds
them.

Row, column and value of a product share one integer, its key. Sorted keys have the products of an
entry side by side, whatever the number of candidates is. An order by row, value and column then
ends each row with its largest entries.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.kernels.sparse import blocks, csr, transposed
from rankfold.kernels.threads import in_threads
from rankfold.types import Comm, Interactions, offsets_of

MIN_PRODUCTS, PRODUCTS_PER_PAIR = 2**28, 16  # the larger bound applies
_PRODUCT_BYTES = 64  # allocated for each product of a block, at most
_BLOCK_PRODUCTS, _MOST_PRODUCTS = {"cpu": 2**18}, 2**26  # by device, for its cache; others
_PAIRS = 2**24  # read at a time
_CHUNK = 8  # pairs of a query that are copied at a time; 1 where they exceed the budget
_FLOAT_BITS = 31  # of a float32 that is not negative; such floats are ordered as their bits


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
        rows: R, [M, N], with grades above 0 as its entries if it has any.
        query_weight: w, [M].
        scale: s, [N].
        most: at least 1; fewer if there are fewer candidates.
        memory_budget: bytes for the blocks.
        comm: the processes.
    """
    n, device = rows.n_candidates, rows.candidates.device
    most = min(most, max(1, n - 1))
    columns, bits = transposed(rows, memory_budget), n.bit_length()
    chunks = _chunked(rows, 1 if 8 * rows.n_pairs > memory_budget else _CHUNK)
    query_weight, factor = query_weight.float(), scale.float()
    fill = factor.new_zeros(1)  # of the chunks
    at_once = _BLOCK_PRODUCTS.get(device.type, _MOST_PRODUCTS)
    at_once = max(1, min(at_once, memory_budget // 2 // _PRODUCT_BYTES))
    first, last = comm.share(n)
    ids = torch.zeros(last - first, most, dtype=torch.int32, device=device)
    weights = torch.zeros(last - first, most, device=device)

    def work(bounds: tuple[int, int]) -> None:
        start, stop = bounds
        part = columns.part(start, stop)
        left = query_weight[part.candidates.long()] * part.all_grades()
        entries = _entries(replace(part, grades=left), chunks, bits, at_once)
        if comm.size > 1:
            entries = _summed(comm.gather(_keys(*entries)))
        codes, values = entries
        own = range(max(start, first), min(stop, last))
        if len(codes) == 0 or len(own) == 0:
            return
        here = torch.arange(own.start, own.stop, device=device)
        row, column = codes >> bits, codes & (1 << bits) - 1
        values = values * torch.cat([factor, fill])[column]
        values[column == row + start] = 0.0
        found = _largest(row, column, values, bits, here - start, most)
        ids[here - first] = found.ids
        weights[here - first] = found.weights * factor[here, None]

    runs = _runs(rows, columns, at_once, comm)
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
    offsets = offsets_of(counts)
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
    rows: Interactions, columns: Interactions, most: int, comm: Comm
) -> list[tuple[int, int]]:
    """Start and stop of runs of candidates with at most so many products, or of one candidate."""
    sizes = rows.counts().double()
    products = torch.zeros(columns.n_queries, dtype=torch.float64, device=sizes.device)
    for start, stop in blocks(columns, columns.n_queries, _PAIRS):
        part = columns.part(start, stop)
        products[start:stop].index_add_(
            0, part.query_of_pair().long(), sizes[part.candidates.long()]
        )
    total = torch.cat([products.new_zeros(1), comm.sum(products).cumsum(0)]).long()
    most_rows = 2 ** (63 - _FLOAT_BITS - rows.n_candidates.bit_length())  # of a key
    return list(blocks(Interactions(total, columns.candidates, None, 0), most_rows, most))


class _Chunks(NamedTuple):
    """The pairs of each query in chunks of equal length, faster to copy than single pairs."""

    counts: Tensor  # chunks of each query, [M]
    offsets: Tensor  # of its chunks, [M + 1]
    candidates: Tensor  # [., length]; N fills the last chunk of a query
    grades: Tensor | None


def _chunked(rows: Interactions, length: int) -> _Chunks:
    """Chunks of this length. Those of one pair are no copy."""
    if length == 1:
        grades = None if rows.grades is None else rows.grades[:, None]
        return _Chunks(rows.counts(), rows.offsets, rows.candidates[:, None], grades)
    counts = (rows.counts() + length - 1) // length
    offsets = offsets_of(counts)
    shape = int(offsets[-1]), length
    candidates = rows.candidates.new_full(shape, rows.n_candidates)
    grades = None if rows.grades is None else rows.grades.new_zeros(shape)
    for start, stop in blocks(rows, rows.n_queries, _PAIRS):
        part = rows.part(start, stop)
        place = _spread(offsets[start:stop] * length - part.offsets[:-1], part.counts())
        place += torch.arange(part.n_pairs, device=place.device)
        candidates.view(-1)[place] = part.candidates
        if grades is not None:
            grades.view(-1)[place] = part.all_grades()
    return _Chunks(counts, offsets, candidates, grades)


def _entries(left: Interactions, chunks: _Chunks, bits: int, most: int) -> tuple[Tensor, Tensor]:
    """The entries of L R, as ``_summed`` returns them; about ``most`` products at a time.

    The products of a long row are added up in parts, which are not shorter than a row of L R.
    """
    codes, values = left.offsets[:0], left.all_grades()
    row, parts = left.query_of_pair().long() << bits, max(most, left.n_candidates)
    counts = chunks.counts[left.candidates.long()]
    total = torch.nn.functional.pad(counts.cumsum(0) * chunks.candidates.shape[1], (1, 0))
    sums = codes, values[:0]
    for start, stop in blocks(Interactions(total, left.candidates, None, 0), len(counts), parts):
        some = slice(start, stop)
        keys = _products(row[some], left.candidates[some].long(), values[some], chunks)
        sums = _summed(keys if start == 0 else torch.cat([_keys(*sums), keys]))
    return sums


def _products(row: Tensor, queries: Tensor, values: Tensor, chunks: _Chunks) -> Tensor:
    """Keys of the products of some entries of L with the rows of their queries."""
    counts = chunks.counts[queries]
    place = _spread(chunks.offsets[queries] - counts.cumsum(0) + counts, counts)
    place += torch.arange(len(place), device=place.device)
    keys = chunks.candidates[place].long() << _FLOAT_BITS
    if chunks.grades is None:
        return keys.add_(_spread(_keys(row, values), counts)[:, None]).view(-1)
    weights = _spread(values, counts)[:, None] * chunks.grades[place]
    return keys.add_(_keys(_spread(row, counts)[:, None], weights)).view(-1)


def _spread(values: Tensor, counts: Tensor) -> Tensor:
    return torch.repeat_interleave(values, counts, output_size=int(counts.sum()))


def _keys(codes: Tensor, values: Tensor) -> Tensor:
    return (codes << _FLOAT_BITS) + values.view(torch.int32)


def _summed(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The codes in these keys, each once and ascending, and the sum of the values of each."""
    if len(keys) == 0:
        return keys, keys.float()
    keys = _sorted(keys)
    codes = keys >> _FLOAT_BITS
    ends = torch.nn.functional.pad(codes[1:] != codes[:-1], (0, 1), value=True).nonzero()[:, 0]
    totals = _value(keys).cumsum(0, dtype=torch.float64)[ends]
    return codes[ends], totals.diff(prepend=totals.new_zeros(1)).float()


def _largest(
    row: Tensor, column: Tensor, values: Tensor, bits: int, wanted: Tensor, most: int
) -> Neighbours:
    """The largest entries of some rows without a gap."""
    ranked = _sorted((_keys(row, values) << bits) + column)
    edges = torch.nn.functional.pad(wanted, (0, 1), value=int(wanted[-1]) + 1)
    edges = torch.searchsorted(ranked, edges << bits + _FLOAT_BITS)
    place = edges[1:, None] - 1 - torch.arange(most, device=row.device)
    best = ranked[place.clamp(min=0)]
    weights = _value(best >> bits).where(place >= edges[:-1, None], 0.0)
    return Neighbours((best & (1 << bits) - 1).int().where(weights > 0, 0), weights)


def _value(keys: Tensor) -> Tensor:
    return (keys & (1 << _FLOAT_BITS) - 1).int().view(torch.float32)


def _sorted(keys: Tensor) -> Tensor:
    """In place on a CPU, by numpy: its sort is several times as fast."""
    if keys.device.type != "cpu":
        return keys.sort().values
    keys.numpy().sort()
    return keys
