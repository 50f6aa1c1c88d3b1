"""Training pairs, with their grades only where a setting makes them weights."""

from dataclasses import replace

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.types import Comm, Dataset, Interactions


def training_rows(data: Dataset, weights: str, device: torch.device) -> Interactions:
    """The training pairs, with grades only if ``weights`` is "grade"."""
    return weighted_pairs(data.split("train").to(device), weights)


def weighted_pairs(rows: Interactions, weights: str) -> Interactions:
    """The pairs, with grades only if ``weights`` is "grade"."""
    if weights == "grade":
        _check_grades(rows)
        return rows
    return replace(rows, grades=None)


def drawn_counts(rows: Interactions, comm: Comm = SINGLE_PROCESS) -> Tensor:
    """The expected number of draws of each candidate in an epoch of all processes; [N]."""
    counts = comm.sum(rows.candidate_counts())
    if rows.grades is None:
        return counts
    sums = torch.bincount(rows.candidates, rows.grades.double(), minlength=rows.n_candidates)
    sums = comm.sum(sums)
    return sums * (int(counts.sum()) / sums.sum())


def _check_grades(rows: Interactions) -> None:
    """Raise a UserError if a grade cannot be a weight."""
    if rows.grades is None:
        return
    good = rows.grades.isfinite() & (rows.grades > 0)
    if not bool(good.all()):
        bad = float(rows.grades[~good][0])
        raise UserError(
            f"grades must be above 0 to be weights, got {bad:g} (in {int((~good).sum())} pairs)",
            hint="prepare the data again with --min-grade, or leave weights=none",
        )
