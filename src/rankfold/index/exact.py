"""Exact search by inner product: every candidate is scored, in blocks, never M x N at once."""

from collections.abc import Iterator
from math import isnan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.index.filter import no_results, pairs_among
from rankfold.kernels import nearest
from rankfold.kernels.threads import in_threads, n_threads, scratch
from rankfold.kernels.topk import (
    BYTES_PER_VALUE,
    LARGEST_BLOCK,
    block_size,
    bytes_per_row,
    merge_top_k,
    top_k,
)
from rankfold.types import Allow, Exclude, Interactions, TopK

QUERY_BLOCK = 2048  # queries at a time: with fewer, the product mostly rearranges candidates
_THREAD_BLOCK = 256  # queries at a time of a thread: malloc keeps 16 MB, and returns 32 MB at once
_MIN_FUSED_QUERIES = 128  # at a time by fused kernels, which read all candidates each time
_CANDIDATE_BLOCK = 16_384  # candidates at a time, before memory goes to more queries at a time
_ALIGNMENT = 16  # columns: with unaligned rows a product takes up to twice as long
_CACHE_BYTES = 2**24  # for ranking on a CPU: more would not fit in the cache
_MIN_ALLOWED_BLOCK = 1024  # allowed candidates at a time, whatever the budget
PAIR_BYTES = 64  # allocated for each excluded pair of a block, at most


class Plan(NamedTuple):
    """How much is done at a time."""

    queries: int  # scored
    candidates: int  # scored
    rows: int  # of these scores, ranked
    pairs: int  # excluded


