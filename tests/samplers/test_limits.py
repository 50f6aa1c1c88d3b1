"""The limits of the estimators as the batch grows; docs/concepts/negatives.md has the table.

The gradient of a loss with respect to the scores is minus 1 at the positive plus a weight on each
candidate. Full softmax has the weights softmax(s). Here the weights of each estimator are simulated
and compared with several possible limits.
"""

import pytest
import torch
from torch import Tensor

from rankfold.samplers.bir import Bir
from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.samplers.in_batch import InBatch
from rankfold.samplers.popularity import PopularityMode, popularity
from rankfold.types import Batch

QUERIES = 40  # all with the same scores: only the picks differ
S = torch.tensor([0.9, -0.6, 0.3, 1.2, -1.1, 0.1, -0.3, 0.7, -0.8, 0.5, 1.0, -0.2])
POSITIVE = 3


def log_pop(counts: Tensor, mode: PopularityMode = "count") -> Tensor:
    return popularity(counts, mode).log().float()


def limits(counts: Tensor) -> dict[str, Tensor]:
    pop = log_pop(counts)
    logits = {"s": S, "2s": 2 * S, "s + log pop": S + pop, "s + .25 log pop": S + 0.25 * pop}
    return {name: value.softmax(0) for name, value in logits.items()}


def batch_of(counts: Tensor, size: int, rng: torch.Generator) -> Batch:
    pop = popularity(counts, "count")
    candidates = torch.multinomial(pop, size, replacement=True, generator=rng)
    return Batch(torch.zeros(size, dtype=torch.int64), candidates)


def per_candidate(ids: Tensor, weights: Tensor) -> Tensor:
    return torch.zeros(len(S)).index_add_(0, ids.flatten(), weights.flatten()) / len(weights)


def softmax_weights(ids: Tensor, positive: Tensor, logits: Tensor) -> Tensor:
    """Of the softmax among the positive and the columns [rows, columns], per candidate."""
    ids = torch.cat([torch.full_like(ids[:, :1], POSITIVE), ids], dim=1)
    return per_candidate(ids, torch.cat([positive[:, None], logits], dim=1).softmax(dim=1))


def in_batch(
    counts: Tensor, size: int, rng: torch.Generator, mode: PopularityMode, name: str
) -> Tensor:
    """SSL ("none") and SSL-Pop ("all")."""
    pool = InBatch(log_pop(counts, mode)).propose(batch_of(counts, size, rng), rng)
    pool = pool._replace(positive_log_q=log_pop(counts, mode)[[POSITIVE]])
    positive, logits = CORRECTIONS[name](S[[POSITIVE]], S[pool.ids][None], pool)
    return softmax_weights(pool.ids[None], positive, logits)


def bir(counts: Tensor, size: int, rng: torch.Generator, name: str) -> Tensor:
    sampler = Bir(log_pop(counts), draws=size)
    pool = sampler.propose(batch_of(counts, size, rng), rng)
    scores = S[pool.ids].expand(QUERIES, size)
    drawn = sampler.resample(scores, pool, torch.ones_like(scores, dtype=torch.bool), rng)
    ids, (picks,) = pool.ids.expand(QUERIES, size), drawn.groups
    if name == "sir":  # the loss is -s(positive) + the mean of the picks' scores
        return per_candidate(ids, picks.times / size)
    logits = RESAMPLED[name](scores, picks.weights, drawn.draws) + picks.times.log()
    return softmax_weights(ids, S[[POSITIVE]].expand(QUERIES), logits)


ESTIMATORS = {
    "ssl": (lambda *a: in_batch(*a, "count", "none"), "s + log pop"),
    "ssl-pop, count": (lambda *a: in_batch(*a, "count", "all"), "s"),
    "ssl-pop, power": (lambda *a: in_batch(*a, "power", "all"), "s + .25 log pop"),
    "bir, released": (lambda *a: bir(*a, "released"), "2s"),
    "bir, appendix": (lambda *a: bir(*a, "appendix"), "s + log pop"),
    "bir, sir": (lambda *a: bir(*a, "sir"), "s"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_limit(name: str, counts: Tensor, rng: torch.Generator) -> None:
    estimate, limit = ESTIMATORS[name]
    distance = {}
    for size in (64, 16384):
        weights = torch.stack([estimate(counts, size, rng) for _ in range(10)])
        distances = {other: (weights - to).abs().sum(dim=1) for other, to in limits(counts).items()}
        distance[size] = {other: float(value.mean()) / 2 for other, value in distances.items()}
    near = distance[16384]
    others = [value for other, value in near.items() if other != limit]
    assert near[limit] < min(others) / 4  # this limit and no other
    assert near[limit] < distance[64][limit] / 3  # larger batches are closer


def test_the_limits_differ(counts: Tensor) -> None:
    result = list(limits(counts).values())
    for i, a in enumerate(result):
        for b in result[:i]:
            assert float((a - b).abs().sum()) / 2 > 0.08
