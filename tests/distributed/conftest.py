"""A folder for the models of several ranks."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")
