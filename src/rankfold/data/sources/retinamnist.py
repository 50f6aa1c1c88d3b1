"""Photographs of retinas with a grade of diabetic retinopathy, 0 to 4; bundled.

``bundled/retinamnist/ORIGIN.md`` describes their origin.
"""

from pathlib import Path

from rankfold.data.read import graded_rows
from rankfold.data.read.graded_rows import RowOptions
from rankfold.data.read.reading import Reading
from rankfold.data.read.results import RawRows

FILE = Path(__file__).parents[1] / "bundled" / "retinamnist" / "retinamnist.npz"


def read(_paths: list[Path], reading: Reading) -> RawRows:
    """The official splits, in the order train, validation, test."""
    return graded_rows.read(FILE, RowOptions(), reading)
