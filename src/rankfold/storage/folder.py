"""A folder on disk: models, prepared data and checkpoints.

``manifest.json`` names every other file with its size and sha256, and is replaced last and at once,
so that a reader finds the old folder or the new one, never something between. A data file carries
its hash in its name and never changes. Files that the manifest no longer names stay until the next
write, for the readers that still hold the old manifest.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rankfold.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from rankfold.types import Comm

FORMAT = 1
MANIFEST = "manifest.json"
HEAD = 2**20  # bytes at the start of a file, its header among them, compared at every opening
CHUNK = 2**24
Content: TypeAlias = "Mapping[str, Tensor] | pl.DataFrame | str | Foreign | Kept"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DATA = re.compile(rf"{_NAME.pattern}-[0-9a-f]{{16}}\.(safetensors|parquet|json|faiss)")
_UNFINISHED = re.compile(rf"\.writing-({_NAME.pattern}|{re.escape(MANIFEST)})")
_ABSENT = (FileNotFoundError, NotADirectoryError)


# ---------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file in the format of another library, which writes it to the path that it is given."""

    suffix: str
    write: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of a folder that was opened, as part of the next: where it is, it is not rewritten."""

    folder: Path
    entry: Mapping[str, Any]


def write(path: Path, kind: str, meta: Mapping[str, Any], files: Mapping[str, Content]) -> None:
    """Make ``path`` a folder that holds ``files``, or leave it as it was.

    Args:
        path: a new folder, or one written by this function, which is replaced.
        kind: what the folder is, say ``"model"``; readers ask for it.
        meta: plain JSON values, kept in the manifest.
        files: a name and its content: tensors (safetensors), a table (Parquet), a text (JSON), a
            file of another library's, or one that was written before.
    """
    check_writable(path, kind)
    with _writing(path), _target(path.absolute()) as folder:
        entries = {name: _write_file(folder, name, content) for name, content in files.items()}
        manifest = {
            "format": FORMAT,
            "kind": kind,
            "versions": versions(),
            **meta,
            "files": entries,
        }
        _replace(folder / MANIFEST, _dump(manifest))


def write_together(
    path: Path, kind: str, meta: Mapping[str, Any], files: Mapping[str, Content], comm: Comm
) -> None:
    """The same by several processes on one file system: each writes files of its own names.

    The manifest, with the ``meta`` of rank 0, comes after all of them. It is there on return.
    """
    if comm.rank > 0:
        folder = Path(comm.texts("")[0])
        entries = {name: _write_file(folder, name, content) for name, content in files.items()}
        comm.texts(json.dumps(entries))
        comm.barrier()
        return
    check_writable(path, kind)
    with _writing(path), _target(path.absolute()) as folder:
        comm.texts(str(folder))
        entries = {name: _write_file(folder, name, content) for name, content in files.items()}
        every = [json.loads(text) for text in comm.texts(json.dumps(entries))]
        named = {name: entry for one in every for name, entry in one.items()}
        about = {"format": FORMAT, "kind": kind, "versions": versions(), **meta, "files": named}
        _replace(folder / MANIFEST, _dump(about))
    comm.barrier()


def sweep(path: Path) -> None:
    """Remove now what earlier writes left; who opened the folder before them may miss it."""
    with _writing(path), _locked(path):
        _sweep(path)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep others who ask for it out of a folder while long work goes on in it.

    They get a UserError. ``write`` asks too, for the folder itself, not for those within.
    """
    with _locked(folder):
        yield


def check_writable(path: Path, kind: str) -> None:
    """A UserError if ``write`` must not replace ``path``; worth asking before long work."""
    check_home(path)
    with _writing(path):
        if (path / MANIFEST).exists():
            _check_replaceable(path, kind)
        elif path.exists() and not (path.is_dir() and all(map(_is_ours, path.iterdir()))):
            raise UserError(
                f"{path} exists and was not written by rankfold",
                hint="choose another --out; nothing was changed",
            )


def check_home(path: Path) -> None:
    """A UserError if nothing can be put at ``path``: a new file or folder, or a folder to fill."""
    with _writing(path):
        folder = path if path.is_dir() else path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}", hint="create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder} is not yours to write into", hint="choose another folder, or ask for it"
            )
        with TemporaryFile(prefix=".writing-probe_", dir=folder):
            pass  # only doing it tells: root may write anywhere, but not into /sys


