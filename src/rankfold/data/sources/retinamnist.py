"""Photographs of retinas with the grade of their diabetic retinopathy, 0 to 4; bundled.

``bundled/retinamnist/ORIGIN.md`` says where they come from.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankfold.data.reading import Reading
from rankfold.types import Dataset, Graded, Vocabulary

FILE = Path(__file__).parents[1] / "bundled" / "retinamnist" / "retinamnist.npz"
N_GRADES = 5


def read(_paths: list[Path], _reading: Reading) -> Dataset:
    """The official splits; the rows of train come first, then those of validation, then of test."""
    with np.load(FILE, allow_pickle=False) as arrays:
        train, validation, test = (_split(arrays, name) for name in ("train", "val", "test"))
    splits = {"train": train, "validation": validation, "test": test}
    return Dataset(
        kind="graded",
        train=train,
        validation=validation,
        test=test,
        queries=Vocabulary.numbered(sum(map(len, splits.values()))),
        candidates=Vocabulary.numbered(N_GRADES),
        summary={name: _count(split) for name, split in splits.items()},
    )


def _split(arrays: Any, name: str) -> Graded:
    images = torch.from_numpy(arrays[f"{name}_images"])
    grades = torch.from_numpy(arrays[f"{name}_labels"]).flatten().long()
    n = len(grades)
    nothing = torch.empty(n, 0)
    return Graded(nothing, nothing.int(), images, grades)


def _count(split: Graded) -> dict[str, Any]:
    grades = torch.bincount(split.grades, minlength=N_GRADES)
    return {"rows": len(split), "grades": grades.tolist()}
