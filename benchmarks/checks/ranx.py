"""Metrics against ranx's, on random rankings: the largest difference for any query.

    python -m benchmarks.checks.ranx

Requires rankfold and ranx in one environment; without ranx it prints a message and exits. It runs
for a minute, mostly because ranx compiles on first use.
"""

import sys
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from rankfold.metrics import METRICS
from rankfold.metrics.judged import judge
from rankfold.types import Interactions, from_pairs

B, N, K = 2000, 5000, 100
CUTS = (1, 10, 100)
TOLERANCE = 1e-5
THEIRS = {
    "ndcg-graded": "ndcg",
    "mrr": "mrr",
    "map": "map",
    "recall": "recall",
    "precision": "precision",
    "hit": "hit_rate",
}


def main() -> int:
    if find_spec("ranx") is None:
        print("skipped: ranx is not installed here (pip install ranx)")
        return 0
    from ranx import evaluate  # type: ignore[import-not-found]

    ids, truth = random_ranking(torch.Generator().manual_seed(0))
    qrels, run = as_ranx(ids, truth)
    judged = judge(ids, truth)
    worst = 0.0
    print(f"{B} queries, {N} candidates, {truth.n_pairs} positives, lists of 1 to {K}")
    for name, theirs in THEIRS.items():
        for k in CUTS:
            values = evaluate(qrels, run, f"{theirs}@{k}", return_mean=False)
            difference = (
                (METRICS[name].value(judged, k) - torch.as_tensor(values)).abs().max().item()
            )
            print(f"{f'{name}@{k}':<16} largest difference {difference:.1e}")
            worst = max(worst, difference)
    print(f"largest of all {worst:.1e}, allowed {TOLERANCE:.0e}")
    return int(worst > TOLERANCE)


def random_ranking(rng: torch.Generator) -> tuple[Tensor, Interactions]:
    """Each query has 1 to 30 positives of grade 1 to 3, and 1 to K ids, some of them positive."""
    scores = torch.rand(B, N, generator=rng)  # [B, N] is small here
    positive = torch.rand(B, N, generator=rng).argsort(dim=1)[:, :30]
    kept = torch.arange(30) < torch.randint(1, 31, (B, 1), generator=rng)
    queries = torch.arange(B)[:, None].expand(B, 30)[kept]
    pairs = (queries * N + positive[kept]).sort().values
    queries, candidates = pairs // N, pairs % N
    grades = torch.randint(1, 4, (len(pairs),), generator=rng).float()
    scores[queries, candidates] += 0.05 * torch.rand(len(pairs), generator=rng)
    ids = scores.topk(K, dim=1).indices
    ids[torch.arange(K) >= torch.randint(1, K + 1, (B, 1), generator=rng)] = -1
    return ids, from_pairs(queries, candidates, grades, (B, N))


def as_ranx(ids: Tensor, truth: Interactions) -> tuple[Any, Any]:
    """The same in ranx's format; the scores only give the order, and none are equal.

    Names of queries are padded because ranx sorts them as text.
    """
    from ranx import Qrels, Run

    assert truth.grades is not None
    qrels: dict[str, dict[str, int]] = {f"{b:06d}": {} for b in range(B)}
    pairs = zip(truth.query_of_pair().tolist(), truth.candidates.tolist(), strict=True)
    for (b, y), grade in zip(pairs, truth.grades.tolist(), strict=True):
        qrels[f"{b:06d}"][str(y)] = int(grade)
    run = {
        f"{b:06d}": {str(y): float(K - place) for place, y in enumerate(row) if y >= 0}
        for b, row in enumerate(ids.tolist())
    }
    return Qrels(qrels), Run(run)


if __name__ == "__main__":
    sys.exit(main())
