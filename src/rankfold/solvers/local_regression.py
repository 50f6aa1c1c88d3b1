"""Regress each candidate on its neighbours: from co-occurrences to weights, as sparse as before.

With G a Gram matrix with its diagonal and P = (G + r I)^-1, the weights are those of EASE,
F_yz = -P_yz / P_zz. Row y of P is computed among the neighbours S of y alone::

    w = (G_SS + r I)^-1 G_Sy        p_y = 1 / (G_yy + r - w . G_Sy)        P_yS = -p_y w

Entries of G_SS that are in neither row of the table count as 0. Where this leaves a matrix that is
not positive definite, its diagonal is raised to the sums of its rows.
"""

from functools import partial

import torch
from torch import Tensor

from rankfold.kernels.threads import in_threads, n_threads
from rankfold.solvers.neighbours import Neighbours
from rankfold.types import Comm

_SYSTEMS, _MOST_SYSTEMS = {"cpu": 16}, 1024  # solved at a time, by device; others
_RUN = 4096  # candidates that share one map of ids
_ENTRY_BYTES = 32  # allocated for each entry of a system, at most


def regressed(
    table: Neighbours, diagonal: Tensor, reg: float, *, memory_budget: int, comm: Comm
) -> Neighbours:
    """F for the pairs of the table, 0 where it would be negative.

    Each of several processes has the rows of its share of the candidates, and gets those of F.

    Args:
        table: the largest entries of G off its diagonal, above 0; [N, L], or the rows of a share.
        diagonal: of G, [N].
        reg: r.
        memory_budget: bytes for the blocks.
        comm: the processes.
    """
    n, length = len(diagonal), table.ids.shape[1]
    raised, (first, last) = (diagonal + reg).float(), comm.share(n)
    weights, precision = torch.empty_like(table.weights), raised[first:last].clone()
    budget = memory_budget // n_threads() // (_ENTRY_BYTES * length * (length + 1) + 4 * n)
    most = max(1, min(_SYSTEMS.get(table.ids.device.type, _MOST_SYSTEMS), budget))
    every = torch.arange(last - first, device=table.ids.device)

    def solve(lists: Neighbours, run: tuple[Tensor, Tensor]) -> None:
        own, index = run
        places = table.ids.new_full((min(most, len(own)), n), length)
        for some, lines in zip(own.split(most), index.split(most), strict=True):
            ids, right = table.ids[some].long(), table.weights[some]
            weights[some] = w = _solved(lists, lines, ids, right, raised[ids], places)
            rest = raised[some + first] - (w * right).sum(dim=1)
            precision[some] = 1 / rest.clamp(min=reg)

    longest = -(-n // comm.size)  # all processes take equally many steps
    step = longest
    if comm.size > 1:
        step = min(longest, max(1, memory_budget // (_ENTRY_BYTES * comm.size * length**2)))
    for start in range(0, longest, step):
        own = every[start : start + step]
        lists, index = _lists(table, own, n, comm)
        runs = list(zip(own.split(_RUN), index.split(_RUN), strict=True))
        if table.ids.is_cuda:
            for run in runs:
                solve(lists, run)
        else:
            in_threads(partial(solve, lists), runs)
    precision = comm.gather(precision)
    ratio = precision[first:last, None] / precision[table.ids.long()]
    return Neighbours(table.ids, weights.clamp_(min=0.0).mul_(ratio))


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


def _lists(table: Neighbours, own: Tensor, n: int, comm: Comm) -> tuple[Neighbours, Tensor]:
    """The rows of the neighbours of some candidates, and their places among these; [B, L]."""
    if comm.size == 1:
        return table, table.ids[own].long()
    ids, index = table.ids[own].unique(return_inverse=True)
    most = int(comm.gather(torch.tensor([len(ids)], device=ids.device)).max())
    wanted = comm.gather(torch.nn.functional.pad(ids, (0, most - len(ids)), value=-1)).long()
    first, last = comm.share(n)
    here = (wanted >= first) & (wanted < last)
    parts = []
    for column in table:
        rows = column.new_zeros(len(wanted), column.shape[1])
        rows[here] = column[wanted[here] - first]
        parts.append(comm.scatter_sum(rows))
    return Neighbours(*parts), index


def _solved(
    lists: Neighbours, index: Tensor, ids: Tensor, right: Tensor, diagonal: Tensor, places: Tensor
) -> Tensor:
    """The solutions w of some systems; [B, L].

    Args:
        lists: rows of the table.
        index: of the row of each candidate of S, [B, L].
        ids: S, [B, L].
        right: G_Sy, 0 where S has fewer candidates; [B, L].
        diagonal: of the systems, [B, L].
        places: L everywhere, before and after; at least B rows, [., N].
    """
    (count, length), known = ids.shape, right > 0
    rows, columns = known.nonzero().unbind(1)
    places[rows, ids[known]] = columns.to(places.dtype)
    others = lists.ids[index].long().view(count, length**2)
    target = places[:count].gather(1, others).long().view(count, length, length)
    places[rows, ids[known]] = length
    values = lists.weights[index].mul_(known[:, :, None])
    system = right.new_zeros(count, length, length + 1).scatter_add_(2, target, values)
    system = system[:, :, :length]
    system = torch.maximum(system, system.mT)
    system.diagonal(dim1=1, dim2=2).copy_(diagonal)
    root, failed = torch.linalg.cholesky_ex(system)
    bad = failed > 0
    if bool(bad.any()):
        worse = system[bad]
        raised = worse.diagonal(dim1=1, dim2=2)
        raised.copy_(torch.maximum(raised, _row_sums(worse)))
        root[bad] = torch.linalg.cholesky(worse)
    return torch.cholesky_solve(right[:, :, None], root)[:, :, 0]


def _row_sums(system: Tensor) -> Tensor:
    """Off the diagonal, and a little more: a diagonal as large makes a matrix positive definite."""
    return 1.01 * (system.sum(dim=-1) - system.diagonal(dim1=-2, dim2=-1))
