"""Regress each candidate on its neighbours: from co-occurrences to weights, as sparse as before.

With G a Gram matrix with its diagonal and P = (G + r I)^-1, the weights are those of EASE,
F_yz = -P_yz / P_zz. Row y of P is computed among the neighbours S of y alone::

    w = (G_SS + r I)^-1 G_Sy        p_y = 1 / (G_yy + r - w . G_Sy)        P_yS = -p_y w

Entries of G_SS that are in neither row of the table count as 0. Where this leaves a matrix that is
not positive definite, its diagonal is raised to the sums of its rows.
"""

import torch
from torch import Tensor

from rankfold.kernels.threads import in_threads, n_threads
from rankfold.solvers.neighbours import Neighbours
from rankfold.types import Comm

_SYSTEMS = {"cpu": 16}  # solved at a time; on other devices ``_MOST``
_MOST = 1024
_RUN = 4096  # candidates of a run of blocks, which share one map of ids
_ENTRY_BYTES = 32  # allocated for each entry of a system, at most


def regressed(
    table: Neighbours, diagonal: Tensor, reg: float, *, memory_budget: int, comm: Comm
) -> Neighbours:
    """F for the pairs of the table, 0 where it would be negative.

    Each of several processes solves the systems of its share of the candidates.

    Args:
        table: the largest entries of G off its diagonal, above 0.
        diagonal: of G, [N].
        reg: r.
        memory_budget: bytes for the blocks.
        comm: the processes.
    """
    n, length = table.ids.shape
    raised = (diagonal + reg).float()
    first, last = comm.share(n)
    weights, precision = table.weights[first:last].clone(), raised[first:last].clone()
    each = _ENTRY_BYTES * length * (length + 1) + 4 * n
    most = min(_SYSTEMS.get(table.ids.device.type, _MOST), memory_budget // n_threads() // each)

    def work(start: int) -> None:
        stop = min(start + _RUN, last)
        own = torch.arange(start, stop, device=table.ids.device).split(max(1, most))
        place = table.ids.new_full((len(own[0]), n), length)  # in S; L: not there
        for some in own:
            here = some - first
            weights[here], precision[here] = _solve(table, raised, reg, some, place)

    starts = range(first, last, _RUN)
    if table.ids.is_cuda:
        for start in starts:
            work(start)
    else:
        in_threads(work, starts)
    precision = comm.gather(precision)
    ratio = precision[first:last, None] / precision[table.ids[first:last].long()]
    return Neighbours(table.ids, comm.gather(weights.clamp_(min=0.0).mul_(ratio)))


def regressed_reference(table: Neighbours, diagonal: Tensor, reg: float) -> Tensor:
    """The same, one system at a time from a dense G; [N, N]."""
    n = len(diagonal)
    gram = torch.zeros(n, n, dtype=torch.float64)
    gram.scatter_add_(1, table.ids.long(), table.weights.double())
    gram = torch.maximum(gram, gram.T) + torch.diag(diagonal.double() + reg)
    inverse = torch.zeros_like(gram)
    for y in range(n):
        near = table.ids[y, table.weights[y] > 0].long()
        system = gram[near][:, near]
        if len(near) > 0 and float(torch.linalg.eigvalsh(system)[0]) <= 0:
            system.diagonal().copy_(torch.maximum(system.diagonal(), _row_sums(system)))
        w = torch.linalg.solve(system, gram[near, y])
        inverse[y, y] = 1 / max(float(gram[y, y] - w @ gram[near, y]), reg)
        inverse[y, near] = -inverse[y, y] * w
    weights = (-inverse / inverse.diagonal()).clamp(min=0.0)
    return weights.fill_diagonal_(0.0)


def _solve(
    table: Neighbours, raised: Tensor, reg: float, own: Tensor, place: Tensor
) -> tuple[Tensor, Tensor]:
    """The solutions w [B, L] and p [B] of the candidates ``own``."""
    ids, right = table.ids[own].long(), table.weights[own]
    (count, length), known = ids.shape, right > 0
    rows, columns = known.nonzero().unbind(1)
    place[rows, ids[known]] = columns.to(place.dtype)
    others = table.ids[ids].long().view(count, -1)
    target = place[:count].gather(1, others).long().view(count, length, length)
    place[rows, ids[known]] = length
    values = table.weights[ids].mul_(known[:, :, None])
    gram = right.new_zeros(count, length, length + 1).scatter_add_(2, target, values)
    gram = gram[:, :, :length]
    gram = torch.maximum(gram, gram.mT)
    gram.diagonal(dim1=1, dim2=2).copy_(raised[ids])
    root, failed = torch.linalg.cholesky_ex(gram)
    bad = failed > 0
    if bool(bad.any()):
        worse = gram[bad]
        worse.diagonal(dim1=1, dim2=2).copy_(
            torch.maximum(worse.diagonal(dim1=1, dim2=2), _row_sums(worse))
        )
        root[bad] = torch.linalg.cholesky(worse)
    w = torch.cholesky_solve(right[:, :, None], root)[:, :, 0]
    rest = raised[own] - (w * right).sum(dim=1)
    return w, 1 / rest.clamp(min=reg)


def _row_sums(system: Tensor) -> Tensor:
    """Off the diagonal, and a little more: a diagonal as large makes a matrix positive definite."""
    return 1.01 * (system.sum(dim=-1) - system.diagonal(dim1=-2, dim2=-1))
