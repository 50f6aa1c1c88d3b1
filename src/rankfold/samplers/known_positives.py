"""Which of the candidates in a pool are no negatives, because the query chose them."""

import torch
from torch import Tensor

from rankfold.kernels.decoupled_softmax import Places
from rankfold.types import Batch, Interactions


def hits(pairs: Interactions, queries: Tensor, ids: Tensor) -> Tensor:
    """True where the pool's candidate is one that the query chose; [B, C].

    Args:
        pairs: what each query chose, on the device of the batch.
        queries: [B], rows of ``pairs``; repeats are fine.
        ids: the pool, [C] for all queries or [B, C].
    """
    chosen = pairs.select(queries)
    return _in_shared(chosen, ids) if ids.dim() == 1 else _in_own(chosen, ids)


def places(pairs: Interactions, queries: Tensor, ids: Tensor) -> Places:
    """Where ``hits`` is true, in a pool for all queries without repeats, ascending."""
    chosen = pairs.select(queries)
    found, columns = _look_up(chosen, ids)
    return Places(chosen.query_of_pair()[found].long(), columns)


def own(batch: Batch, ids: Tensor) -> Tensor:
    """True where the pool's candidate is the row's own positive; [B, C]."""
    return batch.chosen[:, None] == ids


def hits_by_loops(pairs: Interactions, queries: Tensor, ids: Tensor) -> Tensor:
    """The definition of ``hits``."""
    pool = ids.expand(len(queries), ids.shape[-1])
    found = torch.zeros(pool.shape, dtype=torch.bool)
    for b, query in enumerate(queries.tolist()):
        start, stop = pairs.offsets[query : query + 2].tolist()
        chosen = set(pairs.candidates[start:stop].tolist())
        found[b] = torch.tensor([y in chosen for y in pool[b].tolist()], dtype=torch.bool)
    return found


def _in_shared(chosen: Interactions, ids: Tensor) -> Tensor:
    """Looks up each pair of the batch in the pool, then marks every column of its candidate."""
    order = ids.argsort()
    pool, times = ids[order].to(chosen.candidates.dtype).unique_consecutive(return_counts=True)
    found, places = _look_up(chosen, pool)
    rows = chosen.query_of_pair()[found].long()

    # a candidate's columns lie side by side in ``order``
    first, times = (times.cumsum(0) - times)[places], times[places]
    total = int(times.sum())
    shift = torch.repeat_interleave(first - (times.cumsum(0) - times), times, output_size=total)
    columns = order[torch.arange(total, device=ids.device) + shift]
    rows = torch.repeat_interleave(rows, times, output_size=total)
    marks = torch.zeros(chosen.n_queries * len(ids), dtype=torch.bool, device=ids.device)
    marks[rows * len(ids) + columns] = True
    return marks.view(chosen.n_queries, len(ids))


def _look_up(chosen: Interactions, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Which pairs have their candidate in the pool, ascending and without repeats, and where."""
    places = torch.searchsorted(pool, chosen.candidates).clamp_(max=len(pool) - 1)
    found = (pool[places] == chosen.candidates).nonzero()[:, 0]
    return found, places[found]


SIEVE = 2**22  # cells; of a batch's pairs, mostly 10^4 to 10^5, few share one


def _in_own(chosen: Interactions, ids: Tensor) -> Tensor:
    """Looks up each column among the pairs of the batch, sorted as they are.

    A sieve first: most columns are no hit, which one look at a table of remainders tells.
    """
    n = chosen.n_candidates
    known = chosen.query_of_pair().long() * n + chosen.candidates
    if len(known) == 0:
        return torch.zeros_like(ids, dtype=torch.bool)
    asked = (torch.arange(len(ids), device=ids.device)[:, None] * n + ids).flatten()
    sieve = torch.zeros(SIEVE, dtype=torch.bool, device=ids.device)
    sieve[known % SIEVE] = True
    maybe = sieve[asked % SIEVE].nonzero()[:, 0]
    places = torch.searchsorted(known, asked[maybe]).clamp_(max=len(known) - 1)
    marks = torch.zeros_like(asked, dtype=torch.bool)
    marks[maybe] = known[places] == asked[maybe]
    return marks.view(ids.shape)
