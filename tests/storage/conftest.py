"""A written folder."""

from pathlib import Path

import pytest
from folders import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path)
    return path
