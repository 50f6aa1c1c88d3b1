"""Systematic and multinomial resampling from many small distributions at once, one per row."""

from typing import Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import uniforms
from rankfold.types import Interactions, OwnRows


class Draw(Protocol):
    """How often each column of ``weights`` [B, C] is picked in ``draws`` picks; [B, C].

    A pick takes a column with probability in proportion to its weight. A row of zeros has no picks.
    If the rows are part of a batch, the random numbers are drawn for the whole batch.
    """

    def __call__(
        self, weights: Tensor, draws: int, rng: torch.Generator, own: OwnRows | None = None
    ) -> Tensor: ...


def systematic(
    weights: Tensor, draws: int, rng: torch.Generator, own: OwnRows | None = None
) -> Tensor:
    """Picks at even distances from a random start: one uniform number u per row.

    With W_c the sum of all weights up to column c over their total, column c is picked
    floor(draws W_c + u) - floor(draws W_{c-1} + u) times: draws w_c on average, and always within 1
    of that. It needs no search, and has less variance than independent picks.
    """
    start = uniforms((len(weights), 1), rng, own, weights.dtype)
    return picks_at(weights, draws, start)


def picks_at(weights: Tensor, draws: int, start: Tensor) -> Tensor:
    """The picks of ``systematic`` from given starts [.., B, 1]; of weights [.., B, C]."""
    ends = weights.cumsum(dim=-1)
    total = ends[..., -1:]
    scale = torch.where(total > 0, draws / total, 0.0)
    reached = ends.mul_(scale).add_(start).floor_().clamp_(max=draws)
    times = torch.empty_like(reached)
    times[..., :1] = reached[..., :1]
    torch.sub(reached[..., 1:], reached[..., :-1], out=times[..., 1:])
    return times


def multinomial(
    weights: Tensor, draws: int, rng: torch.Generator, own: OwnRows | None = None
) -> Tensor:
    """Independent picks: the inverse of the distribution function at uniform numbers.

    Exact up to the rounding of sums in the weights' dtype. The numbers are drawn in ascending
    order, and each column counts those below its end.
    """
    ends = weights.cumsum(dim=1)
    places, total = _sorted_uniforms(draws, weights, rng, own), ends[:, -1:]
    places *= total
    # below the total even after rounding, so that no column of weight 0 is picked
    places = torch.minimum(places, total.nextafter(torch.zeros_like(total)))
    below = torch.searchsorted(places, ends, out_int32=True)
    times = below.diff(dim=1, prepend=torch.zeros_like(below[:, :1])).to(weights.dtype)
    return times * (total > 0)


DRAWS: dict[str, Draw] = {"systematic": systematic, "multinomial": multinomial}


def draw(weights: Tensor, draws: int, rng: torch.Generator) -> Tensor:
    """``draws`` columns of one distribution [C], in proportion to its weights; [draws]."""
    ends = weights.cumsum(dim=0)
    places = torch.rand(draws, generator=rng, dtype=ends.dtype, device=ends.device) * ends[-1]
    return torch.searchsorted(ends, places, right=True).clamp_(max=len(ends) - 1)


def draw_one(
    pairs: Interactions, rows: Tensor, rng: torch.Generator, own: OwnRows | None = None
) -> Tensor:
    """One of the candidates of each of ``rows`` [B], drawn uniformly; no row is empty; [B].

    If the rows are part of a batch, the draws are for the whole batch.
    """
    starts = pairs.offsets[rows]
    counts = pairs.offsets[rows + 1] - starts
    drawn = uniforms((len(rows),), rng, own, torch.float64)
    return pairs.candidates[starts + (drawn * counts).long().clamp(max=counts - 1)].long()


def _sorted_uniforms(draws: int, rows: Tensor, rng: torch.Generator, own: OwnRows | None) -> Tensor:
    """``draws`` ascending uniform numbers per row, from exponential gaps, without a sort.

    With E_i exponential and S_i = E_1 + .. + E_i, the ratios S_i / S_{n+1}, i = 1..n, are
    distributed as n uniform numbers in order.
    """
    gaps = uniforms((len(rows), draws + 1), rng, own, rows.dtype)
    ends = gaps.neg_().log1p_().neg_().cumsum(dim=1)
    return ends[:, :-1] / ends[:, -1:]
