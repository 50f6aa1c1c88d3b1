"""The manifest of a folder: its text, its fields, and the checksums of the files it names.

Also the kinds of content that these files are written from.
"""

import hashlib
import json
import platform
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rankfold.errors import DiskError, UserError
from rankfold.storage.disk import Put, check_encodable

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

HEAD = 2**20  # bytes at the start of a file, including its header, compared at every opening
FORMAT = 1
MANIFEST = "manifest.json"
CARD = "README.md"  # for people; not in the manifest
CARD_MARK = "<!-- written by rankfold; without this line, rankfold keeps the file as it is -->"
NAME = re.compile(r"[a-z][a-z0-9_]*")  # of a file in ``files``
DATA_FILE = re.compile(rf"{NAME.pattern}-[0-9a-f]{{16}}\.(safetensors|parquet|json|faiss|txt)")
MISSING = (FileNotFoundError, NotADirectoryError)

_FIELDS = {"kind": str, "versions": dict, "files": dict}
_ENTRY_FIELDS = {"file": str, "size": int, "head": str, "sha256": str}


Content: TypeAlias = "Mapping[str, Tensor] | pl.DataFrame | str | ForeignFile | ReusedFile"


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file in another library's format; ``write`` passes its bytes on, piece by piece."""

    suffix: str
    write: Callable[[Put], None]


@dataclass(frozen=True, slots=True)
class ReusedFile:
    """A file of a folder opened before. It is copied, or left in place in the same folder."""

    folder: Path
    entry: Mapping[str, Any]  # of the manifest


def versions() -> dict[str, str]:
    """The versions of the software that writes a folder."""
    import numpy as np
    import torch

    from rankfold import __version__

    return {
        "rankfold": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def dump(manifest: Mapping[str, Any]) -> bytes:
    """The manifest's text; its last entry is a checksum of the others."""
    checksum = hashlib.sha256(json.dumps(manifest, indent=2).encode()).hexdigest()
    return json.dumps({**manifest, "checksum": checksum}, indent=2).encode() + b"\n"


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the folder ``path``; a UserError unless it is as it was written."""
    check_encodable(path)
    try:
        with read_errors(path):
            if not stat.S_ISREG((path / MANIFEST).stat().st_mode):  # reading a pipe would hang
                raise damaged(path, f"{MANIFEST} is not a regular file")
            text = (path / MANIFEST).read_bytes()
    except MISSING:
        raise _not_a_folder(path) from None
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format"]
        body = {name: value for name, value in manifest.items() if name != "checksum"}
        unchanged = text == dump(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, f"{MANIFEST} is not a rankfold manifest") from None
    if version != FORMAT:
        raise UserError(
            f"{path / MANIFEST} must have format {FORMAT}, got {version}",
            hint="use the version of rankfold that wrote it, or remove the folder and write it "
            "again",
        )
    if not unchanged:
        raise damaged(path, f"{MANIFEST} does not match its own checksum")
    _check_types(path, MANIFEST, manifest, _FIELDS)  # a checksum proves no authorship
    for name, entry in manifest["files"].items():
        _check_types(path, f"{MANIFEST}, files, {name}", entry, _ENTRY_FIELDS)
        if not DATA_FILE.fullmatch(entry["file"]):
            what = f"{MANIFEST} names {entry['file']!r}, which is not a file of the folder"
            raise damaged(path, what)
    return manifest


def damaged(path: Path, what: str) -> UserError:
    """The error for a damaged folder."""
    return UserError(
        f"{path} is damaged: {what}",
        hint="copy it again from its source, or remove it and write it again",
    )


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a UserError, except for a missing file."""
    try:
        yield
    except MISSING:
        raise
    except OSError as error:
        raise DiskError(
            f"cannot read {error.filename or path}: {error.strerror or error}",
            hint="check its permissions and its disk",
        ) from error


def _not_a_folder(path: Path) -> UserError:
    if not path.exists():
        what = f"there is no folder {path}"
    elif not path.is_dir():
        what = f"{path} is a file, not a rankfold folder"
    else:
        what = f"{path} is not a rankfold folder: it has no {MANIFEST}"
    return UserError(what, hint="`rankfold prepare` writes data, `rankfold fit` writes models")


def _check_types(path: Path, where: str, value: Any, fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        if not isinstance(value, dict) or not isinstance(value.get(name), kind):
            raise damaged(path, f"{where}: {name!r} is missing or not of type {kind.__name__}")


def digest(path: Path, size: int | None = None) -> str:
    """The sha256 of a file, or of its first ``size`` bytes."""
    with path.open("rb") as file:
        if size is not None:
            return hashlib.sha256(file.read(size)).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


def regular_file(folder: Path, entry: Mapping[str, Any]) -> Path:
    """The path of a manifest entry; a UserError unless it is a file of the right size."""
    path: Path = folder / entry["file"]
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise damaged(folder, f"{path.name} is not a regular file (links are not followed)")
    if status.st_size != entry["size"]:
        what = f"{path.name} must have {entry['size']:,} bytes, got {status.st_size:,}"
        raise damaged(folder, what)
    return path


def check_file(folder: Path, entry: Mapping[str, Any], *, full: bool = False) -> Path:
    """The path of a manifest entry; a UserError if the file differs from what was written.

    ``full`` compares the whole file, not only its size and its head.
    """
    path = regular_file(folder, entry)
    actual, field = (digest(path), "sha256") if full else (digest(path, HEAD), "head")
    if actual != entry[field]:
        raise damaged(folder, f"{path.name} does not match its checksum")
    return path
