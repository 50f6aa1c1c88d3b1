"""A written folder, and a disk that is not waited for."""

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
    """Do not wait for the disk: only a power cut would show it."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
