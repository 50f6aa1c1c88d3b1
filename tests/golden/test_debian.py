"""A whole run on bundled data gives the numbers it gave before; what moves them is news."""

from pathlib import Path

import pytest

import rankfold as rf
from rankfold.types import Dataset

SETTINGS = {"solver": "als", "width": 16, "reg": 3.0, "sweeps": 4, "validation_queries": 500}


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


def test_fit_and_evaluation(data: Dataset, tmp_path: Path) -> None:
    ranker = rf.fit("rg2-plain", data, out=tmp_path / "model", **SETTINGS)
    result = rf.evaluate(rf.load(tmp_path / "model"), data, metrics=["ndcg@10", "recall@20"])
    assert dict(result.metrics) == pytest.approx({"ndcg@10": 0.2885, "recall@20": 0.3703}, abs=2e-3)
    assert ranker.model.notes["history"][-1]["loss"] == pytest.approx(246.4645, rel=1e-4)
