"""Times of pairs: kept where they are read, through files and every change of the rows."""

from pathlib import Path

import polars as pl
import pytest
import torch

import rankfold as rf
from rankfold.data.build.align import renumber
from rankfold.types import Interactions

TABLE = pl.DataFrame(
    {
        "query": [1, 1, 1, 1, 1, 2, 2],
        "candidate": [9, 8, 7, 6, 5, 9, 5],
        "time": [50.0, 10.0, 40.0, 20.0, 30.0, 5.0, 6.0],
    }
)


def timed(rows: Interactions) -> dict[tuple[int, int], float]:
    assert rows.times is not None
    pairs = zip(rows.query_of_pair().tolist(), rows.candidates.tolist(), strict=True)
    return dict(zip(pairs, rows.times.tolist(), strict=True))


def test_splits_by_time_keep_times(tmp_path: Path) -> None:
    data = rf.prepare(TABLE, split="last", out=tmp_path / "data")
    rows = rf.load_data(tmp_path / "data").split("train")
    assert timed(rows) == {(0, 1): 20.0, (0, 3): 10.0, (0, 0): 30.0, (1, 0): 6.0, (1, 4): 5.0}
    assert data.split("validation").times is not None
    assert timed(data.split("test")) == {(0, 4): 50.0}


def test_a_named_column_is_kept_and_others_are_not_read() -> None:
    assert rf.prepare(TABLE, time_column="time").split("train").times is not None
    assert rf.prepare(TABLE).split("train").times is None


def test_every_change_of_the_rows_keeps_times() -> None:
    data = rf.prepare(TABLE, split=(1, 0, 0), time_column="time")
    rows = data.split("train")
    every = timed(rows)
    assert timed(rows.transpose()) == {(y, x): t for (x, y), t in every.items()}
    assert timed(rows.keep(rows.candidates > 2)) == {p: t for p, t in every.items() if p[1] > 2}
    assert timed(rows.select(torch.tensor([1]))) == {(0, 0): 6.0, (0, 4): 5.0}
    moved = renumber(rows, torch.tensor([4, 3, 2, 1, 0]), 5)
    assert timed(moved) == {(x, 4 - y): t for (x, y), t in every.items()}
    one = rows.keep(rows.candidates == 4)
    assert timed(rows.without(one).union(one)) == every
    assert rows.union(one.keep(one.candidates < 0)).times is not None


@pytest.mark.parametrize("method", ["bpr", "ease"])
def test_models_without_an_order_keep_no_times(method: str) -> None:
    model = rf.fit(method, rf.prepare(TABLE, split=(1, 0, 0), time_column="time"))
    assert model.seen.times is None
