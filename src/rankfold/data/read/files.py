"""What every reader is given and uses: a note of bad rows, temporary files, lines of any file."""

from __future__ import annotations

import glob
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import zstandard

from rankfold.errors import UserError
from rankfold.types import Progress

PLACES_SHOWN = 3
LINE = "\0line"  # the column with a row's line or number; no column of an input is called so
SPOOL_ROWS = 500_000


@dataclass(slots=True)
class BadRows:
    """Rows that cannot be used: why, how many, and where the first ones are."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, place: str, n: int = 1) -> None:
        """Note ``n`` rows, the first of them at ``place`` (say ``ratings.csv:17``)."""
        self.counts[reason] = self.counts.get(reason, 0) + n
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(place)

    def describe(self) -> list[str]:
        """One line per reason: ``12 rows with a missing query (a.csv:17, a.csv:40, ...)``."""
        lines = []
        for reason, count in self.counts.items():
            more = ", ..." if count > len(self.places[reason]) else ""
            rows = "1 row" if count == 1 else f"{count:,} rows"
            lines.append(f"{rows} with {reason} ({', '.join(self.places[reason])}{more})")
        return lines


def silent(_what: str, _share: float) -> None:
    """A ``Progress`` that nobody watches."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader is given besides its files."""

    scratch: Path  # an empty folder that is removed when the data is prepared
    bad: BadRows = field(default_factory=BadRows)
    columns: dict[str, str] = field(default_factory=dict)  # where queries and candidates stood
    progress: Progress = silent

    def new_file(self) -> Path:
        """A path for one more temporary file."""
        return self.scratch / f"{len(list(self.scratch.iterdir()))}.parquet"


def expand(inputs: Sequence[str | Path]) -> list[Path]:
    """The files that ``inputs`` name: plain paths and globs, each glob in sorted order.

    A path that exists is taken as it stands, whatever its letters; a glob does not name folders.
    """
    files: list[Path] = []
    for item in inputs:
        path = Path(item)
        try:
            if path.exists():
                files.append(path)
                continue
            names = glob.glob(str(item), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
            found = sorted(match for name in names if not (match := Path(name)).is_dir())
            if not found:
                raise UserError(f"there is no file {item}", hint=_neighbours(path))
        except OSError as error:
            raise UserError(f"cannot read {item}: {error.strerror}", hint=_MAY_READ) from error
        files.extend(found)
    return files


def home_of(item: str | Path) -> Path:
    """The folder of a path or, of a glob, the one that it begins with: ``a/b`` of ``a/b/*/*.c``."""
    path = Path(item)
    if path.exists():
        return path.parent
    return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))


def _neighbours(path: Path) -> str:
    """What is in the folder of a path that does not exist."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    names = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{path.parent} has {shown}" if names else f"{path.parent} is empty"


def base_suffix(path: Path) -> str:
    """The suffix beneath a compression: ``.csv`` of ``ratings.csv.gz``."""
    compressed = path.suffix.lower() in (".gz", ".zst")
    return (Path(path.stem) if compressed else path).suffix.lower()


_MAY_READ = "is it the right file, and may you read it?"


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed on the way if they are gzip or zstd, whatever its name."""
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint="name the files in it")
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint=_MAY_READ) from error
    head = file.peek(4)
    for mark, start in _PACKED.items():
        if head.startswith(mark):
            return io.BufferedReader(_Unpacked(file, _unpack(file, path, start)), 2**18)
    return file


_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


def _unpack(file: BinaryIO, path: Path, start: Callable[[], Any]) -> Iterator[bytes]:
    """The content of all compressed parts; one that is damaged or cut off is a UserError."""
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
        raise UserError(f"{path.name} is cut off: its last part is missing", hint=_COPY_AGAIN)


_COPY_AGAIN = "copy or download it again"


class _Unpacked(io.RawIOBase):
    """The pieces that are unpacked from a file, as a file of their own."""

    def __init__(self, packed: BinaryIO, pieces: Iterator[bytes]) -> None:
        self._packed = packed
        self._pieces = pieces
        self._rest = memoryview(b"")

    def close(self) -> None:
        self._packed.close()
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
    """``(number from 1, line without its end)`` of a text; bytes that are no text become U+FFFD."""
    with io.TextIOWrapper(
        open_binary(path), encoding=encoding, errors="replace", newline="\n"
    ) as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def spool(
    rows: Iterable[Sequence[Any]], schema: Mapping[str, Any], reading: Reading
) -> pl.LazyFrame:
    """``rows`` as temporary Parquet files, written piece by piece: they need not fit in memory."""
    remaining = iter(rows)
    pieces = iter(lambda: list(islice(remaining, SPOOL_ROWS)), [])
    frames = (pl.DataFrame(piece, schema=dict(schema), orient="row") for piece in pieces)
    return spool_frames(frames, schema, reading)


def spool_frames(
    frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], reading: Reading
) -> pl.LazyFrame:
    """The same for rows that come as small frames."""
    folder = reading.new_file()
    folder.mkdir()
    none = pl.DataFrame(schema=dict(schema))  # so that there is a file even without rows
    for number, frame in enumerate(chain([none], frames)):
        frame.write_parquet(folder / f"{number:06}.parquet")
    return pl.scan_parquet(folder, glob=False)
