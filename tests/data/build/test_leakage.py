"""Equal rows across splits are counted and named; columns that leak are, too."""

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from rankfold.data.build import leakage
from rankfold.data.prepare import prepare
from rankfold.types import Dataset

N = 400


def table(seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    grade = np.arange(N) % 3
    return pl.DataFrame({"x": rng.normal(size=N) + grade, "grade": grade})


def prepared(*rows: Any, **options: Any) -> Dataset:
    return prepare(*rows, format="features", grade_column="grade", **options)


def found(rows: pl.DataFrame, **options: Any) -> dict[str, dict[str, Any]]:
    summary = prepared(rows, **options).summary
    return {entry["column"]: entry for entry in summary.get("suspicious", [])}


def test_plain_columns_are_not_suspicious() -> None:
    rng = np.random.default_rng(1)
    rows = table().with_columns(
        age=pl.Series(rng.integers(18, 90, N)),
        town=pl.Series([f"t{i}" for i in rng.integers(0, 50, N)]),
    )
    assert found(rows) == {}
    assert "equal_rows" not in prepared(rows).summary


@pytest.mark.parametrize("kind", ["number", "level", "missing", "shape"])
def test_columns_that_tell_the_grade_alone(kind: str) -> None:
    high = pl.col("grade") > 1
    noise = pl.Series(np.random.default_rng(2).normal(size=N))
    leak = {
        "number": high * 10.0 + noise,
        "level": pl.when(high).then(pl.lit("b")).otherwise(pl.lit("a")),
        "missing": pl.when(high).then(None).otherwise(noise),
        "shape": pl.when(high).then(pl.lit(0.0)).otherwise(noise.sign() + noise / 9),
    }[kind]
    (entry,) = found(table().with_columns(leak=leak)).values()
    assert entry["why"] == "it alone gives the grade"
    assert entry["auc"] > 0.999 - (kind == "shape") * 0.01
    assert entry["above"] == 1


def test_identifiers_and_places_of_rows() -> None:
    rng = np.random.default_rng(3)
    rows = table().with_columns(
        id=pl.Series(10**9 + rng.permutation(N)),  # equal in 32 bits
        when=pl.Series(1.7e9 + rng.random(N).cumsum()),
        name=pl.Series([f"n{i}" for i in range(N)]),
    )
    why = {name: entry["why"] for name, entry in found(rows).items()}
    assert why == {
        "id": "its values are all distinct",
        "when": "its values follow the order of the rows",
        "name": "its values are all distinct",
    }
    assert found(rows, drop="id,when,name") == {}
    repeated = pl.concat([rows, rows.sample(50, seed=0)])  # as exports are
    assert found(repeated)["id"]["why"] == "its values are all distinct"


def test_values_that_repeat_identify_no_row() -> None:
    rows = pl.DataFrame({"age": [*range(20, 90)] * 20 + [96, 97, 98, 99]})
    assert found(rows.with_columns(grade=pl.col("age") > 95)) == {}


def test_auc_is_that_of_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    column = torch.randn(80, generator=generator).mul(4).round()
    column[::9] = torch.nan
    grades = (torch.randn(80, generator=generator) - column.nan_to_num() / 4 > 0).long()
    known = ~column.isnan()
    pairs = product(column[known & (grades == 1)].tolist(), column[known & (grades == 0)].tolist())
    wins = [1.0 if a < b else 0.5 if a == b else 0.0 for a, b in pairs]
    own = sum(wins) / len(wins)
    auc, threshold = leakage.column_auc(column, grades, 2)
    assert threshold == 0
    assert own > 0.6
    assert auc == pytest.approx(0.5 + float(known.double().mean()) * (own - 0.5), abs=0.05)
    assert auc >= 0.5 + float(known.double().mean()) * (own - 0.5) - 1e-9


def test_many_levels_do_not_tell_a_grade_that_they_do_not_know() -> None:
    generator = torch.Generator().manual_seed(1)
    levels = torch.randint(0, 300, (600,), generator=generator).int()
    grades = torch.randint(0, 2, (600,), generator=generator)
    assert leakage.column_auc(levels, grades, 2)[0] < 0.6


def test_few_rows_of_a_grade_are_chance() -> None:
    grades = torch.zeros(100, dtype=torch.int64)
    grades[:4] = 1
    assert leakage.column_auc(grades.float(), grades, 2) == (0.5, None)


def test_equal_rows_are_counted_and_named() -> None:
    train, test = table(), table(seed=5)
    test = pl.concat([test.head(50), train.slice(7, 3), train.slice(100, 1)])
    given = {"train": train, "test": test, "validation": table(seed=6)}
    (entry,) = prepared(**given).summary["equal_rows"]
    assert entry == {
        "split": "test",
        "rows": 4,
        "of": 54,
        "equal_to": "train",
        "first": [["the table:51", "the table:8"], ["the table:52", "the table:9"],
                  ["the table:53", "the table:10"]],
    }  # fmt: skip
    words = leakage.describe_equal(entry)
    assert "4 rows of 54 in test equal a row of train (the table:51 = the table:8," in words


def test_equal_columns_with_another_grade_are_not_equal_rows() -> None:
    train = table()
    other = train.with_columns(grade=(pl.col("grade") + 1) % 3)
    given = {"train": train, "test": other, "validation": table(seed=6)}
    assert "equal_rows" not in prepared(**given).summary
