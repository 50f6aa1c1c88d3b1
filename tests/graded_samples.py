"""Small inputs of graded rows: a table of patients, image files."""

from pathlib import Path
from typing import Any

from rankfold.data.prepare import prepare
from rankfold.types import Dataset, SplitName

GRADES = ["low", "middle", "high"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
FEATURES: dict[str, Any] = {"format": "features", "grade_column": "severity", "grades": GRADES}


def prepared(table: Any, **options: Any) -> Dataset:
    return prepare(table, query_column="id", **(FEATURES | options))


def ages(data: Dataset) -> dict[str, list[float]]:
    assert data.columns is not None
    place = data.columns.numbers.index("age")
    return {name: data.graded(name).numbers[:, place].nan_to_num(27.5).tolist() for name in SPLITS}


def write_images(home: Path, mode: str = "RGB", kind: str = "png") -> Path:
    """Ten images of each grade; their blue or grey value identifies grade and number."""
    from PIL import Image

    for grade in range(3):
        (home / str(grade)).mkdir(parents=True)
        for number in range(10):
            value = 80 * grade + number
            colour = (0, 0, value) if mode == "RGB" else value
            Image.new(mode, (9, 7), colour).save(home / str(grade) / f"{number}.{kind}")
    return home
