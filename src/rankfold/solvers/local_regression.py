"""Regress each candidate on its neighbours: from co-occurrences to weights, as sparse as before.

With G a Gram matrix with its diagonal and P = (G + r I)^-1, the weights are those of EASE,
F_yz = -P_yz / P_zz. Row y of P is computed among the neighbours S of y alone::

    w = (G_SS + r I)^-1 G_Sy        p_y = 1 / (G_yy + r - w . G_Sy)        P_yS = -p_y w

Entries of G_SS that are in neither row of the table count as 0, and so do those among the weaker
neighbours W, all but the ``STRONG`` strongest. An entry of a strong and a weak one is that in the
row of the strong one. So W is eliminated, D its diagonal::

    (G_TT + r I - G_TW D^-1 G_WT) w_T = G_Ty - G_TW D^-1 G_Wy        w_W = D^-1 (G_Wy - G_WT w_T)

Where this leaves a matrix that is not positive definite, its diagonal is raised to the sums of its
rows.
"""

from functools import partial

import torch
from torch import Tensor

from rankfold.kernels.threads import in_threads, n_threads
from rankfold.solvers.neighbours import Neighbours
from rankfold.types import Comm

STRONG = 50  # neighbours of a candidate whose own entries count
_SYSTEMS, _MOST_SYSTEMS = {"cpu": 16}, 1024  # solved at a time, by device; others
_RAISED = 1.01  # times the sums of its rows, a diagonal makes a matrix positive definite
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
        shape = min(most, len(own)), n + 1
        places = table.ids.new_full(shape, length)  # int32: they fit the cache better
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
    own, gram = gram, torch.maximum(gram, gram.T) + torch.diag(diagonal.double() + reg)
    inverse = torch.zeros_like(gram)
    for y in range(n):
        near = table.ids[y, table.weights[y] > 0].long()
        system, right = gram[near][:, near], gram[near, y]
        weak = torch.arange(len(near)) >= STRONG
        system[weak.outer(weak)] = 0.0
        system[weak.outer(~weak)] = own[near[~weak]][:, near[weak]].T.flatten()
        system[(~weak).outer(weak)] = own[near[~weak]][:, near[weak]].flatten()
        system.diagonal().copy_(gram.diagonal()[near])
        if len(near) > 0 and float(torch.linalg.eigvalsh(system)[0]) <= 0:
            sums = _RAISED * _row_sums(system)
            system.diagonal().copy_(torch.maximum(system.diagonal(), sums))
        w = torch.linalg.solve(system, right)
        inverse[y, y] = 1 / max(float(gram[y, y] - w @ right), reg)
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
        places: L everywhere, before and after; at least B rows, [., N + 1].
    """
    (count, length), known, strong = ids.shape, right > 0, min(STRONG, ids.shape[1])
    none, width = places.shape[1] - 1, lists.weights.shape[1]
    ids = ids.where(known, none)
    order = torch.arange(length, dtype=places.dtype, device=ids.device)
    places[:count].scatter_(1, ids, order.expand(count, -1))
    near = index[:, :strong].flatten()
    values = lists.weights.index_select(0, near).view(count, strong * width)
    others = lists.ids.index_select(0, near).view(count, strong * width).long()
    others.masked_fill_(values == 0, none)
    others += torch.arange(count, device=ids.device)[:, None] * places.shape[1]
    target = places.view(-1).index_select(0, others.flatten()).view(count, strong, length).long()
    places[:count].scatter_(1, ids, length)
    values = values.view(count, strong, length)
    if not bool(known[:, :strong].all()):
        values.mul_(known[:, :strong, None])
    system = right.new_zeros(count, strong, length + 1).scatter_(2, target, values)
    inside, across = system[:, :, :strong], system[:, :, strong:length]
    inside = torch.maximum(inside, inside.mT)
    result, failed = _eliminated(inside, across, right, diagonal)
    if bool(failed.any()):
        inside, across, right, diagonal = (one[failed] for one in (inside, across, right, diagonal))
        sums = torch.cat([_row_sums(inside) + across.sum(dim=2), across.sum(dim=1)], dim=1)
        diagonal = torch.maximum(diagonal, _RAISED * sums)
        result[failed], _ = _eliminated(inside, across, right, diagonal)
    return result


def _eliminated(
    inside: Tensor, across: Tensor, right: Tensor, diagonal: Tensor
) -> tuple[Tensor, Tensor]:
    """The solutions of systems, and which of them are not positive definite.

    Args:
        inside: entries among the strong neighbours, any diagonal; [B, T, T].
        across: of strong and weak ones; [B, T, L - T].
        right: the right-hand sides, [B, L].
        diagonal: of the systems, [B, L].
    """
    strong = inside.shape[1]
    inside.diagonal(dim1=1, dim2=2).copy_(diagonal[:, :strong])
    scaled = across / diagonal[:, None, strong:]
    reduced = torch.baddbmm(inside, scaled, across.mT, alpha=-1)
    right, weak = right[:, :strong, None], right[:, strong:, None]
    root, failed = torch.linalg.cholesky_ex(reduced)
    upper = torch.cholesky_solve(right - scaled @ weak, root)
    lower = weak / diagonal[:, strong:, None] - scaled.mT @ upper
    return torch.cat([upper, lower], dim=1)[:, :, 0], failed > 0


def _row_sums(system: Tensor) -> Tensor:
    """Off the diagonal."""
    return system.sum(dim=-1) - system.diagonal(dim1=-2, dim2=-1)
