"""Strata: candidates grouped by their frequency in train, and the truth of one group."""

import torch
from torch import Tensor

from rankfold.types import Interactions

GROUPS = ("head", "torso", "tail", "unseen")


def frequency_groups(counts: Tensor) -> Tensor:
    """The group of each candidate: 0 head, 1 torso, 2 tail; 3 for one that is not in train.

    The pairs, sorted by the count of their candidate, largest first, are cut into three equal
    parts. Equally frequent candidates stay together, in the part that holds the middle of their
    pairs, so renaming candidates changes nothing. With T the number of pairs::

        before_y = sum_{z: counts_z > counts_y} counts_z
        equal_y  = sum_{z: counts_z = counts_y} counts_z
        group_y  = floor(3 (before_y + equal_y / 2) / T)

    With ties a group may hold more or less than a third of the pairs, or none.
    ``counts`` [N] are those of ``train.candidate_counts()``. Returns [N] int64.
    """
    levels, level, size = counts.unique(return_inverse=True, return_counts=True)
    pairs = levels * size
    total = int(pairs.sum())
    before = total - pairs.cumsum(0)  # the levels ascend
    group = 3 * (2 * before + pairs) // max(2 * total, 1)
    return torch.where(levels > 0, group, 3)[level]


def within(truth: Interactions, members: Tensor) -> Interactions:
    """The pairs of ``truth`` whose candidates are ``members`` [N] bool; all rows stay."""
    return truth.keep(members[truth.candidates])
