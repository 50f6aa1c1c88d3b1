"""Folders of the extreme classification repository: documents with labels, in train and test.

A folder has one of three forms. The first one present is read:

- raw: ``trn.json.gz``, ``tst.json.gz`` and ``lbl.json.gz``, one object per line, with a ``title``,
  ``content`` and, for documents, the rows of the labels in ``target_ind``;
- sparse: ``trn_X_Xf.txt`` (features), ``trn_X_Y.txt`` (labels), the same for ``tst``, and
  ``lbl_X_Xf.txt`` or ``Yf.txt``; see ``sparse_text`` for the format;
- old: ``train.txt`` and ``test.txt``, the first line ``rows features labels``, all others
  ``label,label feature:value ...``.

Optional ``filter_labels_train.txt`` and ``filter_labels_test.txt`` hold pairs of a row of the split
and a label that may not be returned for it. ``prepare`` removes such pairs from the split as well.

Keys are numbers: a training document has the number of its row, a test document the number of its
row plus the number of training documents, a label the number of its column. All of them get rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch

from rankfold.data.read import record_reader, sparse_text
from rankfold.data.read.files import lines
from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents, TextTable
from rankfold.data.read.sparse_text import MAX_SIZE, Sparse, read_sparse
from rankfold.errors import UserError
from rankfold.types import TEST, TRAIN, Texts

SPLITS = {"trn": TRAIN, "tst": TEST}
_OLD_FILES = {"trn": ("train.txt", "*_train.txt"), "tst": ("test.txt", "*_test.txt")}
_FILTER_FILES = {"trn": "filter_labels_train.txt", "tst": "filter_labels_test.txt"}
_LABEL_FILES = ("lbl_X_Xf.txt", "Yf.txt")
HINT = "see the guide for the files of the XC repository"


class _SplitPart(NamedTuple):
    """One split: the words or features of its documents, and their labels."""

    words: pl.Series | None
    features: Sparse | None
    labels: Sparse


def read_xc(folder: Path, reading: Reading, *, content: bool = False) -> Documents:
    """The documents of a folder; ``content``: of raw texts, add the content to the title."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder", hint=HINT)
    if _find(folder, "trn.json"):
        parts, labels = _read_raw(folder, reading, content=content)
    elif _find(folder, "trn_X_Y.txt"):
        parts, labels = _read_sparse(folder, reading)
    elif _find(folder, *_OLD_FILES["trn"]):
        parts, labels = _read_old(folder, reading)
    else:
        raise UserError(
            f"{folder} has no training documents",
            hint=f"expected trn.json.gz, trn_X_Y.txt or train.txt; {HINT}",
        )
    first = {"trn": 0, "tst": parts["trn"].labels.n_rows}
    tables = {"query": _documents(folder, parts), "candidate": labels}
    return Documents(_pairs(parts, first), tables, _excluded(folder, parts, first))


# ---------------------------------------------------------------------------------- assembling


def _pairs(parts: Mapping[str, _SplitPart], first: Mapping[str, int]) -> pl.LazyFrame:
    frames = []
    for name, part in parts.items():
        labels = part.labels
        rows = np.repeat(np.arange(labels.n_rows) + first[name], np.diff(labels.offsets))
        columns = {"query": rows, "candidate": labels.columns, "grade": labels.values}
        split = pl.lit(SPLITS[name], pl.UInt8)
        frames.append(pl.DataFrame(columns).with_columns(split=split))
    return pl.concat(frames).lazy()


def _documents(folder: Path, parts: Mapping[str, _SplitPart]) -> TextTable:
    n = sum(part.labels.n_rows for part in parts.values())
    keys = pl.int_range(n, eager=True)
    words = [part.words for part in parts.values() if part.words is not None]
    if words:
        return TextTable(folder.name, keys, pl.concat(words))
    return _bags(
        folder, n, *(part.features for part in parts.values() if part.features is not None)
    )


def _bags(folder: Path, n: int, *matrices: Sparse) -> TextTable:
    """The rows of all matrices, n together, as bags; without matrices the keys only."""
    keys = pl.int_range(n, eager=True)
    if not matrices:
        return TextTable(folder.name, keys)
    counts = np.concatenate([np.diff(matrix.offsets) for matrix in matrices])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([matrix.columns for matrix in matrices]).astype(np.int32)
    weights = torch.from_numpy(np.concatenate([matrix.values for matrix in matrices]))
    bags = Texts(torch.from_numpy(offsets), torch.from_numpy(columns), weights)
    n_tokens = max(matrix.n_columns for matrix in matrices)
    return TextTable(folder.name, keys, bags=bags, n_tokens=n_tokens)


def _excluded(
    folder: Path, parts: Mapping[str, _SplitPart], first: Mapping[str, int]
) -> pl.DataFrame | None:
    blocks = []
    for name, part in parts.items():
        path = _find(folder, _FILTER_FILES[name])
        if path is not None:
            shape = (part.labels.n_rows, part.labels.n_columns)
            pairs = np.array(list(_read_filter(path, shape)), dtype=np.int64).reshape(-1, 2)
            blocks.append(pairs + np.array([first[name], 0]))
    return pl.DataFrame(np.concatenate(blocks), ["query", "candidate"]) if blocks else None


def _read_filter(path: Path, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
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
                hint=f"there are {shape[0]:,} rows and {shape[1]:,} labels, numbered from 0",
            )
        yield row, label


# ---------------------------------------------------------------------------------- raw texts


