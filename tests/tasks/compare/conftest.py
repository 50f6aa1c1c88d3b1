"""Data of a comparison."""

from pathlib import Path

import pytest
from planted import groups

import rankfold as rf


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "data"
    rf.prepare(groups(), out=path)
    return path
