"""An inverted file: candidates in lists around centres; a query looks into a few of the lists.

The lists come from Euclidean k-means. A query takes those that promise most: with m the mean of a
list's vectors, s their standard deviation along a direction, and z from a few that are tried::

    promise(q, list) = q . m + z |q| s

This is what a good candidate of the list may reach. By the mean alone (z = 0), as inverted files
commonly do, up to four times as much has to be read where norms differ; see decision 16.

Plain torch on any device; ``scan`` is the reference for the faster one in ``ann``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isqrt, sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

LISTS = 0.8  # times N^(2/3): 4 sqrt(N) at 16,000, twice as many at a million
MOST_LISTS = 2**17  # beyond, choosing among them would take longer than it saves
POINTS = 16  # of each list, that k-means learns from; twice as many save a twentieth of reading
ROUNDS = 3  # of k-means: five save nothing
BLOCK = 4096  # vectors at a time that are compared with all centres
FEW = 1024  # centres: as many are all compared; of more, those of the nearest groups
GROUPS = 3  # so many: at most a twentieth more is read than after comparing all
GROUPED = 2**17  # vectors at a time that are compared with groups
SLACKS = (0.0, 1.0, 2.0, 3.0, 4.0)  # z


class Lists(NamedTuple):
    """Candidates in L lists, none of them empty."""

    centres: Tensor  # [L, D] float32, the means m
    spreads: Tensor  # [L] float32, the deviations s
    offsets: Tensor  # [L + 1] int64
    ids: Tensor  # [N] int64, list after list, ascending in each


class Probing(NamedTuple):
    """How a query that wants ``depth`` candidates is answered."""

    depth: int
    lists: int  # looked into
    slack: float  # z
    recall: float  # on the queries that this was chosen with
    share: float  # of the candidates that is read


def build_lists(candidates: Tensor, memory_budget: int, seed: int) -> Lists:
    """k-means on a sample of ``candidates`` [N, D], N > 0; then each goes to its nearest centre."""
    n = len(candidates)
    n_lists = min(ceil(LISTS * n ** (2 / 3)), MOST_LISTS, n)
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randint(0, n, (POINTS * n_lists,), generator=rng).to(candidates.device)
    sample = candidates[chosen].float()
    centres = sample[:n_lists]
    for _ in range(ROUNDS):
        order, sizes = _by_list(_nearest(sample, centres, memory_budget), len(centres))
        centres = _means(sample, order, sizes[sizes > 0])
    order, sizes = _by_list(_nearest(candidates, centres, memory_budget), len(centres))
    return _describe(candidates, order, sizes[sizes > 0])


def promises(lists: Lists, queries: Tensor, slack: float) -> Tensor:
    """[B, L], see above."""
    room = slack * torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    return torch.addmm(room * lists.spreads, queries, lists.centres.T)


def choose_probings(
    lists: Lists, queries: Tensor, truth: Tensor, depths: Sequence[int], target: float
) -> list[Probing]:
    """For each depth the probing that reads least, of those that reach a recall of ``target``.

    A true result is found if its list is looked into, so one ranking of the lists gives the recall
    of every number of them. It has to exceed the target by two standard errors.

    Args:
        lists: of all candidates.
        queries: [B, D] float32, B > 0.
        truth: [B, K], the best candidates of each, best first.
        depths: not above K.
        target: at most 1.
    """
    sizes = lists.offsets.diff()
    list_of = torch.empty_like(lists.ids)
    list_of[lists.ids] = torch.repeat_interleave(sizes)
    probings: dict[int, Probing] = {}
    for slack in SLACKS:
        order = promises(lists, queries, slack).argsort(dim=1, descending=True, stable=True)
        ranks = order.argsort(dim=1).gather(1, list_of[truth])
        shares = sizes[order].cumsum(dim=1).double().mean(dim=0) / len(list_of)
        for depth in depths:
            taken, recall = _fewest(ranks[:, :depth], len(sizes), target)
            share = float(shares[taken - 1])
            if depth not in probings or share < probings[depth].share:
                probings[depth] = Probing(depth, taken, slack, recall, share)
    return [probings[depth] for depth in depths]


def scan(
    candidates: Tensor, lists: Lists, queries: Tensor, taken: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The best k of the lists ``taken`` [B, P]: ids, -1 where there are fewer, and scores [B, k].

    All that query b reads is laid side by side, list after list, as row b.
    """
    stops = lists.offsets.diff()[taken].cumsum(dim=1)  # [B, P], of each list in its row
    columns = torch.arange(max(int(stops[:, -1].max()), k), device=taken.device)
    columns = columns.expand(len(taken), -1).contiguous()
    valid = columns < stops[:, -1:]
    which = torch.searchsorted(stops, columns, right=True).clamp(max=taken.shape[1] - 1)
    shifts = lists.offsets[taken + 1] - stops  # from a column to a place in ``ids``
    ids = lists.ids[(columns + shifts.gather(1, which)).where(valid, 0)]
    scores = torch.bmm(candidates[ids].float(), queries.unsqueeze(2)).squeeze(2)
    best = scores.masked_fill(~valid, -torch.inf).topk(k, dim=1)
    return ids.masked_fill(~valid, -1).gather(1, best.indices), best.values


