"""The kind of index to use for given candidates."""

from contextlib import suppress
from typing import Any

from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.compressed import build_compressed
from rankfold.index.exact import Exact
from rankfold.index.inverted import build_inverted, lists_are_faster
from rankfold.index.kind import SavableIndex

MAX_COPY_BYTES = 2**32  # an inverted file holds a copy of the vectors in half precision


def choose_kind(candidates: Tensor, target: float) -> str:
    """Exact for few candidates or full recall; compressed if a copy would be too large."""
    if target >= 1 or not lists_are_faster(candidates):
        return "exact"
    return "inverted" if 2 * candidates.numel() <= MAX_COPY_BYTES else "compressed"


def build_chosen(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> SavableIndex:
    """An index of the chosen kind; an inverted file if compressed codes miss the target."""
    kind = choose_kind(candidates, target)
    if kind == "exact":
        return Exact(candidates, memory_budget)
    how: dict[str, Any] = {"queries": queries, "target": target, "seed": seed}
    if kind == "compressed":
        with suppress(UserError):
            return build_compressed(candidates, memory_budget, **how)
    return build_inverted(candidates, memory_budget, **how)
