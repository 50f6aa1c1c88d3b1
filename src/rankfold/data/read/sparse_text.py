"""Sparse matrices as text: a header of sizes, then a row ``column:value ...`` per line."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankfold.data.read.files import open_binary
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError

_BLOCK_LINES = 20_000  # read at once
MAX_SIZE = 2**31  # rows and columns are fewer
Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""The number of entries of each row, their columns and values."""
_TWO_COLONS = re.compile(rb":[^\s:]*:")


class Sparse(NamedTuple):
    """A matrix by rows."""

    offsets: NDArray[np.int64]  # [rows + 1]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]
    n_columns: int

    @property
    def n_rows(self) -> int:
        return len(self.offsets) - 1


def read_sparse(path: Path, reading: Reading) -> Sparse:
    """A matrix whose first line is its size, ``rows columns``."""
    reading.progress(f"reading {path.name}", 0.0)
    blocks = read_blocks(path, ("rows", "columns"))
    ((_, n_columns), _) = next(blocks)
    return join([parse(block, n_columns, path, first) for first, block in blocks], n_columns)


def read_blocks(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """First the header's numbers and 1; then the number of a first line and a block of lines."""
    with open_binary(path) as file:
        head = file.readline().decode(errors="replace").strip("\ufeff\r\n ")
        cells = head.split()
        numbers = len(cells) == len(names) and all(cell.isdecimal() for cell in cells)
        if not numbers or any(len(cell) > 10 or int(cell) >= MAX_SIZE for cell in cells):
            whole = f"expected {len(names)} whole numbers: {', '.join(names)}"
            raise UserError(
                f"the first line of {path.name} is {head[:80]!r}",
                hint=f"its numbers must be below {MAX_SIZE:,}" if numbers else whole,
            )
        n_rows = int(cells[0])
        yield tuple(map(int, cells)), 1
        done = 0
        while block := [line.rstrip(b"\r\n") for line in islice(file, _BLOCK_LINES)]:
            while len(block) > max(0, n_rows - done) and not block[-1].strip():
                block.pop()  # blank lines at the end are not rows
            if block:
                yield done + 2, block
            done += len(block)
    if done != n_rows:
        raise UserError(
            f"{path.name} has {done:,} rows, but its first line says {n_rows:,}",
            hint="is it complete?",
        )


def parse(block: Sequence[bytes], n_columns: int, path: Path, first: int) -> Entries:
    """The entries of some lines; a UserError for the first malformed line."""
    try:
        return _parse(block, n_columns)
    except ValueError as error:
        if len(block) > 1:
            for number, line in enumerate(block):
                parse([line], n_columns, path, first + number)
        raise UserError(
            f"{path.name}:{first} holds {error}",
            hint=f"expected column:value ..., columns from 0 to {n_columns - 1:,}",
        ) from None


def _parse(block: Sequence[bytes], n_columns: int) -> Entries:
    text = b" ".join(block)
    counts = np.array([line.count(b":") for line in block], dtype=np.int64)
    if len(text.split()) != counts.sum() or _TWO_COLONS.search(text):
        raise ValueError("an entry that is not column:value")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # some versions of numpy only warn of malformed numbers
        try:
            numbers = np.fromstring(text.replace(b":", b" ").decode("ascii"), sep=" ")
        except (ValueError, DeprecationWarning):
            raise ValueError("an entry that is not a number") from None
    if len(numbers) != 2 * counts.sum():
        raise ValueError("an entry that is not column:value")
    columns, values = numbers[::2], numbers[1::2].astype(np.float32)
    if not ((columns >= 0) & (columns < n_columns) & (columns % 1 == 0)).all():
        raise ValueError("a column that does not exist")
    if not np.isfinite(values).all():
        raise ValueError("a value that is not finite")
    return counts, columns.astype(np.int64), values


def join(entries: Iterable[Entries], n_columns: int) -> Sparse:
    """One block of rows after another."""
    none: Entries = (np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    counts, columns, values = zip(none, *entries, strict=True)
    offsets = np.cumsum(np.concatenate(counts))
    return Sparse(offsets, np.concatenate(columns), np.concatenate(values), n_columns)