def scan_bytes(lists: Lists, n_taken: int, width: int) -> int:
    """What ``scan`` allocates for a query, at most: vectors, a copy of them, places, scores."""
    longest = lists.offsets.diff().topk(n_taken).values.sum()
    return int(longest) * (8 * width + 80)


def _nearest(vectors: Tensor, centres: Tensor, memory_budget: int) -> Tensor:
    """The centre nearest to each vector, or, of many centres, nearly the nearest; [n].

    Centres lie in sqrt(L) groups, and a vector is compared with those of its nearest groups alone.
    """
    if len(centres) <= FEW:
        return _nearest_of_all(vectors, centres, memory_budget)[1]
    middles, members = _group(centres, memory_budget)
    each = 16 * (len(middles) + centres.shape[1])
    blocks = vectors.split(max(1, min(memory_budget // each, GROUPED)))
    return torch.cat(
        [_nearest_of_few(b.float(), centres, middles, members, memory_budget) for b in blocks]
    )


def _nearest_of_all(vectors: Tensor, centres: Tensor, memory_budget: int) -> tuple[Tensor, Tensor]:
    """How near the nearest centre is, max_l x . c_l - |c_l|^2 / 2, and which it is; [n] both."""
    offsets = -0.5 * centres.square().sum(dim=1)
    rows = memory_budget // (8 * len(centres) + 8 * centres.shape[1])
    blocks = vectors.split(max(1, min(rows, BLOCK)))
    found = [torch.addmm(offsets, b.float(), centres.T).max(dim=1) for b in blocks]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def _nearest_of_few(
    vectors: Tensor,
    centres: Tensor,
    middles: Tensor,
    members: Sequence[Tensor],
    memory_budget: int,
) -> Tensor:
    """As ``_nearest_of_all``, but among the members of the nearest ``GROUPS``; [n]."""
    offsets = -0.5 * middles.square().sum(dim=1)
    nearness = torch.addmm(offsets, vectors, middles.T)
    groups = nearness.topk(min(GROUPS, len(middles)), dim=1).indices
    best = vectors.new_full((len(vectors),), -torch.inf)
    found = groups.new_zeros(len(vectors))
    for column in groups.T:
        order, sizes = _by_list(column, len(middles))
        for rows, mine in zip(order.split(sizes.tolist()), members, strict=True):
            if len(rows) > 0:
                values, places = _nearest_of_all(vectors[rows], centres[mine], memory_budget)
                nearer = values > best[rows]
                best[rows[nearer]], found[rows[nearer]] = values[nearer], mine[places[nearer]]
    return found


def _group(centres: Tensor, memory_budget: int) -> tuple[Tensor, Sequence[Tensor]]:
    """Centres around sqrt(L) middles: these [G, D], and the centres of each, none empty."""
    middles = centres[:: isqrt(len(centres))]
    for _ in range(ROUNDS):
        order, sizes = _by_list(_nearest_of_all(centres, middles, memory_budget)[1], len(middles))
        sizes = sizes[sizes > 0]
        middles = _means(centres, order, sizes)
    return middles, order.split(sizes.tolist())


def _by_list(list_of: Tensor, n_lists: int) -> tuple[Tensor, Tensor]:
    """Places in ``list_of`` by list, ascending in each, and the sizes of the lists."""
    return list_of.argsort(stable=True), torch.bincount(list_of, minlength=n_lists)


def _means(vectors: Tensor, order: Tensor, sizes: Tensor) -> Tensor:
    """Of the vectors of each list. An embedding bag sums in order: the same result every time."""
    return embedding_bag(order, vectors, sizes.cumsum(0) - sizes, mode="mean").float()


def _describe(candidates: Tensor, order: Tensor, sizes: Tensor) -> Lists:
    centres = _means(candidates, order, sizes)
    norms = torch.linalg.vector_norm(candidates, dim=1, keepdim=True, dtype=torch.float32)
    variances = _means(norms.square(), order, sizes)[:, 0] - centres.square().sum(dim=1)
    spreads = (variances / max(centres.shape[1], 1)).clamp(min=0).sqrt()
    return Lists(centres, spreads, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), order)


def _fewest(ranks: Tensor, n_lists: int, target: float) -> tuple[int, float]:
    """How many lists it takes, and the recall; ``ranks`` [B, k] are those of the results' lists."""
    hits = torch.zeros(len(ranks), n_lists, device=ranks.device)
    hits.scatter_add_(1, ranks, torch.ones_like(ranks, dtype=hits.dtype))
    recalls = hits.cumsum(dim=1) / ranks.shape[1]
    mean, deviation = recalls.mean(dim=0), recalls.std(dim=0, correction=0)
    enough = mean - 2 * deviation / sqrt(len(ranks)) >= target
    enough[-1] = True
    first = int(enough.nonzero()[0])
    return first + 1, float(mean[first])
