"""Opening a folder: its manifest is read, and each file is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
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

    from rankfold.storage.private_copy import PrivateFile


def read(path: str | Path, kind: str | None = None, *, full: bool = False) -> Folder:
    """Open a folder that ``write`` made.

    ``full`` compares each whole file with its checksum, not only its size and its head.
    """
    if not isinstance(path, str | Path):
        what = f"a {kind or 'folder'}"
        hint = "the model comes before the data" if kind == "model" else ""
        raise UserError(f"expected {what} or its path, got {type(path).__name__}", hint=hint)
    return open_stable(Path(path), kind, partial(verify, full=full))


def open_stable(path: Path, kind: str | None, use: Callable[[Folder], Folder]) -> Folder:
    """The result of ``use``, which opens the files of a folder.

    If a writer replaced a file meanwhile, the manifest is read again, as often as it changes.
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
                return use(folder)
        except MISSING as error:
            if folder.manifest["checksum"] == before:
                raise damaged(path, f"{Path(error.filename).name} is missing") from None
            before = folder.manifest["checksum"]


def verify(folder: Folder, *, full: bool) -> Folder:
    """The folder itself; a UserError if one of its files is not as it was written."""
    for entry in folder.manifest["files"].values():
        check_file(folder.path, entry, full=full)
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
    Private copies stay readable.
    """

    path: Path
    manifest: Mapping[str, Any]
    copies: Mapping[str, PrivateFile] = field(default_factory=dict)  # of its files, by name

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

        with self._checked(name) as path, safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118

    def table(self, name: str) -> pl.DataFrame:
        """A table, checked in full: Parquet would read some damage as other values."""
        import polars as pl

        with self._checked(name, full=True) as path:
            try:
                with path.open("rb") as file:
                    return pl.read_parquet(file)
            except pl.exceptions.PanicException as error:  # not an Exception
                raise ValueError(str(error)) from error

    def text(self, name: str) -> str:
        """A text, checked in full."""
        with self._checked(name, full=True) as path:
            return path.read_text(encoding="utf-8")

    def file(self, name: str) -> Path:
        """The path of a file; its size and head are checked."""
        with self._checked(name) as path:
            return path

    @contextmanager
    def _checked(self, name: str, *, full: bool = False) -> Iterator[Path]:
        """The path of a checked file. Any error while reading it becomes a UserError."""
        if name not in self:
            raise damaged(self.path, f"{MANIFEST} has no entry {name!r}")
        entry, copy = self.manifest["files"][name], self.copies.get(name)
        try:
            with read_errors(self.path):
                yield check_file(self.path, entry, full=full) if copy is None else copy.path
        except (UserError, MemoryError):
            raise
        except Exception as error:  # parsers raise many types
            raise self._unreadable(name) from error

    def _unreadable(self, name: str) -> UserError:
        file = self.manifest["files"][name]["file"]
        if name in self.copies or (self.path / file).exists():
            return damaged(self.path, f"{file} is not readable")
        if read_manifest(self.path)["checksum"] == self.manifest["checksum"]:
            return damaged(self.path, f"{file} is missing")
        return UserError(
            f"{self.path} was replaced since it was opened, and {file} no longer exists",
            hint="open it again",
        )
