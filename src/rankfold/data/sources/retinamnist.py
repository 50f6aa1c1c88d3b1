"""Photographs of retinas with a grade of diabetic retinopathy, 0 to 4; bundled.

``bundled/retinamnist/ORIGIN.md`` describes their origin.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankfold.data.build import graded
from rankfold.data.read.reading import Reading
from rankfold.types import Dataset, Graded

FILE = Path(__file__).parents[1] / "bundled" / "retinamnist" / "retinamnist.npz"
SPLITS = {"train": "train", "validation": "val", "test": "test"}
GRADES = ("0", "1", "2", "3", "4")


def read(_paths: list[Path], _reading: Reading) -> Dataset:
    """The official splits, in the order train, validation, test."""
    with np.load(FILE, allow_pickle=False) as arrays:
        return graded.dataset(
            {name: _split(arrays, theirs) for name, theirs in SPLITS.items()}, GRADES
        )


def _split(arrays: Any, name: str) -> Graded:
    images = torch.from_numpy(arrays[f"{name}_images"])
    grades = torch.from_numpy(arrays[f"{name}_labels"]).flatten().long()
    nothing = torch.empty(len(grades), 0)
    return Graded(nothing, nothing.int(), images, grades)
