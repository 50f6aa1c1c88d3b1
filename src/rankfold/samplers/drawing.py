"""Draws with replacement from many small distributions at once, one per row."""

import torch
from torch import Tensor


def draw_times(log_w: Tensor, draws: int, rng: torch.Generator) -> Tensor:
    """How often each column of ``log_w`` [B, C] is picked in ``draws`` picks; [B, C].

    A pick takes column c with probability in proportion to exp(log_w). It is the inverse of the
    distribution function at a uniform number, exact up to the rounding of sums in log_w's dtype.
    Here that is turned round: the uniform numbers come in ascending order, and each column looks
    up how many of them lie below its end. Nothing larger than B x draws and B x C is held.

    A row that is -inf throughout has nothing to pick: its times are 0.
    """
    ends = log_w.exp().cumsum(dim=1)
    total = ends[:, -1:].contiguous()
    places = _sorted_uniforms(len(log_w), draws, log_w, rng).mul_(total)
    # below the total even after rounding, so that no column of weight 0 is ever found
    places = torch.minimum(places, total.nextafter(torch.zeros_like(total)))
    below = torch.searchsorted(places, ends, out_int32=True)
    times = below.diff(dim=1, prepend=torch.zeros_like(below[:, :1])).to(log_w.dtype)
    return times * (total > 0)


def draw(weights: Tensor, draws: int, rng: torch.Generator) -> Tensor:
    """``draws`` columns of one distribution [C], in proportion to its weights; [draws]."""
    ends = weights.cumsum(dim=0)
    places = torch.rand(draws, generator=rng, dtype=ends.dtype, device=ends.device) * ends[-1]
    return torch.searchsorted(ends, places, right=True).clamp_(max=len(ends) - 1)


def _sorted_uniforms(rows: int, draws: int, like: Tensor, rng: torch.Generator) -> Tensor:
    """``draws`` ascending uniform numbers per row, from exponential gaps: nothing is sorted.

    With E_i exponential and S_i = E_1 + .. + E_i, the ratios S_i / S_{n+1}, i = 1..n, are
    distributed as n uniform numbers in order.
    """
    shape = (rows, draws + 1)
    gaps = torch.rand(shape, generator=rng, dtype=like.dtype, device=like.device)
    ends = gaps.neg_().log1p_().neg_().cumsum(dim=1)
    return ends[:, :-1] / ends[:, -1:]
