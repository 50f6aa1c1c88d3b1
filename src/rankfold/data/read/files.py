"""Paths and bytes: which files an input names, and their content, decompressed."""

import glob
import io
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from rankfold import storage
from rankfold.errors import UserError

MAX_NAMES_SHOWN = 8  # of the files in a folder


def expand(inputs: Sequence[str | Path]) -> list[Path]:
    """The files that ``inputs`` name: paths and globs, the files of each glob sorted.

    An existing path is used literally, even with glob characters. A glob matches no folders.
    """
    files: list[Path] = []
    for item in inputs:
        path = Path(item)
        try:
            storage.check_encodable(path)
            if path.exists():
                files.append(_plain(path))
                continue
            names = glob.glob(str(item), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
            matches = sorted(match for name in names if not (match := Path(name)).is_dir())
            if not matches:
                raise UserError(f"there is no file {item}", hint=_neighbours(path))
        except OSError as error:
            raise UserError(f"cannot read {item}: {error.strerror}", hint=_CHECK_PATH) from error
        for match in matches:
            storage.check_encodable(match)
        files.extend(map(_plain, matches))
    return files


def _plain(path: Path) -> Path:
    """The path of a file or folder; a UserError for a pipe or a device."""
    if not (path.is_file() or path.is_dir()):
        raise UserError(
            f"{path} is a pipe or a device; inputs are read more than once",
            hint="write its content to a file first",
        )
    return path


def unpacked(path: Path, patterns: Collection[str], what: str, scratch: Path) -> list[Path]:
    """``path`` itself; of a folder or a zip file, its files whose names match, sorted by name.

    Patterns match names without the suffix of a compression. Files of a zip, from any folder in it,
    are copied to ``scratch``. Without any, a UserError says that there is no ``what``.
    """
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file() and _matches(file, patterns)]
    elif zipfile.is_zipfile(path):
        files = _unzipped(path, patterns, scratch / str(len(list(scratch.iterdir()))))
    else:
        return [path]
    if not files:
        raise UserError(f"{path} holds no {what}", hint=f"expected {', '.join(patterns)}")
    return sorted(files, key=lambda file: file.name)


def _unzipped(path: Path, patterns: Collection[str], folder: Path) -> list[Path]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            wanted = [name for name in names if _matches(Path(name), patterns)]
            return [Path(archive.extract(name, folder)) for name in wanted]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path.name} is damaged: {error}", hint=_COPY_AGAIN) from error


def _matches(path: Path, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(plain_name(path), pattern) for pattern in patterns)


def plain_name(path: Path) -> str:
    """The name of a file without the suffix of a compression."""
    return path.stem if path.suffix.lower() in (".gz", ".zst") else path.name


def home_of(item: str | Path) -> Path:
    """The folder of a path, or the fixed part of a glob: ``a/b`` for ``a/b/*/*.c``."""
    path = Path(item)
    if path.exists():
        return path.parent
    return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))


def _neighbours(path: Path) -> str:
    """The files beside a missing path, for a hint."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    names = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    shown = ", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")
    folder = "the current folder" if path.parent == Path() else str(path.parent)
    return f"{folder} has {shown}" if names else f"{folder} is empty"


def base_suffix(path: Path) -> str:
    """The suffix without that of a compression: ``.csv`` for ``ratings.csv.gz``."""
    return Path(plain_name(path)).suffix.lower()


_CHECK_PATH = "check the path and its permissions"


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file; gzip and zstd are decompressed, whatever the name of the file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint="name the files in it")
    if path.exists():
        _plain(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint=_CHECK_PATH) from error
    head = file.peek(4)
    for magic, start in _FORMATS.items():
        if head.startswith(magic):
            return io.BufferedReader(_Decompressed(file, _decompress(file, path, start)), 2**18)
    return file


_FORMATS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


def _decompress(file: BinaryIO, path: Path, start: Callable[[], Any]) -> Iterator[bytes]:
    """The content of all compressed parts; a UserError if one is damaged or truncated."""
    part = start()
    try:
        while piece := file.read(2**17):
            while piece:
                part = start() if part.eof else part
                yield part.decompress(piece)
                piece = part.unused_data
    except (zlib.error, zstandard.ZstdError) as error:
        raise UserError(f"{path.name} is damaged: {error}", hint=_COPY_AGAIN) from error
    if not part.eof:
        raise UserError(f"{path.name} is truncated: its last part is missing", hint=_COPY_AGAIN)


_COPY_AGAIN = "copy or download it again"


class _Decompressed(io.RawIOBase):
    """Decompressed pieces as one readable file."""

    def __init__(self, file: BinaryIO, pieces: Iterator[bytes]) -> None:
        self._file = file
        self._pieces = pieces
        self._rest = memoryview(b"")

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


def lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    """``(number from 1, line without its end)`` of a text; invalid UTF-8 becomes U+FFFD."""
    with io.TextIOWrapper(
        open_binary(path), encoding=encoding, errors="replace", newline="\n"
    ) as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")
