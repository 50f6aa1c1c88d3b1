"""Opening a folder: its manifest is read, and each file is checked before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.errors import UserError
from rankfold.storage.manifest import (
    MANIFEST,
    MISSING,
    ReusedFile,
    check_file,
    damaged,
    read_errors,
    read_manifest,
)

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor


def read(path: Path, kind: str | None = None, *, full: bool = False) -> Folder:
    """Open a folder that ``write`` made.

    If a writer replaced a file meanwhile, the manifest is read again, as often as it changes.
    ``full`` compares each whole file with its checksum, not only its size and its head.
    """
    before = None
    while True:
        folder = Folder(path.absolute(), read_manifest(path))
        actual = folder.manifest["kind"]
        if kind not in (None, actual):
            raise UserError(
                f"{path} is a {actual} folder, not a {kind} folder",
                hint="`rankfold info` shows what a folder holds",
            )
        try:
            with read_errors(path):
                for entry in folder.manifest["files"].values():
                    check_file(path, entry, full=full)
        except MISSING as error:
            if folder.manifest["checksum"] == before:
                raise damaged(path, f"{Path(error.filename).name} is missing") from None
            before = folder.manifest["checksum"]
        else:
            return folder


@contextmanager
def check_contents(path: Path) -> Iterator[None]:
    """Report a folder that matches its checksums but lacks something as damaged."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise damaged(path, f"its content is incomplete or invalid ({error})") from error


@dataclass(frozen=True, slots=True)
class Folder:
    """An opened folder: its manifest, and its files by name.

    The files stay readable until the folder has been written twice since; then they are refused.
    """

    path: Path
    manifest: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["files"]

    @property
    def meta(self) -> dict[str, Any]:
        """The ``meta`` that was given to ``write``."""
        own = ("format", "kind", "versions", "files", "checksum")
        return {name: value for name, value in self.manifest.items() if name not in own}

    def reuse(self, name: str) -> ReusedFile:
        """A file as content of another folder."""
        return ReusedFile(self.path, self.manifest["files"][name])

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of a file, memory-mapped. Only its head is checked before use."""
        from safetensors import safe_open

        with self._entry(name) as entry:
            path = check_file(self.path, entry)
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118

    def table(self, name: str) -> pl.DataFrame:
        """A table, checked in full: Parquet would read some damage as other values."""
        import polars as pl

        with self._entry(name) as entry:
            path = check_file(self.path, entry, full=True)
            try:
                with path.open("rb") as file:
                    return pl.read_parquet(file)
            except pl.exceptions.PanicException as error:  # not an Exception
                raise ValueError(str(error)) from error

    def text(self, name: str) -> str:
        """A text, checked in full."""
        with self._entry(name) as entry:
            return check_file(self.path, entry, full=True).read_text(encoding="utf-8")

    def file(self, name: str) -> Path:
        """The path of a file; its size and head are checked."""
        with self._entry(name) as entry:
            return check_file(self.path, entry)

    @contextmanager
    def _entry(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The manifest entry of a file. Any error while reading it becomes a UserError."""
        if name not in self:
            raise damaged(self.path, f"{MANIFEST} has no entry {name!r}")
        entry = self.manifest["files"][name]
        try:
            with read_errors(self.path):
                yield entry
        except (UserError, MemoryError):
            raise
        except Exception as error:  # parsers raise many types
            raise self._unreadable(entry["file"]) from error

    def _unreadable(self, file: str) -> UserError:
        if (self.path / file).exists():
            return damaged(self.path, f"{file} is not readable")
        if read_manifest(self.path)["checksum"] == self.manifest["checksum"]:
            return damaged(self.path, f"{file} is missing")
        return UserError(
            f"{self.path} was replaced since it was opened, and {file} no longer exists",
            hint="open it again",
        )