def _read_raw(
    folder: Path, reading: Reading, *, content: bool
) -> tuple[dict[str, _SplitPart], TextTable]:
    titles, n_labels = None, None
    if path := _find(folder, "lbl.json"):
        titles, _ = _objects(path, reading, content=content)
        n_labels = len(titles)
    parts = {}
    for name in SPLITS:
        words, rows = _objects(_needed(folder, f"{name}.json"), reading, content=content)
        parts[name] = _SplitPart(words, None, _targets(rows, n_labels, f"{name}.json"))
    size = n_labels or max(part.labels.n_columns for part in parts.values())
    parts = {
        name: part._replace(labels=part.labels._replace(n_columns=size))
        for name, part in parts.items()
    }
    return parts, TextTable(folder.name, pl.int_range(size, eager=True), titles)


def _objects(path: Path, reading: Reading, *, content: bool) -> tuple[pl.Series, list[Any]]:
    """The words of each object, and its ``target_ind``."""
    reading.progress(f"reading {path.name}", 0.0)
    words: list[str | None] = []
    targets: list[Any] = []
    for line, record in record_reader.objects(path):
        if record is None:  # dropping it would shift the numbers of the others
            raise UserError(f"{path.name}:{line} holds no JSON object", hint=HINT)
        if line > len(words) + 1:  # the same
            raise UserError(
                f"{path.name}:{len(words) + 1} is blank, and objects follow",
                hint="lines number the rows; is a document missing there?",
            )
        fields = [record.get("title"), record.get("content") if content else None]
        text = " ".join(part for part in map(record_reader.as_text, fields) if part)
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
            type(label) is int and 0 <= label < MAX_SIZE for label in row
        )
        wrong = (
            [label for label in row if n_labels is not None and label >= n_labels] if good else row
        )
        if not good or wrong:
            raise UserError(
                f"row {number:,} of {file} has target_ind {str(wrong)[:80]}",
                hint="expected a list of rows of lbl.json, numbered from 0, [] for none"
                + (f", below {n_labels:,}" if n_labels is not None else ""),
            )
    counts = [len(row) for row in rows]
    columns = np.fromiter((label for row in rows for label in row), np.int64)
    highest = int(columns.max(initial=-1)) + 1
    ones = np.ones(len(columns), np.float32)
    return Sparse(np.concatenate([[0], np.cumsum(counts)]), columns, ones, n_labels or highest)


# ---------------------------------------------------------------------------------- sparse files


def _read_sparse(folder: Path, reading: Reading) -> tuple[dict[str, _SplitPart], TextTable]:
    parts = {}
    for name in SPLITS:
        features, labels = (
            read_sparse(_needed(folder, f"{name}_X_{what}.txt"), reading) for what in ("Xf", "Y")
        )
        if features.n_rows != labels.n_rows:
            raise UserError(
                f"{name}_X_Xf.txt has {features.n_rows:,} rows, {name}_X_Y.txt {labels.n_rows:,}",
                hint="both have one row per document; are they from the same data set?",
            )
        parts[name] = _SplitPart(None, features, labels)
    n_features, n_labels = _same_columns(parts)
    path = _find(folder, *_LABEL_FILES)
    if path is None:
        return parts, _bags(folder, n_labels)
    of_labels = read_sparse(path, reading)
    if of_labels.n_rows != n_labels:
        raise UserError(
            f"{path.name} has {of_labels.n_rows:,} rows, but there are {n_labels:,} labels",
            hint="it has one row per label; is it from the same data set?",
        )
    if of_labels.n_columns != n_features:
        raise UserError(
            f"{path.name} has {of_labels.n_columns:,} features, the documents {n_features:,}",
            hint="labels and documents share their features; is it from the same data set?",
        )
    return parts, _bags(folder, n_labels, of_labels)


def _read_old(folder: Path, reading: Reading) -> tuple[dict[str, _SplitPart], TextTable]:
    parts = {name: _read_old_file(_needed(folder, *_OLD_FILES[name]), reading) for name in SPLITS}
    return parts, _bags(folder, _same_columns(parts)[1])


def _read_old_file(path: Path, reading: Reading) -> _SplitPart:
    reading.progress(f"reading {path.name}", 0.0)
    blocks = sparse_text.read_blocks(path, ("rows", "features", "labels"))
    ((_, n_features, n_labels), _) = next(blocks)
    features, labels = [], []
    for first, block in blocks:
        cut = [_cut(line) for line in block]
        labels.append(sparse_text.parse([line for line, _ in cut], n_labels, path, first))
        features.append(sparse_text.parse([line for _, line in cut], n_features, path, first))
    return _SplitPart(
        None, sparse_text.join(features, n_features), sparse_text.join(labels, n_labels)
    )


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """The labels of a line, in the notation of features, and its features."""
    labels, _, features = line.partition(b" ")
    if b":" in labels or not labels:
        return b"", line
    return b" ".join(label + b":1" for label in labels.split(b",")), features


def _same_columns(parts: Mapping[str, _SplitPart]) -> tuple[int, int]:
    """The numbers of features and labels; a UserError if the headers of train and test differ."""
    sizes = []
    for what in ("features", "labels"):
        train, test = (getattr(part, what).n_columns for part in parts.values())
        if train != test:
            raise UserError(
                f"train has {train:,} {what}, test {test:,}",
                hint="the headers must agree; are they from the same data set?",
            )
        sizes.append(train)
    return sizes[0], sizes[1]


# ---------------------------------------------------------------------------------- files


def _find(folder: Path, *names: str) -> Path | None:
    """The first of these files in a folder, plain or compressed."""
    for name in names:
        for end in ("", ".gz", ".zst"):
            matches = sorted(folder.glob(name + end))
            if matches:
                return matches[0]
    return None


def _needed(folder: Path, *names: str) -> Path:
    path = _find(folder, *names)
    if path is None:
        raise UserError(f"{folder} has no {names[0]}", hint=HINT)
    return path
