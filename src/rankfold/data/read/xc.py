"""Folders of the extreme classification repository: documents with labels, in train and test.

A folder has one of three forms; where there are several, the first is read:

- raw: ``trn.json.gz``, ``tst.json.gz`` and ``lbl.json.gz``, one object per line, with a ``title``,
  ``content`` and, for documents, the rows of its labels in ``target_ind``;
- sparse: ``trn_X_Xf.txt`` (features), ``trn_X_Y.txt`` (labels), likewise ``tst``, and
  ``lbl_X_Xf.txt`` or ``Yf.txt``; the first line has the size, ``rows columns``, every other one a
  row, ``column:value ...``;
- old: ``train.txt`` and ``test.txt``, the first line ``rows features labels``, every other one
  ``label,label feature:value ...``.

Beside them, ``filter_labels_train.txt`` and ``filter_labels_test.txt`` name a row of the split and
a label that may not be returned for it; ``prepare`` takes such a pair out of the split as well. A
training document has the key of its row, a test document that of its row after all training
documents, a label that of its column; all of them get rows.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from rankfold.data.build.split import TEST, TRAIN
from rankfold.data.read import record_reader
from rankfold.data.read.documents import Documents, TextTable
from rankfold.data.read.files import Reading, lines, open_binary
from rankfold.errors import UserError
from rankfold.types import Texts

SPLITS = {"trn": TRAIN, "tst": TEST}
OLD = {"trn": ("train.txt", "*_train.txt"), "tst": ("test.txt", "*_test.txt")}
FILTERS = {"trn": "filter_labels_train.txt", "tst": "filter_labels_test.txt"}
LABELS = ("lbl_X_Xf.txt", "Yf.txt")
BLOCK = 20_000  # lines that are read at once
LARGEST = 2**31  # rows, features and labels are fewer
HINT = "see the guide for the files of the XC repository"


class Sparse(NamedTuple):
    """A matrix by rows."""

    offsets: NDArray[np.int64]  # [rows + 1]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]
    n_columns: int

    @property
    def n_rows(self) -> int:
        return len(self.offsets) - 1


class Part(NamedTuple):
    """One split: what is written in its documents, and their labels."""

    words: pl.Series | None
    features: Sparse | None
    labels: Sparse


def read_xc(folder: Path, reading: Reading, *, content: bool = False) -> Documents:
    """The documents of a folder; ``content`` is added to the titles of raw texts where asked."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder", hint=HINT)
    if _find(folder, "trn.json"):
        parts, labels = _raw(folder, reading, content=content)
    elif _find(folder, "trn_X_Y.txt"):
        parts, labels = _sparse(folder, reading)
    elif _find(folder, *OLD["trn"]):
        parts, labels = _old(folder, reading)
    else:
        raise UserError(
            f"{folder} has no training documents",
            hint=f"expected trn.json.gz, trn_X_Y.txt or train.txt; {HINT}",
        )
    first = {"trn": 0, "tst": parts["trn"].labels.n_rows}
    tables = {"query": _documents(folder, parts), "candidate": labels}
    return Documents(_pairs(parts, first), tables, _excluded(folder, parts, first))


# ---------------------------------------------------------------------------------- assembling


def _pairs(parts: Mapping[str, Part], first: Mapping[str, int]) -> pl.LazyFrame:
    frames = []
    for name, part in parts.items():
        labels = part.labels
        rows = np.repeat(np.arange(labels.n_rows) + first[name], np.diff(labels.offsets))
        columns = {"query": rows, "candidate": labels.columns, "grade": labels.values}
        split = pl.lit(SPLITS[name], pl.UInt8)
        frames.append(pl.DataFrame(columns).with_columns(split=split))
    return pl.concat(frames).lazy()


