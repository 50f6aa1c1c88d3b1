"""The disk: locks, temporary files, writes that are flushed to it, and its errors.

A temporary file or folder has a random name and is created exclusively, so that a link planted at a
temporary name is never followed. It is locked while it is written. The lock ends with the process,
so the next write to the same place removes what killed processes have left.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

from rankfold.errors import DiskError, UserError, format_bytes

CHUNK = 2**24  # bytes written at a time
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MARK = re.compile(r"\.writing-[0-9a-f]{16}")  # the end of a temporary name
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_ATTEMPTS = 10  # to make a temporary file or folder and to lock it
_HELD: ContextVar[frozenset[tuple[int, int]]] = ContextVar("_HELD", default=frozenset())


# ---------------------------------------------------------------------------------- errors


@contextmanager
def write_errors(
    path: Path,
    needed: Callable[[], int] = lambda: 0,
    hint: str = "the previous content is unchanged; free some space or choose another --out",
) -> Iterator[None]:
    """Turn an error of the disk into a UserError with the path and, on a full disk, the space.

    ``needed``: the number of bytes to be written, 0 if it is not known.
    """
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if (cause := os_error(error)) is None:
            raise
        if cause.errno in FULL:
            wants = f"{format_bytes(size)} needed, " if (size := needed()) else ""
            hint = f"{wants}{format_bytes(free_bytes(path))} free; {hint}"
        what = cause.strerror or cause
        raise DiskError(f"cannot write {path}: {what}", hint=hint) from error


def os_error(error: BaseException) -> OSError | None:
    """The OSError that an exception is or, if polars raised it, describes."""
    if isinstance(error, OSError):
        return error
    if type(error).__module__.partition(".")[0] not in ("polars", "pyo3_runtime"):
        return None
    number = re.search(r"\(os error (\d+)\)", str(error))
    return None if number is None else OSError(int(number[1]), os.strerror(int(number[1])))


def is_full(error: BaseException) -> bool:
    """Whether an exception says that a disk is full."""
    cause = os_error(error)
    return cause is not None and cause.errno in FULL


def free_bytes(path: Path) -> int:
    """Those of the disk where ``path`` is or would be."""
    places = (path.absolute(), *path.absolute().parents)
    return shutil.disk_usage(next(place for place in places if place.exists())).free


def check_encodable(path: Path) -> None:
    """A UserError for a name that is not UTF-8: the libraries that read and write refuse it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"the name {os.fsencode(path)!r} is not UTF-8", hint="rename it") from None


# ---------------------------------------------------------------------------------- locks


@contextmanager
def locked(folder: Path, of: Path | None = None) -> Iterator[bool]:
    """Hold the lock of ``folder``; a UserError if another process writes it, or ``of``.

    ``write`` in the body may write the folder. The lock covers the folder itself, not the folders
    in it. It ends with the process, even if the process is killed. Yields False where the system
    has no such locks.
    """
    what = folder if of is None else of
    with ExitStack() as stack:
        with write_errors(what):
            acquired, place = stack.enter_context(_lock(folder, what))
        token = _HELD.set(_HELD.get() | {place})
        try:
            yield acquired
        finally:
            _HELD.reset(token)


@contextmanager
def locked_to_write(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``, which a body of ``locked`` holds already."""
    status = folder.stat()
    if (status.st_dev, status.st_ino) in _HELD.get():
        yield
        return
    with _lock(folder, folder):
        yield


@contextmanager
def _lock(path: Path, what: Path) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Lock a file or folder; yields whether the system has such locks, and what was locked."""
    if sys.platform == "win32":
        yield False, (0, 0)
        return
    import fcntl

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = True
        except BlockingIOError:
            raise UserError(
                f"{_holder(status.st_ino)} is writing {what}",
                hint="wait until it is done, or choose another --out",
            ) from None
        except OSError:  # some network file systems
            acquired = False
        if not os.path.samestat(status, path.stat()):  # replaced before it was locked
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        yield acquired, (status.st_dev, status.st_ino)
    finally:
        os.close(handle)


def _holder(inode: int) -> str:
    """The process that holds a lock, where the system lists them."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            if found := re.search(rf"FLOCK .* (\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", line):
                return f"process {found[1]}"
    return "another process"


# ---------------------------------------------------------------------------------- temporaries


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty file to fill, which becomes ``path`` at the end; a failure leaves nothing."""
    with write_errors(path), beside(path, new_file) as temporary:
        yield temporary
        flush(temporary)
        commit(temporary, path)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for temporary files in TMPDIR."""
    try:
        home = Path(tempfile.gettempdir())
    except OSError as error:  # it tries to write
        raise DiskError(str(error), hint="set TMPDIR to a folder with free space") from None
    with (
        write_errors(home, hint="set TMPDIR to a folder with more space"),
        beside(home / "rankfold", lambda folder: folder.mkdir(0o700)) as folder,
    ):
        yield folder


@contextmanager
def beside(path: Path, make: Callable[[Path], Any]) -> Iterator[Path]:
    """A new file or folder beside ``path``, locked; removed at the end unless it was renamed.

    Before it is locked, another process may take it for stale. Then a new one is made.
    """
    remove_stale(path)
    with ExitStack() as stack:
        for left in reversed(range(_ATTEMPTS)):
            temporary = new_name(path.parent, f".{path.name}")
            make(temporary)
            stack.callback(_remove, temporary)
            try:
                stack.enter_context(_lock(temporary, temporary))
            except (FileNotFoundError, UserError):
                if left == 0:
                    raise
            else:
                break
        yield temporary


def remove_stale(path: Path) -> None:
    """Remove what killed writes left beside ``path``. A write that still runs holds a lock."""
    for one in stale_beside(path):
        with suppress(OSError, UserError):
            if stat.S_ISLNK(one.lstat().st_mode):
                one.unlink()
                continue
            with _lock(one, one) as (acquired, _):
                if acquired:
                    _remove(one)


def stale_beside(path: Path) -> list[Path]:
    """The temporary files and folders of writes to ``path`` that were killed or still run."""
    mark = re.compile(rf"\.{re.escape(path.name)}{MARK.pattern}")
    with suppress(OSError):  # the parent folder may not be readable
        return sorted(other for other in path.parent.iterdir() if mark.fullmatch(other.name))
    return []


def new_name(folder: Path, start: str) -> Path:
    return folder / f"{start}.writing-{secrets.token_hex(8)}"


def new_file(path: Path) -> None:
    """Create an empty file."""
    os.close(os.open(path, _NEW, 0o666))


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


# ---------------------------------------------------------------------------------- writes


Put: TypeAlias = Callable[[bytes | memoryview], int]
"""Writes the next bytes of a file, and returns how many."""


@contextmanager
def filling(path: Path) -> Iterator[Put]:
    """A function that writes into an empty file, which is flushed to disk at the end."""
    handle = os.open(path, os.O_WRONLY | _NO_FOLLOW)
    try:

        def put(piece: bytes | memoryview) -> int:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(handle, rest[:CHUNK]) :]
            return len(piece)

        yield put
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(temporary: Path, path: Path) -> None:
    """Put a flushed file at ``path``: a reader sees all of it, or the previous file."""
    temporary.replace(path)
    with suppress(OSError):  # it is done; at worst a power cut undoes it
        flush(path.parent)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    if sys.platform == "win32" and path.is_dir():  # which cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
