from pathlib import Path

import pytest

from rankfold.data.reading import Reading


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """What a reader is given, with an empty folder beside the test's own files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Reading(scratch)
