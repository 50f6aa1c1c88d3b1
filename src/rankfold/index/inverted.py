"""An inverted file: candidates in lists around centres; a query looks into a few of the lists.

The lists come from Euclidean k-means. A query takes those that promise most: with m the mean of a
list's vectors, s their standard deviation along a direction, and z from a few that are tried::

    promise(q, list) = q . m + z |q| s

This is what a good candidate of the list may reach. By the mean alone (z = 0), as inverted files
commonly do, up to four times as much has to be read where norms differ; see decision 16.

A promise is itself an inner product, of [q, z |q|] with the point [m, s] of the list. So many lists
are chosen as candidates are found: their points lie in groups, and a query compares the points of
the groups that promise most.

Plain torch on any device; ``scan`` is the reference for the faster one in ``ann``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf, isqrt, sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

LISTS = 1.6  # times N^(2/3): half as many read up to 1.4 times as much, and are built sooner
MOST_LISTS = 2**17  # all are ranked for the queries that recall is measured with
POINTS = 16  # of each list, that k-means learns from; twice as many save a twentieth of reading
ROUNDS = 3  # of k-means: five save nothing
BLOCK = 4096  # vectors at a time that are compared with all centres
FEW = 512  # centres: as many are all compared; of more, those of a few groups
GROUPS = 3  # so many for a candidate: at most a twentieth more is read than after comparing all
GROUPED = 2**17  # vectors at a time that are compared with groups on a CPU
GROUPED_ELSEWHERE = 2**20  # on a GPU fewer take up to eight times as long
SLACKS = (0.0, 1.0, 2.0, 3.0, 4.0)  # z of a list
GROUP_SLACK = 2.0  # z of a group: 1 and 3 compare about as many, 0 more


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
    groups: int  # of lists, that are compared; all of them: every list is


Scan = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]  # queries, taken, k: ids, scores


def build_lists(candidates: Tensor, memory_budget: int, seed: int) -> Lists:
    """k-means on a sample of ``candidates`` [N, D]; then each goes to its nearest centre."""
    n = len(candidates)
    if n == 0:
        return _no_lists(candidates)
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


def points(lists: Lists) -> Tensor:
    """[L, D + 1], see above."""
    return torch.cat([lists.centres, lists.spreads.unsqueeze(1)], dim=1)


def with_room(queries: Tensor, slack: float) -> Tensor:
    """[B, D + 1], whose products with ``points`` are the promises."""
    room = slack * torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    return torch.cat([queries, room], dim=1)


def group_lists(lists: Lists, memory_budget: int) -> Lists:
    """The points in 2 sqrt(L) groups, few of them in one: an inverted file of lists.

    The groups are smaller than those that candidates are assigned by: a query needs more of them.
    """
    if len(lists.spreads) <= FEW:
        return join_groups(lists, torch.zeros_like(lists.offsets[1:]))
    found = points(lists)
    _, order, sizes = _group(found, 2 * isqrt(len(found)), memory_budget)
    return _describe(found, order, sizes)


def join_groups(lists: Lists, group_of: Tensor) -> Lists:
    """Groups again, from the group of each list as ``owners`` gives it, none of them empty."""
    found = points(lists)
    return _describe(found, *_by_list(group_of, 0)) if len(found) else _no_lists(found)


def owners(lists: Lists) -> Tensor:
    """The list of each candidate; [N]."""
    list_of = torch.empty_like(lists.ids)
    list_of[lists.ids] = torch.repeat_interleave(lists.offsets.diff())
    return list_of


def choose_lists(
    lists: Lists, groups: Lists, queries: Tensor, probing: Probing, scan_points: Scan
) -> Tensor:
    """The lists to look into; [B, P], -1 where the groups that are compared have fewer.

    ``scan_points`` finds the best points in some groups: ``scan`` of these, or what equals it.
    """
    if probing.groups == len(groups.spreads):
        return promises(lists, queries, probing.slack).topk(probing.lists, dim=1).indices
    asked = with_room(queries, probing.slack)
    near = promises(groups, asked, GROUP_SLACK).topk(probing.groups, dim=1).indices
    return scan_points(asked, near, probing.lists)[0]


def choose_probings(
    lists: Lists,
    groups: Lists,
    queries: Tensor,
    truth: Tensor,
    depths: Sequence[int],
    target: float,
) -> list[Probing]:
    """For each depth the probing with the fewest products, of those with a recall of ``target``.

    A true result is found if its list is looked into, that is, if its group is among those that are
    compared and few lists of these promise more. So one ranking of lists and groups gives the
    recall of every number of lists. It has to exceed the target by two standard errors.

    Args:
        lists: of all candidates.
        groups: of all lists.
        queries: [B, D] float32, B > 0.
        truth: [B, K], the best candidates of each, best first.
        depths: not above K.
        target: at most 1.
    """
    list_of, group_of, n_groups = owners(lists), owners(groups), len(groups.spreads)
    best = dict.fromkeys(depths, (inf, Probing(0, 0, 0.0, 0.0, 1.0, 0)))
    for slack in SLACKS:
        order = promises(lists, queries, slack).argsort(dim=1, descending=True, stable=True)
        places = _ranks(order).gather(1, list_of[truth])
        near = promises(groups, with_room(queries, slack), GROUP_SLACK)
        near = _ranks(near.argsort(dim=1, descending=True, stable=True)).int()
        near = near.gather(1, group_of[order])  # [B, L], of the groups of the lists by promise
        sizes = lists.offsets.diff().int()[order]
        for n in _numbers(n_groups):
            compared = near < n
            products = float(compared.sum(dim=1).double().mean()) + n_groups * (n < n_groups)
            wanted = [depth for depth in depths if products < best[depth][0]]
            for found in _with_fewest_lists(compared, places, sizes, wanted, target):
                cost = products + found.share * len(list_of)
                if cost < best[found.depth][0]:
                    best[found.depth] = cost, found._replace(slack=slack, groups=n)
    return [best[depth][1] for depth in depths]


def scan(
    candidates: Tensor, lists: Lists, queries: Tensor, taken: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The best k of the lists ``taken`` [B, P]: ids, -1 where there are fewer, and scores [B, k].

    All that query b reads is laid side by side, list after list, as row b; a list -1 is none.
    """
    stops = lists.offsets.diff()[taken].where(taken >= 0, 0).cumsum(dim=1)  # [B, P], in the row
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
    middles, order, sizes = _group(centres, isqrt(len(centres)), memory_budget)
    members = order.split(sizes.tolist())
    each = 16 * (len(middles) + centres.shape[1])
    most = GROUPED if vectors.device.type == "cpu" else GROUPED_ELSEWHERE
    blocks = vectors.split(max(1, min(memory_budget // each, most)))
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


def _group(vectors: Tensor, n_groups: int, memory_budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """So many groups, none empty: their middles [G, D], places by group, and sizes."""
    middles = vectors[:: len(vectors) // n_groups]
    for _ in range(ROUNDS):
        order, sizes = _by_list(_nearest_of_all(vectors, middles, memory_budget)[1], len(middles))
        sizes = sizes[sizes > 0]
        middles = _means(vectors, order, sizes)
    return middles, order, sizes


def _by_list(list_of: Tensor, n_lists: int) -> tuple[Tensor, Tensor]:
    """Places in ``list_of`` by list, ascending in each, and the sizes of the lists."""
    return list_of.argsort(stable=True), torch.bincount(list_of, minlength=n_lists)


def _means(vectors: Tensor, order: Tensor, sizes: Tensor) -> Tensor:
    """Of the vectors of each list. An embedding bag sums in order: the same result every time."""
    return embedding_bag(order, vectors, sizes.cumsum(0) - sizes, mode="mean").float()


def _describe(candidates: Tensor, order: Tensor, sizes: Tensor) -> Lists:
    centres = _means(candidates, order, sizes)
    blocks = candidates.split(GROUPED)  # each is copied, if it is of half precision
    squares = torch.cat([b.float().square().sum(dim=1, keepdim=True) for b in blocks])
    variances = _means(squares, order, sizes)[:, 0] - centres.square().sum(dim=1)
    spreads = (variances / max(centres.shape[1], 1)).clamp(min=0).sqrt()
    return Lists(centres, spreads, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), order)


def _no_lists(candidates: Tensor) -> Lists:
    """Of candidates [0, D]."""
    nothing = torch.zeros(0, dtype=torch.int64, device=candidates.device)
    zeros = candidates.float()
    return Lists(zeros, zeros.sum(dim=1), nothing.new_zeros(1), nothing)


def _ranks(order: Tensor) -> Tensor:
    """The place of each column in its row of ``order``, the columns by descending promise."""
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)


def _numbers(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 ... and the most."""
    n = 1
    while n < most:
        yield n
        n = n + 1 if n < 3 else n * 4 // 3 if n % 3 == 0 else n * 3 // 2
    yield most


def _with_fewest_lists(
    compared: Tensor, places: Tensor, sizes: Tensor, depths: Sequence[int], target: float
) -> Iterator[Probing]:
    """A probing for each depth at which the lists that are compared suffice.

    Args:
        compared: [B, L], which lists are, by descending promise.
        places: [B, K], of the true results' lists among these.
        sizes: [B, L], of the lists.
        depths: at most K.
        target: of recall.
    """
    reached = compared.gather(1, places)
    depths = [depth for depth in depths if float(reached[:, :depth].double().mean()) >= target]
    if not depths:
        return
    numbers = compared.cumsum(dim=1, dtype=torch.int32)
    most, n = int(numbers[:, -1].max()), int(sizes[0].sum())
    ranks = (numbers.gather(1, places).long() - 1).where(reached, most)
    read = sizes.where(compared, 0).cumsum(dim=1)
    for depth in depths:
        taken, recall = _fewest(ranks[:, :depth], most, target)
        if taken > 0:
            last = torch.searchsorted(numbers, numbers[:, -1:].clamp(max=taken))
            share = float(read.gather(1, last).double().mean()) / n
            yield Probing(depth, taken, 0.0, recall, share, 0)


def _fewest(ranks: Tensor, n_lists: int, target: float) -> tuple[int, float]:
    """How many lists it takes, 0 if all are too few, and the recall.

    ``ranks`` [B, k] are those of the results' lists; ``n_lists`` is the rank of one left out.
    """
    hits = torch.zeros(len(ranks), n_lists + 1, device=ranks.device)
    hits.scatter_add_(1, ranks, torch.ones_like(ranks, dtype=hits.dtype))
    recalls = hits[:, :-1].cumsum(dim=1) / ranks.shape[1]
    mean, deviation = recalls.mean(dim=0), recalls.std(dim=0, correction=0)
    enough = (mean - 2 * deviation / sqrt(len(ranks)) >= target).nonzero()
    return (int(enough[0]) + 1, float(mean[enough[0]])) if len(enough) > 0 else (0, 0.0)
