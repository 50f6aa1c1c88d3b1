"""Exact search by inner product, in blocks: every candidate is scored, nothing is M x N."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.kernels.topk import best, top_k, top_k_reference
from rankfold.types import Interactions, TopK

ROWS = 256  # queries at a time: enough for a fast product, few enough for the cache
BLOCK_BYTES = 2**26  # of scores at a time: beyond, memory traffic costs more than it saves


class Plan(NamedTuple):
    """How many queries and candidates are scored at a time."""

    rows: int
    columns: int


class Exact:
    """All candidates, scored for every query. Equal scores come by ascending id."""

    def __init__(self, candidates: Tensor, memory_budget: int = 2**30) -> None:
        self.candidates = candidates  # [N, D]
        self.memory_budget = memory_budget
        _check_no_nan(candidates, "candidate")

    def search(self, vectors: Tensor, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of each vector; row b of ``exclude`` is left out for vector b.

        Args:
            vectors: [B, D].
            k: how many.
            exclude: B rows, or None.

        Returns:
            ids and scores [B, min(k, N)], padded with -1 and -inf where fewer are left.
        """
        _check_no_nan(vectors, "query")
        n, k = len(self.candidates), min(k, len(self.candidates))
        ids = torch.empty(len(vectors), k, dtype=torch.int64, device=vectors.device)
        scores = torch.empty(len(vectors), k, dtype=vectors.dtype, device=vectors.device)
        plan = make_plan(n, vectors.element_size(), self.memory_budget)
        buffer = vectors.new_empty(plan.rows * plan.columns)
        for start in range(0, len(vectors), plan.rows):
            block = vectors[start : start + plan.rows]
            hidden = None if exclude is None else _pairs(exclude, start, len(block))
            found = self._search_block(block, k, hidden, plan, buffer)
            ids[start : start + plan.rows], scores[start : start + plan.rows] = found
        return TopK(ids, scores)

    def _search_block(
        self,
        block: Tensor,
        k: int,
        hidden: tuple[Tensor, Tensor] | None,
        plan: Plan,
        buffer: Tensor,
    ) -> TopK:
        """One block of queries against all candidates, tile by tile."""
        find = top_k_reference if block.dtype == torch.float64 else top_k
        merged: TopK | None = None
        for first in range(0, len(self.candidates), plan.columns):
            tile = self.candidates[first : first + plan.columns]
            scores = buffer[: len(block) * len(tile)].view(len(block), len(tile))
            torch.mm(block, tile.T, out=scores)
            if hidden is not None:
                rows, columns = hidden
                here = (columns >= first) & (columns < first + len(tile))
                scores[rows[here], columns[here] - first] = -torch.inf
            found = find(scores, k)
            found = TopK(torch.where(found.ids < 0, -1, found.ids + first), found.scores)
            merged = found if merged is None else _merge(merged, found, k)
        if merged is None:  # no candidates at all
            return TopK(block.new_empty(len(block), 0).long(), block.new_empty(len(block), 0))
        return merged


def make_plan(n_candidates: int, item_bytes: int, memory_budget: int) -> Plan:
    """Blocks whose scores, and what finding the best of them needs, stay within the budget.

    The best of a block need up to three times its scores again (keys are int64).
    """
    entries = max(1, min(BLOCK_BYTES, memory_budget // 4) // item_bytes)
    rows = max(1, min(ROWS, entries))
    columns = max(1, min(n_candidates, entries // rows))
    rows = max(1, min(ROWS, entries // columns))
    return Plan(rows, columns)


def _pairs(exclude: Interactions, start: int, n: int) -> tuple[Tensor, Tensor]:
    """Row and column of the excluded pairs of ``n`` queries from ``start`` on."""
    offsets = exclude.offsets[start : start + n + 1]
    rows = torch.repeat_interleave(torch.arange(n, device=offsets.device), offsets.diff())
    return rows, exclude.candidates[int(offsets[0]) : int(offsets[-1])].long()


def _merge(one: TopK, other: TopK, k: int) -> TopK:
    """The best of two lists; all ids of ``other`` are above those of ``one``, so it breaks ties."""
    ids, scores = (torch.cat(pair, dim=1) for pair in zip(one, other, strict=True))
    if scores.dtype == torch.float64:
        found = top_k_reference(scores, k)
        return TopK(
            torch.where(found.ids < 0, -1, ids.gather(1, found.ids.clamp(min=0))), found.scores
        )
    return best(scores, ids.clamp(min=0), min(k, ids.shape[1]))


def _check_no_nan(vectors: Tensor, what: str) -> None:
    bad = torch.isnan(vectors).any(dim=1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise UserError(
            f"the vector of {what} {row} holds NaN", hint="the fit diverged: try a larger reg"
        )
