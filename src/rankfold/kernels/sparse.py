"""Products of interactions with dense matrices, on which quadratic solvers spend their time.

On a CPU a row's sum of vectors is an embedding bag: torch's kernel reads each vector once, with
prefetching, and takes a third of the time of a general sparse product.
"""

import errno
import math
import os
import warnings
from collections.abc import Iterator
from functools import cache
from tempfile import TemporaryFile, gettempdir
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankfold.kernels.threads import in_threads, n_threads
from rankfold.types import Interactions, from_pairs, offsets_of

PAIR_BYTES = 32  # allocated for each pair during a transpose


def row_sums(rows: Interactions, vectors: Tensor, weights: Tensor | None = None) -> Tensor:
    """R Q: the sum of each row's vectors, weighted by pair; [M, D].

    Args:
        rows: R, [M, N]; its grades are not used.
        vectors: Q, [N, D].
        weights: one per pair; None: all 1.
    """
    if vectors.device.type != "cpu" or vectors.dtype != torch.float32:
        return csr(rows, weights, vectors.dtype) @ vectors
    vectors = vectors.contiguous()  # columns that are contiguous instead take ten times as long
    if vectors.requires_grad or n_threads() == 1:
        return _bags(rows, vectors, weights)
    result = vectors.new_empty(rows.n_queries, vectors.shape[1])

    def add_up(bounds: tuple[int, int]) -> None:
        own = None if weights is None else weights[slice(*rows.offsets[list(bounds)].tolist())]
        result[slice(*bounds)] = _bags(rows.part(*bounds), vectors, own)

    in_threads(add_up, pair_runs(rows))
    return result


def _bags(rows: Interactions, vectors: Tensor, weights: Tensor | None) -> Tensor:
    index = rows.candidates.dtype if rows.n_pairs < 2**31 else torch.int64
    return embedding_bag(
        rows.candidates.to(index),
        vectors,
        rows.offsets.to(index),
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def pair_runs(rows: Interactions) -> list[tuple[int, int]]:
    """Start and stop of runs of rows with similar numbers of pairs, to work on at a time."""
    if rows.offsets.device.type != "cpu" or rows.n_queries == 0:
        return [(0, rows.n_queries)]
    most = min(max(rows.n_pairs // 64, 2**13), 2**20)
    return list(blocks(rows, max(1, rows.n_queries // 8, 2**10), most))


def pair_products(rows: Interactions, left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    """``factor`` times the inner product of ``left[x]`` [M, D] and ``right[y]`` [N, D]; [nnz]."""
    pattern = csr(rows, None, left.dtype)
    products: Tensor = torch.sparse.sampled_addmm(
        pattern, left, right.T, beta=0.0, alpha=factor, out=pattern
    )
    return products.values()


def csr(
    rows: Interactions, values: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """R as a sparse tensor [M, N] with these values, or ones; columns are not copied."""
    small = rows.candidates.dtype == torch.int32 and rows.n_pairs < 2**31
    index = torch.int32 if small else torch.int64
    if values is None:
        values = torch.ones(rows.n_pairs, dtype=dtype, device=rows.candidates.device)
    _note_beta_state()
    return torch.sparse_csr_tensor(
        rows.offsets.to(index),
        rows.candidates.to(index),
        values,
        size=(rows.n_queries, rows.n_candidates),
    )


@cache
def _note_beta_state() -> None:
    """Suppress the warning of torch's first sparse tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1))


def transposed(rows: Interactions, memory_budget: int) -> Interactions:
    """R^T, in memory, or in an unnamed temporary file if it exceeds the budget.

    The file disappears with the tensors. It is written in blocks of candidates, each from one pass
    over all pairs.
    """
    most = max(1, memory_budget // PAIR_BYTES)
    if rows.n_pairs <= most or rows.candidates.device.type != "cpu":
        return rows.transpose()
    counts = rows.candidate_counts()
    offsets = offsets_of(counts)
    queries = in_file((rows.n_pairs,), rows.candidates.dtype)
    grades = None if rows.grades is None else in_file((rows.n_pairs,), rows.grades.dtype)
    columns = Interactions(offsets, queries, grades, rows.n_queries)
    for first, last in blocks(columns, rows.n_candidates, most):
        part = _of_candidates(rows, first, last, most).transpose()
        place = slice(int(offsets[first]), int(offsets[last]))
        queries[place] = part.candidates
        if grades is not None and part.grades is not None:
            grades[place] = part.grades
    return columns


def _of_candidates(rows: Interactions, first: int, last: int, most: int) -> Interactions:
    """The pairs with candidates from ``first`` to ``last``, numbered from 0."""
    parts = []
    for start, stop in blocks(rows, rows.n_queries, most):
        part = rows.part(start, stop)
        mine = ((part.candidates >= first) & (part.candidates < last)).nonzero()[:, 0]
        pairs = [part.query_of_pair()[mine] + start, part.candidates[mine] - first]
        parts.append(pairs if part.grades is None else [*pairs, part.grades[mine]])
    queries, candidates, *grades = (torch.cat(column) for column in zip(*parts, strict=True))
    shape = rows.n_queries, last - first
    return from_pairs(queries, candidates, grades[0] if grades else None, shape)


def in_file(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in a temporary file, which the system may page out."""
    with TemporaryFile() as file:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        _reserve(file.fileno(), math.prod(shape) * kind.itemsize)
        return torch.from_numpy(np.memmap(file, kind, "w+", shape=shape))


def _reserve(file: int, size: int) -> None:
    """Take the space on disk now: a full disk under a memory map kills the process later."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error.errno, error.strerror, gettempdir()) from None


def blocks(rows: Interactions, most_rows: int, most_pairs: int) -> Iterator[tuple[int, int]]:
    """Start and stop of runs of rows within both limits, at least one row each."""
    start = 0
    while start < rows.n_queries:
        last = rows.offsets[start] + most_pairs
        fitting = int(torch.searchsorted(rows.offsets, last, right=True)) - 1
        stop = max(start + 1, min(start + most_rows, fitting, rows.n_queries))
        yield start, stop
        start = stop


class PairBlocks(NamedTuple):
    """The rows of some queries, and the same pairs by candidate."""

    queries: slice
    rows: Interactions  # [B, N]
    columns: Interactions  # [N, B]


class Blocks:
    """R and its transpose, some queries at a time, within a memory budget.

    The transposed blocks are kept if half of the budget holds all of them; otherwise each iteration
    computes them again.
    """

    def __init__(self, rows: Interactions, memory_budget: int) -> None:
        self.rows = rows
        most = max(1, memory_budget // 4 // PAIR_BYTES)
        self._bounds = list(blocks(rows, rows.n_queries, most))
        size = rows.n_pairs * (4 if rows.grades is None else 8)
        size += len(self._bounds) * rows.n_candidates * 8
        self._kept = [self._block(*b) for b in self._bounds] if size <= memory_budget // 2 else None

    def __iter__(self) -> Iterator[PairBlocks]:
        if self._kept is not None:
            return iter(self._kept)
        return (self._block(*bounds) for bounds in self._bounds)

    def _block(self, start: int, stop: int) -> PairBlocks:
        rows = self.rows.part(start, stop)
        return PairBlocks(slice(start, stop), rows, rows.transpose())
