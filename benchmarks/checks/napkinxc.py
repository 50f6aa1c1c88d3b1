"""Propensity-scored metrics against napkinXC's, on random rankings.

    python -m benchmarks.checks.napkinxc [--write]

Requires rankfold and napkinXC in one environment; without napkinXC it prints a message and exits.
``--write`` writes a small case with napkinXC's values to ``tests/metrics/files/napkinxc.json``.
"""

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from rankfold.metrics import METRICS
from rankfold.metrics.judged import judge
from rankfold.metrics.propensity import Propensity, inverse_propensity
from rankfold.types import Interactions, from_pairs

KEPT = Path(__file__).parents[2] / "tests" / "metrics" / "files" / "napkinxc.json"
SETTINGS = (Propensity(), Propensity(0.5, 0.4), Propensity(0.6, 2.6), Propensity(1.0, 0.1))
K = 5
TOLERANCE = 1e-5


def main() -> int:
    if find_spec("napkinxc") is None:
        print("skipped: napkinXC is not installed here (pip install napkinxc)")
        return 0
    case = random_case(Random(0), n_queries=2000, n_candidates=3000)
    print(f"napkinXC {version('napkinxc')}, 2000 queries, 3000 candidates, cuts 1 to {K}")
    worst = 0.0
    for propensity in SETTINGS:
        difference = largest_difference(case, propensity)
        print(f"A = {propensity.A:<5} B = {propensity.B:<5} largest difference {difference:.1e}")
        worst = max(worst, difference)
    if "--write" in sys.argv:
        write(random_case(Random(1), n_queries=12, n_candidates=10))
    return int(worst > TOLERANCE)


def random_case(rng: Random, n_queries: int, n_candidates: int) -> dict[str, list[list[int]]]:
    """Candidates with low numbers are frequent; the one in the middle has no training pair.

    Some lists end early, the last query has no positive. Every training query has a pair, because
    napkinXC counts those without one and we do not, and the last candidate has one, because
    napkinXC has none beyond the last in its input.
    """

    def draw(size: int) -> list[int]:
        return sorted({int(n_candidates * rng.random() ** 2) for _ in range(size)})

    drawn = [set(draw(rng.randint(1, 4))) - {n_candidates // 2} for _ in range(2 * n_queries)]
    train = [sorted(row) for row in drawn if row] + [[n_candidates - 1]]
    truth = [draw(rng.randint(1, 12)) for _ in range(n_queries - 1)] + [[]]
    returned = []
    for positives in truth:
        pool = list(dict.fromkeys([*positives, *draw(5)]))
        rng.shuffle(pool)
        returned.append(pool[: rng.randint(0, K + 2)])
    return {"train": train, "truth": truth, "returned": returned}


def largest_difference(case: dict[str, list[list[int]]], propensity: Propensity) -> float:
    ours, theirs = our_values(case, propensity), their_values(case, propensity)
    gaps = [(torch.tensor(ours[name]) - torch.tensor(theirs[name])).abs().max() for name in theirs]
    return float(torch.stack(gaps).max())


def their_values(case: dict[str, list[list[int]]], propensity: Propensity) -> dict[str, Any]:
    from napkinxc.metrics import (  # type: ignore[import-not-found]
        Jain_et_al_inverse_propensity,
        psndcg_at_k,
        psprecision_at_k,
    )

    weights = Jain_et_al_inverse_propensity(case["train"], *propensity)
    of = (case["truth"], case["returned"], weights)
    values = {
        "inverse_propensity": weights,
        "psp": psprecision_at_k(*of, k=K),
        "psp-raw": psprecision_at_k(*of, k=K, normalize=False),
        "psn": psndcg_at_k(*of, k=K),
        "psn-raw": psndcg_at_k(*of, k=K, normalize=False),
    }
    return {name: value.tolist() for name, value in values.items()}


def our_values(case: dict[str, list[list[int]]], propensity: Propensity) -> dict[str, Any]:
    """NapkinXC's values at every cut from 1 to K; queries without a positive count."""
    n = case["train"][-1][0] + 1
    train, truth = interactions(case["train"], n), interactions(case["truth"], n)
    weights = inverse_propensity(train.candidate_counts(), train.n_queries, propensity)
    judged = judge(padded(case["returned"]), truth, inverse_propensity=weights)
    values: dict[str, Any] = {"inverse_propensity": weights.tolist()}
    for name, metric in METRICS.items():
        if metric.reads != "propensity":
            continue
        value, best = metric.value, metric.best
        means = [value(judged, k).double().mean() for k in range(1, K + 1)]
        whole = [1.0 if best is None else best(judged, k).double().mean() for k in range(1, K + 1)]
        values[name] = [float(a / b) for a, b in zip(means, whole, strict=True)]
    return values


def interactions(rows: list[list[int]], n: int) -> Interactions:
    pairs = torch.tensor([(b, y) for b, row in enumerate(rows) for y in row])
    return from_pairs(pairs[:, 0], pairs[:, 1], None, (len(rows), n))


def padded(rows: list[list[int]]) -> Tensor:
    width = max(K, *map(len, rows))
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows])


def write(case: dict[str, list[list[int]]]) -> None:
    """The case and napkinXC's values for it."""
    values = [{"A": p.A, "B": p.B, **their_values(case, p)} for p in SETTINGS]
    document = {"made_by": f"napkinXC {version('napkinxc')}", **case, "values": values}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(part)}" for key, part in document.items())
    KEPT.write_text("{\n" + lines + "\n}\n")
    print(f"wrote {KEPT}")


if __name__ == "__main__":
    sys.exit(main())
