"""Candidates of a pool that a query chose: they are not negatives."""

import torch
from torch import Tensor

from rankfold.kernels.decoupled_softmax import Places
from rankfold.types import Batch, Interactions


def hits(pairs: Interactions, queries: Tensor, ids: Tensor) -> Tensor:
    """True where the query chose the pool's candidate; [B, C].

    Args:
        pairs: the candidates of each query, on the device of the batch.
        queries: [B], rows of ``pairs``; may repeat.
        ids: the pool, [C] for all queries or [B, C].
    """
    chosen = pairs.select(queries)
    return _in_shared(chosen, ids) if ids.dim() == 1 else _in_own(chosen, ids)


def places(pairs: Interactions, queries: Tensor, ids: Tensor) -> Places:
    """Where ``hits`` is true in a shared pool whose ids are distinct and ascending."""
    chosen = pairs.select(queries)
    in_pool, columns = _look_up(chosen, ids)
    return Places(chosen.query_of_pair()[in_pool].long(), columns)


def own(batch: Batch, ids: Tensor) -> Tensor:
    """True where the pool's candidate is the row's own positive; [B, C]."""
    return batch.chosen[:, None] == ids


def hits_by_loops(pairs: Interactions, queries: Tensor, ids: Tensor) -> Tensor:
    """The definition of ``hits``: the reference for tests."""
    pool = ids.expand(len(queries), ids.shape[-1])
    marks = torch.zeros(pool.shape, dtype=torch.bool)
    for b, query in enumerate(queries.tolist()):
        start, stop = pairs.offsets[query : query + 2].tolist()
        chosen = set(pairs.candidates[start:stop].tolist())
        marks[b] = torch.tensor([y in chosen for y in pool[b].tolist()], dtype=torch.bool)
    return marks


def _in_shared(chosen: Interactions, ids: Tensor) -> Tensor:
    """Look up each pair of the batch in the pool, then mark every column of its candidate."""
    order = ids.argsort()
    pool, times = ids[order].to(chosen.candidates.dtype).unique_consecutive(return_counts=True)
    in_pool, places = _look_up(chosen, pool)
    rows = chosen.query_of_pair()[in_pool].long()

    # a candidate's columns are adjacent in ``order``
    first, times = (times.cumsum(0) - times)[places], times[places]
    total = int(times.sum())
    shift = torch.repeat_interleave(first - (times.cumsum(0) - times), times, output_size=total)
    columns = order[torch.arange(total, device=ids.device) + shift]
    rows = torch.repeat_interleave(rows, times, output_size=total)
    marks = torch.zeros(chosen.n_queries * len(ids), dtype=torch.bool, device=ids.device)
    marks[rows * len(ids) + columns] = True
    return marks.view(chosen.n_queries, len(ids))


def _look_up(chosen: Interactions, pool: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs whose candidate is in the pool (distinct, ascending), and its places."""
    places = torch.searchsorted(pool, chosen.candidates).clamp_(max=len(pool) - 1)
    in_pool = (pool[places] == chosen.candidates).nonzero()[:, 0]
    return in_pool, places[in_pool]


SIEVE_SIZE = 2**22  # cells; a batch has 10^4 to 10^5 pairs, so few share one


def _in_own(chosen: Interactions, ids: Tensor) -> Tensor:
    """Look up each column among the sorted pairs of the batch.

    Most columns are not hits; a sieve of remainders rules them out first.
    """
    n = chosen.n_candidates
    known = chosen.query_of_pair().long() * n + chosen.candidates
    if len(known) == 0:
        return torch.zeros_like(ids, dtype=torch.bool)
    keys = (torch.arange(len(ids), device=ids.device)[:, None] * n + ids).flatten()
    sieve = torch.zeros(SIEVE_SIZE, dtype=torch.bool, device=ids.device)
    sieve[known % SIEVE_SIZE] = True
    maybe = sieve[keys % SIEVE_SIZE].nonzero()[:, 0]
    places = torch.searchsorted(known, keys[maybe]).clamp_(max=len(known) - 1)
    marks = torch.zeros_like(keys, dtype=torch.bool)
    marks[maybe] = known[places] == keys[maybe]
    return marks.view(ids.shape)
