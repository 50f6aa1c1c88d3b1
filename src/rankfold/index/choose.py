"""The kind of index that suits some candidates."""

from __future__ import annotations

from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.ann import build_inverted, lists_pay
from rankfold.index.compressed import build_compressed
from rankfold.index.exact import build_exact
from rankfold.index.kind import Saveable

LARGEST_COPY = 2**32  # bytes: an inverted file holds the vectors again, in half precision


def choose_kind(candidates: Tensor, target: float) -> str:
    """Exact where candidates are few, or none may be missed; codes where a copy is too large."""
    if target >= 1 or not lists_pay(candidates):
        return "exact"
    return "inverted" if 2 * candidates.numel() <= LARGEST_COPY else "compressed"


def build_chosen(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Saveable:
    """The index that ``choose_kind`` names; where codes miss the target, an inverted file."""
    kind = choose_kind(candidates, target)
    if kind == "exact":
        return build_exact(candidates, memory_budget, queries=queries, target=target, seed=seed)
    if kind == "compressed":
        try:
            return build_compressed(
                candidates, memory_budget, queries=queries, target=target, seed=seed
            )
        except UserError:
            pass
    return build_inverted(candidates, memory_budget, queries=queries, target=target, seed=seed)
