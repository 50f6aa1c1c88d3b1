"""Filters of results: excluded pairs, and lists of allowed candidates.

Filters never cost recall. ``Approximate.search`` fetches deeper until k results are left, and
scores a short list of allowed candidates exactly.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankfold.kernels.topk import top_k_of
from rankfold.types import Allow, Exclude, Interactions, TopK, from_pairs

if TYPE_CHECKING:
    from rankfold.index.exact import Exact

FETCH_DEPTHS = (16, 32, 64, 128, 256, 512, 1024)  # results; for more, search is exact
MAX_SCORED_ALLOWED = 10_000  # allowed candidates, up to which scoring all is faster than filtering
_FIRST_FETCH = 256  # results at first: hidden candidates are often not among the best


class Approximate(ABC):
    """An index that fetches the best candidates, but may miss some; search filters them."""

    exact: "Exact"  # for queries that need more than the largest depth
    candidates: Tensor  # [N, D]
    depths: list[int]  # numbers of results that can be fetched at the index's recall, ascending

    @abstractmethod
    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best of all candidates; [B, depth], best first, -1 pads."""

    @abstractmethod
    def block(self, depth: int) -> int:
        """How many queries to fetch at a time: those that fit in the memory budget."""

    def search(self, vectors: Tensor, k: int, exclude: Exclude = None, allow: Allow = None) -> TopK:
        """As ``Exact.search``, but some of the best may be missing. Scores are float32.

        Any of several candidates that tie for the last result may be returned.
        """
        vectors = vectors.detach().float()
        self.exact.check(vectors, exclude, allow)
        return _search_filtered(self, vectors, min(k, len(self.candidates)), exclude, allow)


