"""Validation rows of grades that are set apart: they select nothing, so they are like new rows.

The cuts between grades, the promised false-positive rates and the calibrated probabilities come
from them.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset
from rankfold.types import Comm, Dataset, Graded

SHARE = 0.5  # of the validation rows, by default


def split_validation(data: Dataset, share: float, comm: Comm) -> tuple[Dataset, Graded | None]:
    """The data with the validation rows that select, and the other ones; None if there are none."""
    rows = data.graded("validation")
    apart = apart_rows(comm.gather(rows.grades), share)
    first, _ = row_offset(len(rows), comm)
    if not apart.any():
        return data, None
    mine = apart[first : first + len(rows)]
    kept, others = (rows.select(side.nonzero().flatten()) for side in (mine, ~mine))
    return replace(data, validation=others), kept


def apart_rows(grades: Tensor, share: float) -> Tensor:
    """Which rows are set apart: of the n rows of each grade floor(share n), at random; [n] bool.

    The draw depends on the grades only, not on the seed of a fit: fits with several seeds, or the
    trials of a search, select on the same rows.
    """
    noise = torch.rand(len(grades), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = torch.zeros(len(grades), dtype=torch.bool)
    for grade in grades.unique().tolist():
        places = (grades == grade).nonzero().flatten()
        apart[places[noise[places].argsort()][: int(share * len(places))]] = True
    return apart
