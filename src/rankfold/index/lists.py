"""The lists of an inverted file: candidates around centres; a query reads a few of the lists.

The lists come from Euclidean k-means. A query reads the most promising ones. With m the mean of a
list's vectors, s their standard deviation along a direction, and z one of ``_SLACKS``::

    promise(q, list) = q . m + z |q| s

This is the score that a good candidate of the list may reach. Ranking lists by the mean (z = 0), as
is common, reads up to four times as much if norms differ; see decision 16.

A promise is itself an inner product, of [q, z |q|] with the point [m, s] of the list. So lists are
found like candidates: their points lie in groups, and a query compares the points of the most
promising groups.

Plain torch on any device; ``scan`` is the reference for the faster one in ``inverted``.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf, isqrt, sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankfold.types import offsets_of

LIST_FACTOR = 1.6  # times N^(2/3) lists; half as many build faster but read up to 1.4 times as much
MAX_LISTS = 2**17  # all are ranked for the measured queries
_POINTS_PER_LIST = 16  # for k-means; twice as many save 5 % of reading
ROUNDS = 3  # of k-means; five save nothing
BLOCK = 4096  # vectors compared with all centres at a time
MAX_CENTRES_COMPARED = 512  # with more, a vector is compared with the centres of a few groups
GROUPS_PER_VECTOR = 3  # reads at most 5 % more than comparing all centres
_GROUP_BLOCK = 2**17  # vectors compared with groups at a time, on a CPU
_GROUP_BLOCK_GPU = 2**20  # smaller blocks take up to eight times as long
_SLACKS = (0.0, 1.0, 2.0, 3.0, 4.0)  # z of a list
GROUP_SLACK = 2.0  # z of a group: 1 and 3 compare about as many, 0 more


class Lists(NamedTuple):
    """Candidates in L lists, none empty."""

    centres: Tensor  # [L, D] float32, the means m
    spreads: Tensor  # [L] float32, the deviations s
    offsets: Tensor  # [L + 1] int64
    ids: Tensor  # [N] int64, list after list, ascending in each


class Probing(NamedTuple):
    """How a query for ``depth`` candidates is answered."""

    depth: int
    lists: int  # read
    slack: float  # z
    recall: float  # on the tuning queries
    share: float  # of the candidates, read
    groups: int  # compared; if all, every list is compared


Scan = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]  # queries, taken, k: ids, scores


def build_lists(candidates: Tensor, memory_budget: int, seed: int) -> Lists:
    """k-means on a sample of ``candidates`` [N, D]; each candidate joins its nearest centre."""
    n = len(candidates)
    if n == 0:
        return _no_lists(candidates)
    n_lists = min(ceil(LIST_FACTOR * n ** (2 / 3)), MAX_LISTS, n)
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randint(0, n, (_POINTS_PER_LIST * n_lists,), generator=rng).to(candidates.device)
    sample = candidates[chosen].float()
    centres = sample[:n_lists]
    for _ in range(ROUNDS):
        order, sizes = _by_list(_nearest(sample, centres, memory_budget), len(centres))
        centres = _means(sample, order, sizes[sizes > 0])
    order, sizes = _by_list(_nearest(candidates, centres, memory_budget), len(centres))
    return _describe(candidates, order, sizes[sizes > 0])


def promises(lists: Lists, queries: Tensor, slack: float) -> Tensor:
    """The promise of each list; [B, L]."""
    room = slack * torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    return torch.addmm(room * lists.spreads, queries, lists.centres.T)


def points(lists: Lists) -> Tensor:
    """The point [m, s] of each list; [L, D + 1]."""
    return torch.cat([lists.centres, lists.spreads.unsqueeze(1)], dim=1)


def with_room(queries: Tensor, slack: float) -> Tensor:
    """[B, D + 1], whose products with ``points`` are the promises."""
    room = slack * torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    return torch.cat([queries, room], dim=1)


def group_lists(lists: Lists, memory_budget: int) -> Lists:
    """The points in 2 sqrt(L) groups: an inverted file of lists.

    The groups are smaller than those in ``_nearest``, since a query needs more of them.
    """
    if len(lists.spreads) <= MAX_CENTRES_COMPARED:
        return join_groups(lists, torch.zeros_like(lists.offsets[1:]))
    centres = points(lists)
    _, order, sizes = _group(centres, 2 * isqrt(len(centres)), memory_budget)
    return _describe(centres, order, sizes)


def join_groups(lists: Lists, group_of: Tensor) -> Lists:
    """The groups, from the group of each list as ``owners`` gives it; none may be empty."""
    centres = points(lists)
    return _describe(centres, *_by_list(group_of, 0)) if len(centres) else _no_lists(centres)


def owners(lists: Lists) -> Tensor:
    """The list of each candidate; [N]."""
    list_of = torch.empty_like(lists.ids)
    list_of[lists.ids] = torch.repeat_interleave(lists.offsets.diff())
    return list_of


def choose_lists(
    lists: Lists, groups: Lists, queries: Tensor, probing: Probing, scan_points: Scan
) -> Tensor:
    """The lists to read; [B, P], -1 if the compared groups have fewer.

    ``scan_points`` finds the best points in given groups: ``scan`` or a faster equivalent.
    """
    if probing.groups == len(groups.spreads):
        return promises(lists, queries, probing.slack).topk(probing.lists, dim=1).indices
    extended = with_room(queries, probing.slack)
    near = promises(groups, extended, GROUP_SLACK).topk(probing.groups, dim=1).indices
    return scan_points(extended, near, probing.lists)[0]


def choose_probings(
    lists: Lists,
    groups: Lists,
    queries: Tensor,
    truth: Tensor,
    depths: Sequence[int],
    target: float,
) -> list[Probing]:
    """For each depth, the probing with the fewest products that reaches the recall ``target``.

    A true result is found if its list is read: its group is compared, and few lists of the compared
    groups promise more. So one ranking of lists and groups gives the recall for every number of
    lists. It must exceed the target by two standard errors.
    ``truth`` [B, K] holds the best candidates of each query, best first; no depth is above K.
    """
    list_of, group_of, n_groups = owners(lists), owners(groups), len(groups.spreads)
    best = dict.fromkeys(depths, (inf, Probing(0, 0, 0.0, 0.0, 1.0, 0)))
    for slack in _SLACKS:
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
            for probing in _with_fewest_lists(compared, places, sizes, wanted, target):
                cost = products + probing.share * len(list_of)
                if cost < best[probing.depth][0]:
                    best[probing.depth] = cost, probing._replace(slack=slack, groups=n)
    return [best[depth][1] for depth in depths]


def scan(
    candidates: Tensor, lists: Lists, queries: Tensor, taken: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The best k of the lists ``taken`` [B, P]: ids (-1 pads) and scores, [B, k].

    Row b holds the candidates of all lists of query b, side by side; a list -1 is skipped.
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
    """Bytes that ``scan`` allocates per query, at most: vectors, a copy, places, scores."""
    longest = lists.offsets.diff().topk(n_taken).values.sum()
    return int(longest) * (8 * width + 80)


def _nearest(vectors: Tensor, centres: Tensor, memory_budget: int) -> Tensor:
    """The nearest centre of each vector, or with many centres nearly the nearest; [n].

    Many centres lie in sqrt(L) groups; a vector is compared with those of its nearest groups.
    """
    if len(centres) <= MAX_CENTRES_COMPARED:
        return _nearest_of_all(vectors, centres, memory_budget)[1]
    middles, order, sizes = _group(centres, isqrt(len(centres)), memory_budget)
    members = order.split(sizes.tolist())
    each = 16 * (len(middles) + centres.shape[1])
    most = _GROUP_BLOCK if vectors.device.type == "cpu" else _GROUP_BLOCK_GPU
    blocks = vectors.split(max(1, min(memory_budget // each, most)))
    return torch.cat(
        [_nearest_of_few(b.float(), centres, middles, members, memory_budget) for b in blocks]
    )


def _nearest_of_all(vectors: Tensor, centres: Tensor, memory_budget: int) -> tuple[Tensor, Tensor]:
    """The nearest centre: its nearness max_l x . c_l - |c_l|^2 / 2, and its number; [n] each."""
    offsets = -0.5 * centres.square().sum(dim=1)
    rows = memory_budget // (8 * len(centres) + 8 * centres.shape[1])
    blocks = vectors.split(max(1, min(rows, BLOCK)))
    best = [torch.addmm(offsets, b.float(), centres.T).max(dim=1) for b in blocks]
    return torch.cat([b.values for b in best]), torch.cat([b.indices for b in best])


def _nearest_of_few(
    vectors: Tensor, centres: Tensor, middles: Tensor, members: Sequence[Tensor], memory_budget: int
) -> Tensor:
    """The nearest centre among the members of the nearest ``GROUPS_PER_VECTOR`` groups; [n]."""
    offsets = -0.5 * middles.square().sum(dim=1)
    nearness = torch.addmm(offsets, vectors, middles.T)
    groups = nearness.topk(min(GROUPS_PER_VECTOR, len(middles)), dim=1).indices
    best = vectors.new_full((len(vectors),), -torch.inf)
    nearest = groups.new_zeros(len(vectors))
    for column in groups.T:
        order, sizes = _by_list(column, len(middles))
        for rows, mine in zip(order.split(sizes.tolist()), members, strict=True):
            if len(rows) > 0:
                values, places = _nearest_of_all(vectors[rows], centres[mine], memory_budget)
                nearer = values > best[rows]
                best[rows[nearer]], nearest[rows[nearer]] = values[nearer], mine[places[nearer]]
    return nearest


def _group(vectors: Tensor, n_groups: int, memory_budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """At most ``n_groups`` groups, none empty: middles [G, D], places by group, sizes."""
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
    """The mean vector of each list. An embedding bag sums in order, so it is deterministic."""
    return embedding_bag(order, vectors, sizes.cumsum(0) - sizes, mode="mean").float()


def _describe(candidates: Tensor, order: Tensor, sizes: Tensor) -> Lists:
    centres = _means(candidates, order, sizes)
    blocks = candidates.split(_GROUP_BLOCK)  # a block in half precision is copied
    squares = torch.cat([b.float().square().sum(dim=1, keepdim=True) for b in blocks])
    variances = _means(squares, order, sizes)[:, 0] - centres.square().sum(dim=1)
    spreads = (variances / max(centres.shape[1], 1)).clamp(min=0).sqrt()
    return Lists(centres, spreads, offsets_of(sizes), order)


def _no_lists(candidates: Tensor) -> Lists:
    """The lists of no candidates, [0, D]."""
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
    """A probing for each depth that the compared lists suffice for.

    ``compared`` and ``sizes`` [B, L] are by descending promise of the lists; ``places`` [B, K] are
    the places of the true results' lists in that order.
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
    """The number of lists needed, 0 if all are not enough, and the recall.

    ``ranks`` [B, k] of the results' lists; ``n_lists`` is the rank of a list that is not compared.
    """
    hits = torch.zeros(len(ranks), n_lists + 1, device=ranks.device)
    hits.scatter_add_(1, ranks, torch.ones_like(ranks, dtype=hits.dtype))
    recalls = hits[:, :-1].cumsum(dim=1) / ranks.shape[1]
    mean, deviation = recalls.mean(dim=0), recalls.std(dim=0, correction=0)
    enough = (mean - 2 * deviation / sqrt(len(ranks)) >= target).nonzero()
    return (int(enough[0]) + 1, float(mean[enough[0]])) if len(enough) > 0 else (0, 0.0)
