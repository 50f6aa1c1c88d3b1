"""Ranked lists as an array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(lists: Sequence[Sequence[Any]], k: int) -> NDArray[Any]:
    """Lists of keys as rows of k; None beyond the end of a list."""
    array = np.full((len(lists), k), None, dtype=object)
    for row, keys in zip(array, lists, strict=True):
        row[: len(keys)] = keys
    return array
