"""What every reader is given and uses: a note of bad rows, temporary files, lines of any file."""

from __future__ import annotations

import glob
import gzip
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import zstandard

from rankfold.errors import UserError
from rankfold.types import Progress

PLACES_SHOWN = 3
SPOOL_ROWS = 500_000


@dataclass(slots=True)
class BadRows:
    """Rows that cannot be used: why, how many, and where the first ones are."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, place: str, n: int = 1) -> None:
        """Note ``n`` rows, the first of them at ``place`` (say ``ratings.csv:17``)."""
        self.counts[reason] = self.counts.get(reason, 0) + n
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(place)

    def describe(self) -> list[str]:
        """One line per reason: ``12 rows with a missing query (ratings.csv:17, ratings.csv:40, ...)``."""
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
    progress: Progress = silent


def expand(inputs: Sequence[str | Path]) -> list[Path]:
    """The files that ``inputs`` name: plain paths and globs, each glob in sorted order."""
    files: list[Path] = []
    for item in inputs:
        path = Path(item)
        if path.exists():
            files.append(path)
            continue
        found = sorted(Path(name) for name in glob.glob(str(item), recursive=True))
        if not found:
            raise UserError(f"there is no file {item}", hint=_neighbours(path))
        files.extend(found)
    return files


def _neighbours(path: Path) -> str:
    """What is in the folder of a path that does not exist."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    names = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{path.parent} has {shown}" if names else f"{path.parent} is empty"


def base_suffix(path: Path) -> str:
    """The suffix beneath a compression: ``.csv`` of ``ratings.csv.gz``."""
    compressed = path.suffix.lower() in (".gz", ".zst")
    return (Path(path.stem) if compressed else path).suffix.lower()


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed on the way if it ends in .gz or .zst."""
    match path.suffix.lower():
        case ".gz":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        case ".zst":
            stream = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True)
            return io.BufferedReader(stream)  # type: ignore[type-var, return-value]
        case _:
            return path.open("rb")


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """``(line number from 1, line without its end)`` of a text file; bytes that are no text become U+FFFD."""
    with io.TextIOWrapper(open_binary(path), encoding=encoding, errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def spool(
    rows: Iterable[Sequence[Any]], schema: Mapping[str, Any], reading: Reading
) -> pl.LazyFrame:
    """``rows`` written to temporary Parquet files piece by piece, so that they need not fit in memory."""
    folder = reading.scratch / f"spool-{len(list(reading.scratch.iterdir()))}"
    folder.mkdir()
    remaining = iter(rows)
    number = 0
    while (piece := list(islice(remaining, SPOOL_ROWS))) or number == 0:
        frame = pl.DataFrame(piece, schema=dict(schema), orient="row")
        frame.write_parquet(folder / f"{number:06}.parquet")
        number += 1
    return pl.scan_parquet(folder / "*.parquet")
