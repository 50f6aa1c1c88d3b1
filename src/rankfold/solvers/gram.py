"""The Gram matrix of candidates and its inverse, in the memory of one matrix of N x N numbers.

Both work on tiles of the lower triangle, so that the matrix and a few columns are all that is
held. The work is done by dense products. The upper triangle is filled at the end.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.solvers.progress import Work
from rankfold.types import Interactions

TILE = 512  # columns: products of larger tiles are no faster


def gram(
    rows: Interactions, query_weight: Tensor, scale: Tensor, memory_budget: int
) -> Work[Tensor]:
    """diag(s) R^T diag(w) R diag(s), its lower triangle; [N, N] float32.

    The upper triangle is undefined outside of the tiles on the diagonal.

    Args:
        rows: R, [M, N]; its grades are not used.
        query_weight: w, [M].
        scale: s, [N].
        memory_budget: bytes, for the dense columns of R.
    """
    n, columns = rows.n_candidates, rows.transpose()
    result = torch.empty(n, n, device=rows.offsets.device)
    width = max(1, min(TILE, memory_budget // (8 * max(1, rows.n_queries + n))))
    weight, scale = query_weight.float(), scale.float()
    for start, stop in tiles(n, width):
        part, own = columns.part(start, stop), slice(start, stop)
        dense = torch.zeros(rows.n_queries, stop - start, device=result.device)
        queries = part.candidates.long()
        dense[queries, part.query_of_pair().long()] = weight[queries]
        sums = row_sums(columns.part(start, n), dense)
        torch.mul(sums, scale[start:, None] * scale[own], out=result[start:, own])
        yield 1 - (1 - stop / n) ** 2
    return result


def invert(matrix: Tensor) -> Work[Tensor]:
    """The inverse of a symmetric positive definite matrix, in its own memory; [N, N].

    Only the lower triangle is read. Each step sweeps the tile K of columns: with D = A_KK^-1,

        A_ij -= A_iK D A_Kj,    A_iK = A_iK D,    A_KK = -D

    and all tiles swept, A is minus its inverse. N^3 multiplications and additions.
    """
    n = len(matrix)
    for start, stop in tiles(n, TILE):
        own = slice(start, stop)
        column = torch.cat([matrix[own, :start].T, matrix[start:, own]])
        block = column[own].tril() + column[own].tril(-1).T
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(block))
        product = column @ inverse
        for first, last in tiles(n, TILE):
            matrix[first:last, :last].addmm_(column[first:last], product[:last].T, alpha=-1)
        matrix[own, :start] = product[:start].T
        matrix[stop:, own] = product[stop:]
        matrix[own, own] = -inverse
        yield stop / n
    for start, stop in tiles(n, TILE):
        matrix[start:stop, :stop].neg_()
        matrix[:start, start:stop] = matrix[start:stop, :start].T
        block = matrix[start:stop, start:stop]
        block.copy_(block.tril() + block.tril(-1).T)
    return matrix


def tiles(n: int, width: int) -> Iterator[tuple[int, int]]:
    """Start and stop of runs of ``width`` numbers up to n."""
    for start in range(0, n, width):
        yield start, min(start + width, n)
