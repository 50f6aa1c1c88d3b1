"""Hashes of graded rows, to find equal ones."""

from hashlib import blake2b

import torch
from torch import Tensor

from rankfold.types import Graded

BLOCK_BYTES = 2**22


def hashes(rows: Graded) -> Tensor:
    """A 64-bit hash of each row, including its grade; [n] int64.

    Equal rows of the same columns, levels and grades have equal hashes.
    """
    blocks = [torch.zeros(0, dtype=torch.int64)]
    if len(rows) == 0:
        return blocks[0]
    step = max(1, BLOCK_BYTES // _bytes(rows.part(0, 1)).shape[1])
    for start in range(0, len(rows), step):
        content = _bytes(rows.part(start, start + step)).numpy()
        digests = b"".join(blake2b(row, digest_size=8).digest() for row in content)
        blocks.append(torch.frombuffer(bytearray(digests), dtype=torch.int64))
    return torch.cat(blocks)


def _bytes(rows: Graded) -> Tensor:
    """The content of each row; [n, W] uint8. All NaNs are equal, as are 0 and -0."""
    numbers = torch.where(rows.numbers.isnan(), torch.nan, rows.numbers + 0.0)
    parts = [numbers, rows.categories, rows.grades[:, None]]
    if rows.images is not None:
        parts.append(rows.images.flatten(1))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)