def _documents(folder: Path, parts: Mapping[str, Part]) -> TextTable:
    n = sum(part.labels.n_rows for part in parts.values())
    keys = pl.int_range(n, eager=True)
    words = [part.words for part in parts.values() if part.words is not None]
    if words:
        return TextTable(folder.name, keys, pl.concat(words))
    matrices = [part.features for part in parts.values() if part.features is not None]
    bags, n_tokens = _bags(matrices)
    return TextTable(folder.name, keys, bags=bags, n_tokens=n_tokens)


def _labels(folder: Path, n: int, features: Sparse | None) -> TextTable:
    keys = pl.int_range(n, eager=True)
    if features is None:
        return TextTable(folder.name, keys)
    bags, n_tokens = _bags([features])
    return TextTable(folder.name, keys, bags=bags, n_tokens=n_tokens)


def _bags(matrices: Sequence[Sparse]) -> tuple[Texts, int]:
    """The rows of all matrices, and the number of columns."""
    counts = np.concatenate([np.diff(matrix.offsets) for matrix in matrices])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([matrix.columns for matrix in matrices]).astype(np.int32)
    weights = torch.from_numpy(np.concatenate([matrix.values for matrix in matrices]))
    texts = Texts(torch.from_numpy(offsets), torch.from_numpy(columns), weights)
    return texts, max(matrix.n_columns for matrix in matrices)


def _excluded(
    folder: Path, parts: Mapping[str, Part], first: Mapping[str, int]
) -> pl.DataFrame | None:
    found = []
    for name, part in parts.items():
        path = _find(folder, FILTERS[name])
        if path is not None:
            shape = (part.labels.n_rows, part.labels.n_columns)
            pairs = np.array(list(_filter(path, shape)), dtype=np.int64).reshape(-1, 2)
            found.append(pairs + np.array([first[name], 0]))
    return pl.DataFrame(np.concatenate(found), ["query", "candidate"]) if found else None


