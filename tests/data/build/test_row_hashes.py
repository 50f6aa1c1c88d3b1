"""Equal rows have equal hashes, and no others."""

import pytest
import torch

from rankfold.data.build import row_hashes
from rankfold.types import Graded


def test_hashes_differ_between_rows_and_not_between_block_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = torch.tensor([[0.0, torch.nan], [-0.0, -torch.nan], [0.0, 1.0], [0.0, torch.nan]])
    grades, pixels = torch.tensor([0, 0, 0, 1]), torch.zeros((4, 2, 2, 1), dtype=torch.uint8)
    rows = Graded(numbers, torch.zeros((4, 0), dtype=torch.int32), pixels, grades)
    result = row_hashes.hashes(rows)
    assert result[0] == result[1]
    assert len(result.unique()) == 3
    monkeypatch.setattr(row_hashes, "BLOCK_BYTES", 1)
    assert torch.equal(row_hashes.hashes(rows), result)
    pixels[1, 1, 1, 0] = 1
    assert len(row_hashes.hashes(rows).unique()) == 4
    assert len(row_hashes.hashes(rows.part(0, 0))) == 0