def _check_replaceable(path: Path, kind: str) -> None:
    hint = "choose another --out, or remove the folder first"
    try:
        found = _manifest(path)["kind"]
    except UserError as error:
        raise UserError(str(error), hint=hint) from None
    if found != kind:
        raise UserError(
            f"{path} is a {found} folder, which a {kind} folder would replace", hint=hint
        )


def versions() -> dict[str, str]:
    """What wrote a folder."""
    from rankfold import __version__

    return {
        "rankfold": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Tell what the system refuses as a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}",
            hint="what was there before is untouched; free some space or choose another --out",
        ) from error


@contextmanager
def _target(path: Path) -> Iterator[Path]:
    """The folder to write into: ``path``, or one beside it that becomes ``path`` at the end."""
    _remove_stale(path)
    if path.is_dir():
        with _locked(path):
            _sweep(path)
            try:
                yield path
            except BaseException:
                with suppress(OSError, UserError):
                    _sweep(path)  # a full disk is not left fuller
                raise
        return
    partial = path.with_name(f".{path.name}.writing-{os.getpid()}-{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        with _locked(partial):
            yield partial
            partial.rename(path)
            with suppress(OSError):  # it is done: at worst a power cut undoes it
                _sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_stale(path: Path) -> None:
    """Remove what killed writes left beside ``path``; whoever still writes holds a lock."""
    partial = re.compile(rf"{re.escape(f'.{path.name}.writing-')}\d+-[0-9a-f]{{8}}")
    beside: list[Path] = []
    with suppress(OSError):  # a folder may be ours and the one around it not
        beside = [other for other in path.parent.iterdir() if partial.fullmatch(other.name)]
    for stale in beside:
        with suppress(OSError, UserError), _locked(stale) as locked:
            if locked:
                shutil.rmtree(stale, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Keep other writers out of ``folder``; the lock ends with the process, however that ends.

    False where the system has no such locks.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            raise UserError(
                f"another process is writing {folder}",
                hint="wait until it is done, or choose another --out",
            ) from None
        except OSError:  # some network file systems
            locked = False
        yield locked
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what earlier writes left and the manifest does not name; foreign files stay."""
    found = {path.name: path for path in folder.iterdir()}
    files = _manifest(folder)["files"] if MANIFEST in found else {}
    for name in found.keys() - {entry["file"] for entry in files.values()}:
        if _is_ours(found[name]):
            found[name].unlink()


def _is_ours(path: Path) -> bool:
    """Whether a write left this file, finished or not; the manifest apart."""
    name = path.name
    return bool(_DATA.fullmatch(name) or _UNFINISHED.fullmatch(name)) and not path.is_dir()


def _write_file(folder: Path, name: str, content: Content) -> dict[str, Any]:
    """Write one file and give its manifest entry."""
    assert _NAME.fullmatch(name), name  # or it would never be swept
    if isinstance(content, Kept):
        return _keep(folder, name, content)
    temporary = folder / f".writing-{name}"
    if isinstance(content, Foreign):
        suffix, digest = content.suffix, _write_foreign(temporary, content)
    elif isinstance(content, Mapping):
        suffix, digest = "safetensors", _write_bytes(temporary, _tensor_bytes(content))
    elif isinstance(content, str):
        suffix, digest = "json", _write_bytes(temporary, [content.encode()])
    else:
        suffix, digest = "parquet", _write_bytes(temporary, _table_bytes(content))
    entry: dict[str, Any] = {
        "file": f"{name}-{digest[:16]}.{suffix}",
        "size": temporary.stat().st_size,
        "head": _digest(temporary, HEAD),
        "sha256": digest,
    }
    temporary.replace(folder / entry["file"])
    return entry


def _keep(folder: Path, name: str, kept: Kept) -> dict[str, Any]:
    """The entry of a file that is there, or is copied from the folder where it is."""
    source = kept.folder / kept.entry["file"]
    if not source.exists():
        raise UserError(f"{kept.folder} was replaced since it was opened", hint="open it again")
    if not (folder.exists() and kept.folder.samefile(folder)):
        temporary = folder / f".writing-{name}"
        if _write_bytes(temporary, _pieces(source)) != kept.entry["sha256"]:
            raise damaged(kept.folder, f"{source.name} does not match its checksum")
        temporary.replace(folder / source.name)
    return dict(kept.entry)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def _write_foreign(path: Path, content: Foreign) -> str:
    """Let another library write a file, bring it down to the disk and give its sha256."""
    content.write(path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _table_bytes(table: pl.DataFrame) -> Iterator[memoryview]:
    """A Parquet file. Polars reads patterns and ``~`` into a path, so it is not given any."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    yield buffer.getbuffer()


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file, piece by piece; wide types come first, so that all are aligned.

    The library's own writer holds a second copy of everything; these tensors may be memory-mapped
    and larger than memory.
    """
    widest_first = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {}
    end = 0
    for name in widest_first:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = _DTYPES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in widest_first:
        if tensors[name].numel() == 0:
            continue  # it may have no strides to be viewed by
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def _write_bytes(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file down to the disk and give its sha256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            for start in range(0, len(piece), CHUNK):
                file.write(piece[start : start + CHUNK])
                digest.update(piece[start : start + CHUNK])
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def put(path: Path, text: str) -> None:
    """Write a text file that is no part of a folder of ours, at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode())
    except OSError as error:
        with suppress(OSError):
            path.with_name(f".writing-{path.name}").unlink()
        raise UserError(
            f"cannot write {path}: {error.strerror}", hint="name another place, or free some space"
        ) from None


def _replace(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` at once: a reader sees all of it or what was there before."""
    temporary = path.with_name(f".writing-{path.name}")
    _write_bytes(temporary, [content])
    _sync(path.parent)  # the files that a manifest names are there before it is
    temporary.replace(path)
    with suppress(OSError):  # it is done: at worst a power cut undoes it
        _sync(path.parent)


def _sync(folder: Path) -> None:
    """Bring the names in a folder down to the disk."""
    if sys.platform == "win32":  # which cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _dump(manifest: Mapping[str, Any]) -> bytes:
    """The manifest's text; its last entry is a checksum of the others."""
    checksum = hashlib.sha256(json.dumps(manifest, indent=2).encode()).hexdigest()
    return json.dumps({**manifest, "checksum": checksum}, indent=2).encode() + b"\n"


# ---------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that was opened: its manifest, and its files by name.

    The files are there until the folder was written twice since; then they are refused.
    """

    path: Path
    manifest: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["files"]

    @property
    def meta(self) -> dict[str, Any]:
        """What ``write`` was given as such."""
        own = ("format", "kind", "versions", "files", "checksum")
        return {name: value for name, value in self.manifest.items() if name not in own}

    def kept(self, name: str) -> Kept:
        """A file as it is, for the next folder."""
        return Kept(self.path, self.manifest["files"][name])

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of a file, memory-mapped: only the head is read before it is used."""
        from safetensors import safe_open

        with self._reading(name) as entry:
            path = _checked(self.path, entry)
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118

    def table(self, name: str) -> pl.DataFrame:
        """A table, compared with its checksum: Parquet would read some damage as other values."""
        import polars as pl

        with self._reading(name) as entry:
            path = _checked(self.path, entry, full=True)
            try:
                with path.open("rb") as file:
                    return pl.read_parquet(file)
            except pl.exceptions.PanicException as error:  # not an Exception
                raise ValueError(str(error)) from error

    def text(self, name: str) -> str:
        """A text, compared with its checksum."""
        with self._reading(name) as entry:
            return _checked(self.path, entry, full=True).read_text(encoding="utf-8")

    def file(self, name: str) -> Path:
        """The path of a file, its presence, size and head checked."""
        with self._reading(name) as entry:
            return _checked(self.path, entry)

    @contextmanager
    def _reading(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The manifest entry of a file; whatever is wrong with the file is told as a UserError."""
        if name not in self:
            raise damaged(self.path, f"{MANIFEST} names no {name!r}")
        entry = self.manifest["files"][name]
        try:
            with _reading(self.path):
                yield entry
        except (UserError, MemoryError):
            raise
        except Exception as error:  # a parser's errors are of many types
            raise self._why_unreadable(entry["file"]) from error

    def _why_unreadable(self, file: str) -> UserError:
        if (self.path / file).exists():
            return damaged(self.path, f"{file} is not readable")
        if _manifest(self.path)["checksum"] == self.manifest["checksum"]:
            return damaged(self.path, f"{file} is missing")
        return UserError(
            f"{self.path} was replaced since it was opened, and {file} is gone",
            hint="open it again",
        )


def read(path: Path, kind: str | None, *, full: bool = False) -> Folder:
    """Open a folder that ``write`` made.

    A file that vanished was replaced by a writer: the manifest is then read again, as often as it
    has changed meanwhile.

    Args:
        path: the folder.
        kind: what it must hold; None for anything.
        full: compare all of every file with its checksum, not just its size and its head.
    """
    before = None
    while True:
        folder = Folder(path.absolute(), _manifest(path))
        found = folder.manifest["kind"]
        if kind not in (None, found):
            raise UserError(
                f"{path} is a {found} folder, not a {kind} folder",
                hint="`rankfold info` tells what a folder holds",
            )
        try:
            with _reading(path):
                for entry in folder.manifest["files"].values():
                    _checked(path, entry, full=full)
        except _ABSENT as error:
            if folder.manifest["checksum"] == before:
                raise damaged(path, f"{Path(error.filename).name} is missing") from None
            before = folder.manifest["checksum"]
        else:
            return folder


def open_folder(path: Path, *, full: bool = False) -> Folder:
    """Open a folder of any kind."""
    return read(path, None, full=full)


def damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path} is damaged: {what}",
        hint="copy it again from where it came, or remove it and write it anew",
    )


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Tell what a folder lacks, though it matches its checksums, as a UserError."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise damaged(path, f"it lacks what its kind must have ({error})") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell what the system refuses as a UserError, but for a file that is not there."""
    try:
        yield
    except _ABSENT:
        raise
    except OSError as error:
        raise UserError(
            f"cannot read {error.filename or path}: {error.strerror or error}",
            hint="is it yours to read, and is its disk well?",
        ) from error


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest of a folder, if it is as it was written."""
    try:
        with _reading(path):
            text = (path / MANIFEST).read_bytes()
    except _ABSENT:
        raise _not_a_folder(path) from None
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format"]
        body = {name: value for name, value in manifest.items() if name != "checksum"}
        unchanged = text == _dump(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, f"{MANIFEST} is not a manifest of rankfold's") from None
    if version != FORMAT:
        raise UserError(
            f"{path / MANIFEST} is of format {version}; this rankfold reads format {FORMAT}",
            hint="use the rankfold that wrote it, or remove the folder and write it anew",
        )
    if not unchanged:
        raise damaged(path, f"{MANIFEST} does not match its own checksum")
    _check_fields(path, manifest)
    return manifest


def _not_a_folder(path: Path) -> UserError:
    if not path.exists():
        what = f"there is no folder {path}"
    elif not path.is_dir():
        what = f"{path} is a file, not a rankfold folder"
    else:
        what = f"{path} is not a rankfold folder: it has no {MANIFEST}"
    return UserError(what, hint="`rankfold prepare` writes data, `rankfold fit` writes models")


_FIELDS = {"kind": str, "versions": dict, "files": dict}
_ENTRY_FIELDS = {"file": str, "size": int, "head": str, "sha256": str}


def _check_fields(path: Path, manifest: Mapping[str, Any]) -> None:
    """A UserError for a manifest that matches its checksum but is not of our making."""
    _check_types(path, MANIFEST, manifest, _FIELDS)
    for name, entry in manifest["files"].items():
        _check_types(path, f"{MANIFEST}, files, {name}", entry, _ENTRY_FIELDS)
        if not _DATA.fullmatch(entry["file"]):
            what = f"{MANIFEST} names {entry['file']!r}, which is not a file of the folder"
            raise damaged(path, what)


def _check_types(path: Path, where: str, found: Any, fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise damaged(path, f"{where}: {name!r} is missing or not of type {kind.__name__}")


def _checked(folder: Path, entry: Mapping[str, Any], *, full: bool = False) -> Path:
    """The path of a manifest entry, if the file is as it was written."""
    path: Path = folder / entry["file"]
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise damaged(folder, f"{path.name} is not a regular file (a link is not followed)")
    if status.st_size != entry["size"]:
        raise damaged(folder, f"{path.name} has {status.st_size:,} bytes, not {entry['size']:,}")
    found, written = (_digest(path), "sha256") if full else (_digest(path, HEAD), "head")
    if found != entry[written]:
        raise damaged(folder, f"{path.name} does not match its checksum")
    return path


def _digest(path: Path, size: int | None = None) -> str:
    """The sha256 of a file, or of its first ``size`` bytes."""
    with path.open("rb") as file:
        if size is not None:
            return hashlib.sha256(file.read(size)).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()
