"""Where a folder is written: whether it may be, into which place, and what is removed there."""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from rankfold.errors import UserError
from rankfold.storage.manifest import DATA_FILE, MANIFEST, NAME, read_manifest

_UNFINISHED = re.compile(rf"\.writing-({NAME.pattern}|{re.escape(MANIFEST)})")


def check_writable(path: Path, kind: str) -> None:
    """A UserError if ``write`` must not replace ``path``; call it before long work."""
    check_destination(path)
    with write_errors(path):
        if (path / MANIFEST).exists():
            _check_replaceable(path, kind)
        elif path.exists() and not (path.is_dir() and all(map(_is_ours, path.iterdir()))):
            raise UserError(
                f"{path} exists and was not written by rankfold",
                hint="choose another --out; nothing was changed",
            )


def check_destination(path: Path) -> None:
    """A UserError if no file or folder can be created at ``path``, or in it if it is a folder."""
    with write_errors(path):
        folder = path if path.is_dir() else path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}", hint="create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder} is not writable", hint="choose another folder, or change its permissions"
            )
        with TemporaryFile(prefix=".writing-probe_", dir=folder):
            pass  # permissions are not enough: root may write anywhere, but not into /sys


def sweep(path: Path) -> None:
    """Remove the files that earlier writes left; readers that opened the folder may miss them."""
    with write_errors(path), locked(path):
        _sweep(path)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}",
            hint="the previous content is unchanged; free some space or choose another --out",
        ) from error


@contextmanager
def target(path: Path) -> Iterator[Path]:
    """The folder to write into: ``path``, or a new one beside it that is renamed at the end."""
    _remove_stale(path)
    if path.is_dir():
        with locked(path):
            _sweep(path)
            try:
                yield path
            except BaseException:
                with suppress(OSError, UserError):
                    _sweep(path)  # do not leave a full disk fuller
                raise
        return
    partial = path.with_name(f".{path.name}.writing-{os.getpid()}-{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        with locked(partial):
            yield partial
            partial.rename(path)
            with suppress(OSError):  # the folder is complete; at worst a power cut undoes it
                sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush the file names of a folder to disk."""
    if sys.platform == "win32":  # which cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_replaceable(path: Path, kind: str) -> None:
    hint = "choose another --out, or remove the folder first"
    try:
        present = read_manifest(path)["kind"]
    except UserError as error:
        raise UserError(str(error), hint=hint) from None
    if present != kind:
        raise UserError(
            f"{path} is a {present} folder; a {kind} folder must not replace it", hint=hint
        )


def _remove_stale(path: Path) -> None:
    """Remove what killed writes left beside ``path``. A write that still runs holds a lock."""
    partial = re.compile(rf"{re.escape(f'.{path.name}.writing-')}\d+-[0-9a-f]{{8}}")
    beside: list[Path] = []
    with suppress(OSError):  # the parent folder may not be readable
        beside = [other for other in path.parent.iterdir() if partial.fullmatch(other.name)]
    for stale in beside:
        with suppress(OSError, UserError), locked(stale) as acquired:
            if acquired:
                shutil.rmtree(stale, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove rankfold's files that the manifest does not name; other files stay."""
    present = {path.name: path for path in folder.iterdir()}
    files = read_manifest(folder)["files"] if MANIFEST in present else {}
    for name in present.keys() - {entry["file"] for entry in files.values()}:
        if _is_ours(present[name]):
            present[name].unlink()


def _is_ours(path: Path) -> bool:
    """Whether a write left this file, finished or not; False for the manifest."""
    name = path.name
    return bool(DATA_FILE.fullmatch(name) or _UNFINISHED.fullmatch(name)) and not path.is_dir()


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of ``folder``; a UserError if another process holds it.

    The lock covers the folder itself, not the folders in it. It ends with the process, even if the
    process is killed. Yields False where the system has no such locks.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = True
        except BlockingIOError:
            raise UserError(
                f"another process is writing {folder}",
                hint="wait until it is done, or choose another --out",
            ) from None
        except OSError:  # some network file systems
            acquired = False
        yield acquired
    finally:
        os.close(handle)