class Exact:
    """All candidates are scored for every query. Equal scores are ordered by id."""

    kind = "exact"

    def __init__(self, candidates: Tensor, memory_budget: int = 2**30) -> None:
        self.candidates = candidates.detach()  # [N, D]
        self.memory_budget = memory_budget  # bytes, besides arguments and results
        self._largest = _largest_entry(self.candidates, "candidate")

    def search(
        self,
        vectors: Tensor,
        k: int,
        exclude: Exclude = None,
        allow: Allow = None,
        extra: Interactions | None = None,
    ) -> TopK:
        """As ``Index.search``; [B, min(k, N)], padded with -1 and -inf.

        The grades of ``extra`` are added to the inner products. A pair may occur several times.

        Scores are float64 if the vectors or the candidates are, else float32. The memory budget
        changes them by no more than the rounding of a product, and not at all for integers.
        """
        vectors, k = vectors.detach(), min(k, len(self.candidates))
        dtype = self._score_type(vectors)
        self.check(vectors, exclude, allow)
        if allow is not None:
            return self._search_among(vectors, k, exclude, allow, extra)
        ids = torch.empty(len(vectors), k, dtype=torch.int64, device=vectors.device)
        results = TopK(ids, torch.empty_like(ids, dtype=dtype))
        if ids.numel() == 0:
            return results
        if vectors.is_cuda and extra is None and self._search_fused(vectors, exclude, results):
            return results
        converted = not vectors.dtype == self.candidates.dtype == dtype
        threads = n_threads() if vectors.is_cpu and len(vectors) > _THREAD_BLOCK else 1
        most = len(vectors) if threads == 1 else _THREAD_BLOCK
        plan = make_plan(
            (most, len(self.candidates)),
            k,
            dtype.itemsize,
            self.memory_budget // threads,
            ranking_bytes=_CACHE_BYTES if vectors.is_cpu else self.memory_budget,
            converted_width=vectors.shape[1] if converted else 0,
        )
        size, scores = (plan.queries, _row_length(plan.candidates, k)), results.scores
        buffer = None if threads > 1 else scores.new_empty(size)

        def search(bounds: tuple[int, int]) -> None:
            own = slice(*bounds)
            pairs = None if exclude is None else _pairs(exclude, *bounds, vectors.device)
            space = scratch("scores", size, scores) if buffer is None else buffer
            added = None if extra is None else extra.part(*bounds)
            part = TopK(*(table[own] for table in results))
            block = vectors[own].to(dtype)
            self._search_block(block, pairs, added, plan, space.flatten(), part)

        blocks = list(_query_blocks(len(vectors), exclude, plan))
        if threads > 1:
            in_threads(search, blocks)
        else:
            for bounds in blocks:
                search(bounds)
        return results

    def check(self, vectors: Tensor, exclude: Exclude, allow: Allow = None) -> None:
        """A UserError for different widths, NaN or inner products that overflow."""
        n, width = self.candidates.shape
        if vectors.shape[1] != width:
            raise UserError(f"query vectors must have {width} columns, got {vectors.shape[1]}")
        if exclude is not None and (exclude.n_queries, exclude.n_candidates) != (len(vectors), n):
            raise UserError(
                f"excluded pairs must be {len(vectors)} x {n} (queries x candidates),"
                f" got {exclude.n_queries} x {exclude.n_candidates}"
            )
        if allow is not None and len(allow) > 0 and not 0 <= int(allow[0]) <= int(allow[-1]) < n:
            raise UserError(
                f"allowed candidates must be below {n}, got {int(allow[0])} to {int(allow[-1])}"
            )
        largest = _largest_entry(vectors, "query")
        if not width * largest * self._largest <= torch.finfo(self._score_type(vectors)).max:
            raise UserError(
                f"inner products overflow: entries are up to {largest:g} and {self._largest:g}",
                hint="the fit diverged: try a smaller lr or a larger reg",
            )

    def files(self, _name: str) -> dict[str, storage.Content]:
        """Nothing needs to be saved."""
        return {}

    def about(self) -> dict[str, Any]:
        """Nothing to describe."""
        return {}

    def _search_among(
        self,
        vectors: Tensor,
        k: int,
        exclude: Exclude,
        allow: Tensor,
        extra: Interactions | None,
    ) -> TopK:
        """Search the allowed candidates; their vectors are copied one part at a time."""
        results = no_results(len(vectors), k, vectors.device)
        results = TopK(results.ids, results.scores.to(self._score_type(vectors)))
        each = 4 * self.candidates.element_size() * max(self.candidates.shape[1], 1)
        size = max(self.memory_budget // each, _MIN_ALLOWED_BLOCK)
        for part in allow.to(vectors.device).split(size):
            inner = Exact(self.candidates[part], self.memory_budget)
            hidden = None if exclude is None else pairs_among(exclude, part)
            added = None if extra is None else pairs_among(extra, part)
            ids, scores = inner.search(vectors, k, hidden, extra=added)
            best = TopK(part[ids.clamp(min=0)].where(ids >= 0, -1), scores)
            results = merge_top_k(results, best, k)
        return results

    def _search_fused(self, vectors: Tensor, exclude: Exclude, results: TopK) -> bool:
        """Fill ``results`` without storing all scores; False if that is impossible or slower."""
        k, most = results.ids.shape[1], 0 if exclude is None else int(exclude.counts().max())
        if not nearest.takes(vectors, self.candidates, k, most):
            return False
        each = nearest.bytes_per_query(vectors, len(self.candidates), k, most) + PAIR_BYTES * most
        rows = self.memory_budget // each
        if rows < min(len(vectors), _MIN_FUSED_QUERIES):
            return False
        for start in range(0, len(vectors), rows):
            stop = min(start + rows, len(vectors))
            pairs = None if exclude is None else _pairs(exclude, start, stop, vectors.device)
            best = nearest.nearest(vectors[start:stop], self.candidates, k, pairs, most)
            results.ids[start:stop], results.scores[start:stop] = best
        return True

    def _search_block(
        self,
        block: Tensor,
        pairs: nearest.Pairs | None,
        extra: Interactions | None,
        plan: Plan,
        buffer: Tensor,
        results: TopK,
    ) -> None:
        """Fill ``results``: the best of all candidates for a block of queries, tile by tile."""
        k = results.ids.shape[1]
        for first in range(0, len(self.candidates), plan.candidates):
            tile = self.candidates[first : first + plan.candidates].to(block.dtype)
            scores = _scores(block, tile, buffer, k)
            if extra is not None:
                _add(scores, extra, first, len(tile))
            if pairs is not None:
                queries, columns = pairs
                if len(tile) < len(self.candidates):
                    here = (columns >= first) & (columns < first + len(tile))
                    queries, columns = queries[here], columns[here] - first
                scores[queries, columns] = -torch.inf
            for start in range(0, len(block), plan.rows):
                rows = slice(start, start + plan.rows)
                best = top_k(scores[rows], k)
                if first > 0:
                    best = TopK(torch.where(best.ids < 0, -1, best.ids + first), best.scores)
                    best = merge_top_k(TopK(results.ids[rows], results.scores[rows]), best, k)
                results.ids[rows], results.scores[rows] = best

    def _score_type(self, vectors: Tensor) -> torch.dtype:
        given = torch.promote_types(vectors.dtype, self.candidates.dtype)
        return torch.promote_types(given, torch.float32)


def block_rows(k: int, memory_budget: int) -> int:
    """How many queries with k results each fit in a budget, at most 4096.

    A result has an id, a score, a grade and an ideal grade, and each is copied once.
    """
    return max(1, min(4096, memory_budget // (64 * max(k, 1))))


def make_plan(
    shape: tuple[int, int],
    k: int,
    item_bytes: int,
    memory_budget: int,
    *,
    ranking_bytes: int = _CACHE_BYTES,
    converted_width: int = 0,
) -> Plan:
    """Half of the budget for scores, a quarter to rank them, a quarter for excluded pairs.

    The minimum is one query against ``LARGEST_BLOCK`` or k candidates, whatever the budget. No more
    rows are ranked at a time than fit in ``ranking_bytes``. ``converted_width`` is D if vectors
    must be converted to the type of the scores, of ``item_bytes`` each, else 0.
    """
    entries = memory_budget // 2 // item_bytes
    most = max(memory_budget // 8 // BYTES_PER_VALUE, k)  # a row may have to be ranked as a whole
    tile = _rounded_up(min(shape[1], _CANDIDATE_BLOCK, most), LARGEST_BLOCK)
    queries = entries // (tile + converted_width) - converted_width
    queries = max(1, min(queries, shape[0], QUERY_BLOCK))
    tile = min(entries // (queries + converted_width) - converted_width, most)
    candidates = min(max(tile // LARGEST_BLOCK * LARGEST_BLOCK, LARGEST_BLOCK, k), shape[1])
    ranking = min(memory_budget // 4, ranking_bytes)
    rows = max(1, min(ranking // bytes_per_row(_row_length(candidates, k), k), queries))
    return Plan(queries, candidates, rows, pairs=max(1, memory_budget // 4 // PAIR_BYTES))


def _row_length(n_candidates: int, k: int) -> int:
    """Columns of the score buffer: whole blocks of ``top_k``, and rows that start aligned."""
    return _rounded_up(n_candidates, max(block_size(n_candidates, k), _ALIGNMENT))


def _rounded_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _query_blocks(n: int, exclude: Exclude, plan: Plan) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks with no more queries and excluded pairs than planned."""
    start = 0
    while start < n:
        stop = min(start + plan.queries, n)
        if exclude is not None and exclude.n_pairs > plan.pairs:
            last = exclude.offsets[start] + plan.pairs
            fitting = int(torch.searchsorted(exclude.offsets, last, right=True)) - 1
            stop = max(start + 1, min(stop, fitting))
        yield start, stop
        start = stop


def _pairs(exclude: Interactions, start: int, stop: int, device: torch.device) -> nearest.Pairs:
    """Row and column of the excluded pairs of the queries from ``start`` to ``stop``."""
    offsets = exclude.offsets[start : stop + 1].to(device)
    columns = exclude.candidates
    if stop - start < exclude.n_queries:
        columns = columns[int(offsets[0]) : int(offsets[-1])]
    columns = columns.to(device, torch.int64)
    rows = torch.arange(stop - start, device=device)
    return torch.repeat_interleave(rows, offsets.diff(), output_size=len(columns)), columns


def _scores(block: Tensor, tile: Tensor, buffer: Tensor, k: int) -> Tensor:
    """All products, written to the buffer: allocating memory would take longer."""
    length = _row_length(len(tile), k)
    scores = buffer[: len(block) * length].view(len(block), length)
    torch.mm(block, tile.T, out=scores[:, : len(tile)])
    scores[:, len(tile) :] = -torch.inf
    return scores


def _add(scores: Tensor, extra: Interactions, first: int, n: int) -> None:
    """Add the grades of the pairs with the n candidates from ``first`` on."""
    assert extra.grades is not None
    rows, columns, values = extra.query_of_pair().long(), extra.candidates.long(), extra.grades
    if n < extra.n_candidates:
        here = (columns >= first) & (columns < first + n)
        rows, columns, values = rows[here], columns[here] - first, values[here]
    flat = scores.view(-1)
    flat.scatter_add_(0, rows.mul_(scores.shape[1]).add_(columns), values.to(scores.dtype))


def _largest_entry(vectors: Tensor, what: str) -> float:
    """The largest absolute value, 0 without entries; a UserError for NaN."""
    if vectors.numel() == 0:
        return 0.0
    low, high = map(float, torch.aminmax(vectors))
    largest = max(-low, high)
    if isnan(low):
        row = int(torch.isnan(vectors).any(dim=1).nonzero()[0])
        raise UserError(
            f"the vector of {what} {row} contains NaN",
            hint="the fit diverged: try a smaller lr or a larger reg",
        )
    return largest
