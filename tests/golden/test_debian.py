"""A whole run on bundled data gives the numbers it gave before; what moves them is news."""

from pathlib import Path
from typing import Any

import pytest

import rankfold as rf
from rankfold.types import Dataset

RUNS: list[tuple[str, dict[str, Any], float, float]] = [  # method, settings, ndcg@10, recall@20
    ("rg2", {"width": 32}, 0.3803, 0.5243),
    ("rg2-plain", {"width": 16, "reg": 3.0}, 0.2672, 0.3467),
    ("rg2-plain", {"solver": "als", "width": 16, "reg": 3.0, "sweeps": 4}, 0.2903, 0.3731),
    ("rg2-weighted", {"width": 32, "sweeps": 4}, 0.4001, 0.5802),
    ("rgx", {"width": 32, "sweeps": 4}, 0.3835, 0.5496),
    ("ials", {"width": 32, "sweeps": 6}, 0.4231, 0.6072),
    ("ease", {}, 0.4413, 0.6096),
]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return rf.prepare(source="debian-seealso", kcore=3, seed=0)


def test_preparation(data: Dataset) -> None:
    counts = ("queries", "candidates", "pairs", "train", "validation", "test")
    assert {name: data.summary[name] for name in counts} == {
        "queries": 3370,
        "candidates": 2444,
        "pairs": 21710,
        "train": 16043,
        "validation": 1971,
        "test": 3696,
    }


@pytest.mark.parametrize(("method", "settings", "ndcg", "recall"), RUNS)
def test_fit_and_evaluation(
    data: Dataset,
    tmp_path: Path,
    method: str,
    settings: dict[str, Any],
    ndcg: float,
    recall: float,
) -> None:
    rf.fit(method, data, out=tmp_path / "model", validation_queries=500, **settings)
    result = rf.evaluate(rf.load(tmp_path / "model"), data, metrics=["ndcg@10", "recall@20"])
    assert dict(result.metrics) == pytest.approx({"ndcg@10": ndcg, "recall@20": recall}, abs=2e-3)
