"""The beginnings of large input files, for plans that read a part of them only."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import polars as pl

from rankfold.data.read.files import base_suffix, expand, open_binary, plain_name
from rankfold.data.read.values import count_rows

_TEXTS = (".csv", ".tsv", ".tab", ".txt", ".json", ".jsonl", ".ndjson", "")


@dataclass(slots=True)
class Heads:
    """Copies of the beginnings of large files."""

    scratch: Path
    bytes: int  # of a text file
    rows: int  # of a Parquet file
    files: list[Path] = field(default_factory=list)  # all that are read
    is_cut: bool = False
    share: float | None = 1.0  # of the rows of the cut files, in their heads; None: not known

    def of(self, given: Any) -> list[Path]:
        """The files of an input, or their heads."""
        items = given if isinstance(given, list | tuple) else [given]
        files = expand([one for one in items if one is not None])
        self.files += files
        return [self._head(file) for file in files]

    def _head(self, file: Path) -> Path:
        if file.is_dir() or file.stat().st_size <= self.bytes:
            return file
        copy = Path(mkdtemp(dir=self.scratch)) / plain_name(file)
        if file.suffix.lower() == ".parquet":
            rows = pl.scan_parquet(file, glob=False)
            rows.head(self.rows).sink_parquet(copy)
            self._note(min(1.0, self.rows / max(1, count_rows(rows))))
        elif base_suffix(file) in _TEXTS:
            with open_binary(file) as whole:
                text = _whole_records(whole.read(self.bytes))
            copy.write_bytes(text)
            packed = file.suffix.lower() in (".gz", ".zst")
            self._note(None if packed else len(text) / file.stat().st_size)
        else:
            return file
        return copy

    def _note(self, share: float | None) -> None:
        self.is_cut = True
        known = share is not None and self.share is not None
        self.share = min(share, self.share) if known else None  # type: ignore[type-var]

    def estimate(self, n: float) -> float | None:
        """``n`` of the heads, scaled up to all rows."""
        return None if self.share is None else n / self.share


def _whole_records(text: bytes) -> bytes:
    """The text up to the last line that ends outside of quotes."""
    end = text.rfind(b"\n") + 1
    while end and text.count(b'"', 0, end) % 2:
        end = text.rfind(b"\n", 0, end - 1) + 1
    return text[:end] if end else text
