"""Folders for the tests of storage, and ways to damage them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.storage.manifest import HEAD

ONE_FOLDER = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def content(version: int) -> dict[str, storage.Content]:
    """Two files that contain their version."""
    return {
        "numbers": {"values": torch.full((5, 3), float(version)), "all": torch.ones(3) > 0},
        "keys": pl.DataFrame({"key": [f"{version}-{row}" for row in range(4)]}),
    }


def write(path: Path, version: int = 1, kind: str = "model") -> None:
    storage.write(path, kind, {"version": version}, content(version))


def version_in(folder: storage.Folder) -> int:
    """The version of an opened folder; its whole content is checked."""
    version: int = folder.manifest["version"]
    expected = content(version)
    assert same(folder.tensors("numbers"), expected["numbers"])
    assert folder.table("keys").equals(expected["keys"])
    return version


def version_at(path: Path) -> int:
    return version_in(storage.read(path, "model", full=True))


def same(actual: Mapping[str, Tensor], expected: Any) -> bool:
    return actual.keys() == expected.keys() and all(
        actual[name].dtype == tensor.dtype
        and actual[name].shape == tensor.shape
        and bits(actual[name]) == bits(tensor)
        for name, tensor in expected.items()
    )


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir())


def file_of(path: Path, name: str) -> Path:
    return storage.read(path).file(name)


def refusal(*arguments: Any, **options: Any) -> str:
    """The error of ``storage.read`` for a folder."""
    with pytest.raises(UserError) as caught:
        storage.read(*arguments, **options)
    assert caught.value.hint
    return str(caught.value)


def snapshot(path: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() if p.is_file() else b"" for p in path.rglob("*")}


def forge(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest and correct its checksum."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["checksum"]
    manifest = change(manifest)
    checksum = hashlib.sha256(json.dumps(manifest, indent=2).encode()).hexdigest()
    text = json.dumps({**manifest, "checksum": checksum}, indent=2) + "\n"
    (path / "manifest.json").write_text(text)


def forge_file(path: Path, name: str, data: bytes) -> None:
    """Change a file and correct its manifest entry."""

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        entry = manifest["files"][name]
        (path / entry["file"]).write_bytes(data)
        head, sha256 = (hashlib.sha256(d).hexdigest() for d in (data[:HEAD], data))
        entry.update(size=len(data), head=head, sha256=sha256)
        return manifest

    forge(path, change)