def _filter(path: Path, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for number, line in lines(path):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2 or not all(cell.isdecimal() for cell in cells):
            raise UserError(
                f"{path.name}:{number} is {line[:80]!r}", hint="expected a row and a label"
            )
        row, label = map(int, cells)
        if row >= shape[0] or label >= shape[1]:
            raise UserError(
                f"{path.name}:{number} names row {row:,} and label {label:,}",
                hint=f"there are {shape[0]:,} rows and {shape[1]:,} labels, counted from 0",
            )
        yield row, label


# ---------------------------------------------------------------------------------- raw texts


def _raw(folder: Path, reading: Reading, *, content: bool) -> tuple[dict[str, Part], TextTable]:
    titles, n_labels = None, None
    if path := _find(folder, "lbl.json"):
        titles, _ = _objects(path, reading, content=content)
        n_labels = len(titles)
    parts = {}
    for name in SPLITS:
        words, rows = _objects(_needed(folder, f"{name}.json"), reading, content=content)
        parts[name] = Part(words, None, _targets(rows, n_labels, f"{name}.json"))
    size = n_labels or max(part.labels.n_columns for part in parts.values())
    parts = {
        name: part._replace(labels=part.labels._replace(n_columns=size))
        for name, part in parts.items()
    }
    return parts, TextTable(folder.name, pl.int_range(size, eager=True), titles)


def _objects(path: Path, reading: Reading, *, content: bool) -> tuple[pl.Series, list[Any]]:
    """The words of each object, and what it names in ``target_ind``."""
    reading.progress(f"reading {path.name}", 0.0)
    words: list[str | None] = []
    targets: list[Any] = []
    for line, record in record_reader.objects(path):
        if record is None:  # to leave it out would number the others anew
            raise UserError(f"{path.name}:{line} holds no JSON object", hint=HINT)
        if line > len(words) + 1:  # likewise
            raise UserError(
                f"{path.name}:{len(words) + 1} is blank, and objects follow",
                hint="rows are counted by lines; is the document missing there?",
            )
        told = [record.get("title"), record.get("content") if content else None]
        text = " ".join(part for part in map(record_reader.as_text, told) if part)
        if not record_reader.is_decoded(text):
            raise UserError(f"{path.name}:{line} is not UTF-8", hint="copy or download it again")
        words.append(text or None)
        targets.append(record.get("target_ind"))
    if not words:
        raise UserError(f"{path.name} is empty", hint=HINT)
    return pl.Series(words, dtype=pl.String), targets


def _targets(rows: Sequence[Any], n_labels: int | None, file: str) -> Sparse:
    for number, row in enumerate(rows):
        good = isinstance(row, list) and all(
            type(label) is int and 0 <= label < LARGEST for label in row
        )
        wrong = (
            [label for label in row if n_labels is not None and label >= n_labels] if good else row
        )
        if not good or wrong:
            raise UserError(
                f"row {number:,} of {file} has target_ind {str(wrong)[:80]}",
                hint="expected a list of rows of lbl.json, [] where there is none, counted from 0"
                + (f", below {n_labels:,}" if n_labels is not None else ""),
            )
    counts = [len(row) for row in rows]
    columns = np.fromiter((label for row in rows for label in row), np.int64)
    highest = int(columns.max(initial=-1)) + 1
    ones = np.ones(len(columns), np.float32)
    return Sparse(np.concatenate([[0], np.cumsum(counts)]), columns, ones, n_labels or highest)


# ---------------------------------------------------------------------------------- sparse files


def _sparse(folder: Path, reading: Reading) -> tuple[dict[str, Part], TextTable]:
    parts = {}
    for name in SPLITS:
        features, labels = (
            read_sparse(_needed(folder, f"{name}_X_{what}.txt"), reading) for what in ("Xf", "Y")
        )
        if features.n_rows != labels.n_rows:
            raise UserError(
                f"{name}_X_Xf.txt has {features.n_rows:,} rows, {name}_X_Y.txt {labels.n_rows:,}",
                hint="both have a row per document; are they of the same data set?",
            )
        parts[name] = Part(None, features, labels)
    n_features, n_labels = _same_columns(parts)
    path = _find(folder, *LABELS)
    about = None if path is None else read_sparse(path, reading)
    if path is not None and about is not None and about.n_rows != n_labels:
        raise UserError(
            f"{path.name} has {about.n_rows:,} rows, but there are {n_labels:,} labels",
            hint="it has a row per label; is it of the same data set?",
        )
    if path is not None and about is not None and about.n_columns != n_features:
        raise UserError(
            f"{path.name} has {about.n_columns:,} features, the documents {n_features:,}",
            hint="texts of both are in the same features; is it of the same data set?",
        )
    return parts, _labels(folder, n_labels, about)


def read_sparse(path: Path, reading: Reading) -> Sparse:
    """A matrix whose first line is its size."""
    reading.progress(f"reading {path.name}", 0.0)
    blocks = _blocks(path, ("rows", "columns"))
    ((_, n_columns), _) = next(blocks)
    found = [_entries(block, n_columns, path, first) for first, block in blocks]
    return _joined(found, n_columns)


def _old(folder: Path, reading: Reading) -> tuple[dict[str, Part], TextTable]:
    parts = {name: _read_old(_needed(folder, *OLD[name]), reading) for name in SPLITS}
    return parts, _labels(folder, _same_columns(parts)[1], None)


def _read_old(path: Path, reading: Reading) -> Part:
    reading.progress(f"reading {path.name}", 0.0)
    blocks = _blocks(path, ("rows", "features", "labels"))
    ((_, n_features, n_labels), _) = next(blocks)
    features, labels = [], []
    for first, block in blocks:
        cut = [_cut(line) for line in block]
        labels.append(_entries([line for line, _ in cut], n_labels, path, first))
        features.append(_entries([line for _, line in cut], n_features, path, first))
    return Part(None, _joined(features, n_features), _joined(labels, n_labels))


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """The labels of a line, written as the features are, and its features."""
    labels, _, features = line.partition(b" ")
    if b":" in labels or not labels:
        return b"", line
    return b" ".join(label + b":1" for label in labels.split(b",")), features


def _same_columns(parts: Mapping[str, Part]) -> tuple[int, int]:
    """How many features and labels the headers of train and test tell, which have to agree."""
    found = []
    for what in ("features", "labels"):
        train, test = (getattr(part, what).n_columns for part in parts.values())
        if train != test:
            raise UserError(
                f"train has {train:,} {what}, test {test:,}",
                hint="the headers have to agree; are they of the same data set?",
            )
        found.append(train)
    return found[0], found[1]


def _blocks(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """The numbers of the header with line 1; then lines, with the number of the first of them."""
    with open_binary(path) as file:
        head = file.readline().decode(errors="replace").strip("\ufeff\r\n ")
        cells = head.split()
        if len(cells) != len(names) or not all(cell.isdecimal() for cell in cells):
            raise UserError(
                f"the first line of {path.name} is {head[:80]!r}",
                hint=f"expected {len(names)} whole numbers: {', '.join(names)}",
            )
        if any(len(cell) > 10 or int(cell) >= LARGEST for cell in cells):
            raise UserError(
                f"the first line of {path.name} is {head[:80]!r}",
                hint=f"no number of it may reach {LARGEST:,}",
            )
        n_rows = int(cells[0])
        yield tuple(map(int, cells)), 1
        done = 0
        while block := [line.rstrip(b"\r\n") for line in islice(file, BLOCK)]:
            while len(block) > max(0, n_rows - done) and not block[-1].strip():
                block.pop()  # blank lines at the end are no rows
            if block:
                yield done + 2, block
            done += len(block)
    if done != n_rows:
        raise UserError(
            f"{path.name} has {done:,} rows, but its first line says {n_rows:,}",
            hint="is it complete?",
        )


Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""How many each row has, their columns and values."""


def _entries(block: Sequence[bytes], n_columns: int, path: Path, first: int) -> Entries:
    """The entries of some lines; the first line that is wrong is told in a UserError."""
    try:
        return _parse(block, n_columns)
    except ValueError as error:
        if len(block) > 1:
            for number, line in enumerate(block):
                _entries([line], n_columns, path, first + number)
        raise UserError(
            f"{path.name}:{first} holds {error}",
            hint=f"expected column:value ..., columns from 0 to {n_columns - 1:,}",
        ) from None


_TWICE = re.compile(rb":[^\s:]*:")


def _parse(block: Sequence[bytes], n_columns: int) -> Entries:
    text = b" ".join(block)
    counts = np.array([line.count(b":") for line in block], dtype=np.int64)
    if len(text.split()) != counts.sum() or _TWICE.search(text):
        raise ValueError("what is not column:value")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # some versions only warn of what is no number
        try:
            numbers = np.fromstring(text.replace(b":", b" ").decode("ascii"), sep=" ")
        except (ValueError, DeprecationWarning):
            raise ValueError("what is not a number") from None
    if len(numbers) != 2 * counts.sum():
        raise ValueError("what is not column:value")
    columns, values = numbers[::2], numbers[1::2].astype(np.float32)
    if not ((columns >= 0) & (columns < n_columns) & (columns % 1 == 0)).all():
        raise ValueError("a column that does not exist")
    if not np.isfinite(values).all():
        raise ValueError("a value that is not finite")
    return counts, columns.astype(np.int64), values


def _joined(entries: Iterable[Entries], n_columns: int) -> Sparse:
    none: Entries = (np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    counts, columns, values = zip(none, *entries, strict=True)
    offsets = np.cumsum(np.concatenate(counts))
    return Sparse(offsets, np.concatenate(columns), np.concatenate(values), n_columns)


# ---------------------------------------------------------------------------------- files


def _find(folder: Path, *names: str) -> Path | None:
    """The first of the files that a folder has, plain or compressed."""
    for name in names:
        for end in ("", ".gz", ".zst"):
            found = sorted(folder.glob(name + end))
            if found:
                return found[0]
    return None


def _needed(folder: Path, *names: str) -> Path:
    path = _find(folder, *names)
    if path is None:
        raise UserError(f"{folder} has no {names[0]}", hint=HINT)
    return path