def _search_filtered(
    index: Approximate, vectors: Tensor, k: int, exclude: Exclude, allow: Allow
) -> TopK:
    """The k best candidates that are not hidden, at no less than the recall of ``index``.

    Recall falls with rank, so the first half of a fetch has at least the recall of the whole. A
    fetch suffices if its best k are visible, or k in its first half are. Otherwise the next one
    goes deeper, and after the deepest one search is exact.
    """
    n, results = len(index.candidates), no_results(len(vectors), k, vectors.device)
    if results.ids.numel() == 0:
        return results
    if allow is None and (exclude is None or exclude.n_pairs == 0):
        return _search_all(index, vectors, k)
    deepest = max(index.depths, default=0)
    few = allow is not None and len(allow) <= MAX_SCORED_ALLOWED
    if allow is not None and (few or 2 * k * n > len(allow) * deepest):  # or too rare to be fetched
        return index.exact.search(vectors, k, exclude, allow)
    share = 1.0 if allow is None else len(allow) / n
    counts = [0] * len(vectors) if exclude is None else exclude.counts().tolist()
    first = {b: _first_depth(k, hidden, share) for b, hidden in enumerate(counts)}
    open_rows = _by_depth(index.depths, first)
    while open_rows:
        depth = min(open_rows)
        some = torch.tensor(sorted(open_rows.pop(depth)), device=vectors.device)
        if depth == EXACT:
            hidden = _rows_of(exclude, some)
            _write_rows(results, some, index.exact.search(vectors[some], k, hidden, allow))
            continue
        deeper: dict[int, int] = {}
        for rows in some.split(index.block(depth)):
            fetched = index.fetch(vectors[rows], depth)
            visible = ~is_hidden(fetched.ids, _rows_of(exclude, rows), allow, n)
            _write_rows(results, rows, _best_visible(fetched, visible, k))
            near = visible[:, : max(k, depth // 2)].sum(dim=1).tolist()
            for b, inside, left in zip(rows.tolist(), near, visible.sum(1).tolist(), strict=True):
                if inside < k:
                    most = k + counts[b] if allow is None else n
                    likely = depth * k // left if left else 4 * depth  # of the k-th visible
                    deeper[b] = max(2 * min(likely, most), 2 * depth)
        for place, rows_there in _by_depth(index.depths, deeper).items():
            open_rows[place] = open_rows.get(place, []) + rows_there
    return results


EXACT = 2**62  # stands for exact search: deeper than any fetch


def _search_all(index: Approximate, vectors: Tensor, k: int) -> TopK:
    """The same without filters: the common case, and a short one."""
    depth = next((depth for depth in index.depths if depth >= k), EXACT)
    if depth == EXACT:
        return index.exact.search(vectors, k)
    step = index.block(depth)
    if len(vectors) > step:
        parts = [_search_all(index, part, k) for part in vectors.split(step)]
        return TopK(torch.cat([p.ids for p in parts]), torch.cat([p.scores for p in parts]))
    fetched = index.fetch(vectors, depth)
    results = _best_visible(fetched, None, k)
    lacking = results.ids[:, -1] < 0
    if bool(lacking.any()):
        rows = lacking.nonzero()[:, 0]
        _write_rows(results, rows, index.exact.search(vectors[rows], k))
    return results


def _first_depth(k: int, hidden: int, share: float) -> int:
    """How many results to fetch first for a query with ``hidden`` excluded candidates."""
    wanted = round((k + hidden) / share)
    return k if wanted == k else max(k, min(2 * wanted, max(_FIRST_FETCH, 2 * k)))


def _by_depth(depths: Sequence[int], wanted: Mapping[int, int]) -> dict[int, list[int]]:
    """Rows by the depth to fetch: the smallest of ``depths`` that is large enough."""
    grouped: dict[int, list[int]] = {}
    for row, least in wanted.items():
        place = bisect_left(depths, least)
        grouped.setdefault(depths[place] if place < len(depths) else EXACT, []).append(row)
    return grouped


def _best_visible(fetched: TopK, visible: Tensor | None, k: int) -> TopK:
    """The best k visible results of a fetch, best first; ``visible`` None: all are.

    Equal scores are ordered by id. They are rare, so it is first checked whether there are any.
    """
    ids, scores = fetched
    if bool((scores[:, 1:] == scores[:, :-1]).any()):
        seen = ids >= 0 if visible is None else visible
        return best_k(ids, scores.masked_fill(~seen, -torch.inf), k)
    if visible is None:
        return TopK(ids[:, :k], scores[:, :k])
    places = (~visible).sort(dim=1, stable=True).indices[:, :k]
    return TopK(ids.gather(1, places), scores.gather(1, places))


def all_hidden(exclude: Exclude, allow: Tensor, shape: tuple[int, int]) -> Interactions:
    """All hidden pairs, for a search that takes no list of allowed candidates."""
    hidden = torch.ones(shape, dtype=torch.bool, device=allow.device)
    hidden[:, allow] = False
    if exclude is not None:
        rows, columns = exclude.query_of_pair().long(), exclude.candidates.long()
        hidden[rows.to(allow.device), columns.to(allow.device)] = True
    rows, columns = hidden.nonzero().T
    return from_pairs(rows, columns, None, shape)


def pairs_among(pairs: Interactions, allow: Tensor) -> Interactions:
    """The pairs whose candidate is allowed, with candidates as places in ``allow`` (ascending)."""
    candidates = pairs.candidates.to(allow.device, torch.int64)
    kept, places = _find(candidates, allow)
    rows = pairs.query_of_pair().to(allow.device, torch.int64)
    grades = None if pairs.grades is None else pairs.grades.to(allow.device)[kept]
    return from_pairs(rows[kept], places[kept], grades, (pairs.n_queries, len(allow)))


def is_hidden(ids: Tensor, exclude: Exclude, allow: Allow, n: int) -> Tensor:
    """Which of the ids [B, K] are pads, excluded for their query, or not allowed."""
    hidden = ids < 0
    if exclude is not None and exclude.n_pairs > 0:
        pairs = (exclude.query_of_pair().long() * n + exclude.candidates).to(ids.device)
        asked = torch.arange(len(ids), device=ids.device).unsqueeze(1) * n + ids
        hidden |= _find(asked, pairs)[0]
    if allow is not None:
        hidden |= ~_find(ids, allow.to(ids.device))[0]
    return hidden


def best_k(ids: Tensor, scores: Tensor, k: int) -> TopK:
    """The k largest scores of [B, K'], equal ones by ascending id; padded to k."""
    if ids.shape[1] < k:
        more = no_results(len(ids), k - ids.shape[1], ids.device)
        ids, scores = torch.cat([ids, more.ids], 1), torch.cat([scores, more.scores.to(scores)], 1)
    return top_k_of(ids, scores, k)


def no_results(n: int, k: int, device: torch.device) -> TopK:
    """No results; [n, k]."""
    ids = torch.full((n, k), -1, device=device)
    return TopK(ids, torch.full((n, k), -torch.inf, device=device))


def _write_rows(results: TopK, rows: Tensor, part: TopK) -> None:
    """Write the results of some rows."""
    results.ids[rows], results.scores[rows] = part.ids, part.scores.to(results.scores)


def _rows_of(exclude: Exclude, rows: Tensor) -> Exclude:
    """Some rows, ascending."""
    if exclude is None or len(rows) == exclude.n_queries:
        return exclude
    return exclude.select(rows.to(exclude.offsets.device))


def _find(values: Tensor, ascending: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the values are in the ascending, distinct list, and where."""
    if len(ascending) == 0:
        return torch.zeros_like(values, dtype=torch.bool), torch.zeros_like(values)
    places = torch.searchsorted(ascending, values).clamp(max=len(ascending) - 1)
    return ascending[places] == values, places
