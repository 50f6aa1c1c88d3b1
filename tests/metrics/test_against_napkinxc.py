"""Propensity-scored values equal those of napkinXC 0.7.2.

They were written by ``benchmarks/checks/napkinxc.py --write``, from napkinXC's
``Jain_et_al_inverse_propensity``, ``psprecision_at_k`` and ``psndcg_at_k`` (``normalize=False`` for
the raw ones). There queries without a positive count in the raw means; here they are left out.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rankfold.metrics import METRICS
from rankfold.metrics.judged import Judged, judge
from rankfold.metrics.propensity import Propensity, inverse_propensity
from rankfold.types import Interactions, from_pairs

CASE = json.loads((Path(__file__).parent / "files" / "napkinxc.json").read_text())
N = 10


def interactions(rows: list[list[int]]) -> Interactions:
    pairs = torch.tensor([(b, y) for b, row in enumerate(rows) for y in row])
    return from_pairs(pairs[:, 0], pairs[:, 1], None, (len(rows), N))


def weights_of(theirs: dict[str, Any]) -> torch.Tensor:
    train = interactions(CASE["train"])
    given = Propensity(theirs["A"], theirs["B"])
    return inverse_propensity(train.candidate_counts(), train.n_queries, given)


def judged_by(weights: torch.Tensor) -> Judged:
    """The queries with a positive."""
    kept = [b for b, row in enumerate(CASE["truth"]) if row]
    ids = [CASE["returned"][b] + [-1] * (N - len(CASE["returned"][b])) for b in kept]
    truth = interactions([CASE["truth"][b] for b in kept])
    return judge(torch.tensor(ids), truth, inverse_propensity=weights)


def test_the_case_has_the_edge_cases() -> None:
    counts = interactions(CASE["train"]).candidate_counts()
    assert counts.min() == 0 < counts.max()
    assert [] in CASE["truth"]
    assert max(map(len, CASE["truth"])) > 5
    assert min(map(len, CASE["returned"])) < 5
    assert {(v["A"], v["B"]) for v in CASE["values"]} >= {(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)}


@pytest.mark.parametrize("theirs", CASE["values"], ids=lambda v: f"A={v['A']},B={v['B']}")
def test_same_propensities(theirs: dict[str, Any]) -> None:
    assert weights_of(theirs).tolist() == pytest.approx(theirs["inverse_propensity"], rel=1e-6)


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.reads == "propensity"]
)
@pytest.mark.parametrize("theirs", CASE["values"], ids=lambda v: f"A={v['A']},B={v['B']}")
def test_same_values(name: str, theirs: dict[str, Any]) -> None:
    judged, metric = judged_by(weights_of(theirs)), METRICS[name]
    for k, expected in enumerate(theirs[name], start=1):
        value = metric.value(judged, k).double().mean()
        if metric.best is None:
            value *= len(judged.ids) / len(CASE["truth"])
        else:
            value /= metric.best(judged, k).double().mean()
        assert value.item() == pytest.approx(expected, rel=1e-6)


def test_equal_propensities_of_one_give_precision_and_ndcg() -> None:
    judged = judged_by(torch.ones(N))
    for k in range(1, N + 1):
        for ours, plain in (("psp-raw", "precision"), ("psn-raw", "ndcg")):
            values = METRICS[ours].value(judged, k)
            torch.testing.assert_close(values, METRICS[plain].value(judged, k))
