"""A written folder, and writes without fsync."""

import os
from pathlib import Path

import pytest
from folders import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path)
    return path


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: only a power cut would show the difference."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
