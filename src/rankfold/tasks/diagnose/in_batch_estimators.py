"""In-batch estimators of softmax's gradient: the weights they give to candidates of a batch.

A batch has candidates drawn by popularity, one per pair. Every estimator of a query's gradient is
a weighted mean of the gradients of the batch's scores; [chen2022] and docs/concepts/negatives.md.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rankfold.samplers.bir import pick_weights
from rankfold.samplers.corrections import RESAMPLED
from rankfold.samplers.resampling import Draw

BLOCK = 2**19  # drawn candidates in memory at a time

Estimate = Callable[[Tensor, Tensor, Draw, torch.Generator], Tensor]
"""``(scores [R, B], log_pop [R, B], draw, rng) -> log weights [R, B]`` before normalisation."""


def _resampled(name: str) -> Estimate:
    def estimate(scores: Tensor, log_pop: Tensor, draw: Draw, rng: torch.Generator) -> Tensor:
        weights = pick_weights(scores, log_pop, None)
        times = draw(weights.clone(), scores.shape[1], rng)
        logits = torch.zeros_like(scores)
        if name != "sir":  # its picks count equally
            logits = RESAMPLED[name](scores, weights, scores.shape[1])
        return logits + times.log()

    return estimate


ESTIMATORS: dict[str, Estimate] = {
    "ssl": lambda scores, _log_pop, _draw, _rng: scores,
    "ssl-pop": lambda scores, log_pop, _draw, _rng: scores - log_pop,
    **{f"bir {name}": _resampled(name) for name in RESAMPLED},
}


def drawn_batches(
    popularity: Tensor, size: int, draws: int, rng: torch.Generator
) -> Iterator[Tensor]:
    """Batches of ``size`` candidates, ``draws`` candidates in all, at least two batches; [R, B]."""
    ends = popularity.double().cumsum(dim=0)
    left = max(2, draws // size)
    while left > 0:
        count = min(left, max(1, BLOCK // size))
        places = torch.rand(count, size, generator=rng, dtype=torch.float64) * ends[-1]
        yield torch.searchsorted(ends, places, right=True).clamp_(max=len(ends) - 1)
        left -= count
