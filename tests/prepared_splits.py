"""The pairs of prepared data, by split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold.types import Dataset, Interactions

Row = tuple[Any, ...]
Splits = dict[str, dict[tuple[Any, Any], float]]
"""The pairs of keys of each split, with their grades."""


def splits_of(data: Dataset) -> Splits:
    return {
        name: {} if part is None else graded(data, part)
        for name, part in zip(
            ("train", "validation", "test"), (data.train, data.validation, data.test), strict=True
        )
    }


def graded(data: Dataset, part: Any) -> dict[tuple[Any, Any], float]:
    assert isinstance(part, Interactions)
    queries = data.queries.take(part.query_of_pair().long())
    candidates = data.candidates.take(part.candidates.long())
    grades = [1.0] * part.n_pairs if part.grades is None else part.grades.tolist()
    return dict(zip(zip(queries, candidates, strict=True), grades, strict=True))


def training_rows(data: Dataset) -> list[tuple[Any, Any, float]]:
    return [(*keys, grade) for keys, grade in graded(data, data.split("train")).items()]


def table(path: Path, rows: Sequence[Row], names: str = "user,item,rating,time") -> Path:
    width = len(rows[0]) if rows else 2
    lines = [",".join(names.split(",")[:width]), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path
