"""Prepared data on disk: a folder that is memory-mapped when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from torch import Tensor

from rankfold import storage
from rankfold.data.build.tokens import n_tokens
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.types import (
    Columns,
    Comm,
    Dataset,
    Features,
    Graded,
    Interactions,
    Texts,
    Vocabulary,
    to_tensors,
)

PARTS = ("train", "validation", "test", "excluded", "given")
TOKENIZER = "tokenizer"
_SIDES = {"query": "queries", "candidate": "candidates"}


def save(data: Dataset, path: Path, shards: int = 1) -> None:
    """Write prepared data; pairs and query texts in ``shards`` files, by contiguous queries."""
    files: dict[str, storage.Content] = {}
    for name in PARTS:
        if (part := getattr(data, name)) is not None:
            files |= _in_shards(name, part, shards)
    for name in _SIDES.values():
        files[name] = to_table(getattr(data, name))
    meta: dict[str, Any] = {
        "data_kind": data.kind,
        "sizes": [len(data.queries), len(data.candidates)],
        "fingerprint": data.fingerprint,
        "summary": dict(data.summary),
    }
    for side in _SIDES:
        features: Features | None = getattr(data, f"{side}_features")
        if features is not None:
            files[f"{side}_features"] = to_tensors(features)
            meta[f"{side}_columns"] = features.columns.to_json()
        texts: Texts | None = getattr(data, f"{side}_texts")
        if texts is not None:
            files |= _in_shards(f"{side}_texts", texts, shards if side == "query" else 1)
            meta["n_tokens"] = data.n_tokens
    if data.tokenizer is not None:
        files[TOKENIZER] = data.tokenizer
    if data.columns is not None:
        meta["columns"] = data.columns.to_json()
    if shards > 1:
        meta["shards"] = shards
    storage.write(path, "data", meta, files)


def _in_shards(
    name: str, part: Interactions | Graded | Texts, shards: int
) -> dict[str, storage.Content]:
    """The content of a part by file name: one file, or several that are numbered."""
    if shards == 1:
        return {name: to_tensors(part)}
    if isinstance(part, Graded):
        raise UserError("graded rows cannot be sharded", hint="leave --shards out")
    n = len(part) if isinstance(part, Texts) else part.n_queries
    bounds = [n * shard // shards for shard in range(shards + 1)]
    pairs = enumerate(pairwise(bounds))
    return {_shard(name, number): to_tensors(part.part(*ends)) for number, ends in pairs}


def _shard(name: str, number: int) -> str:
    return f"{name}_{number:05}"


def to_table(vocabulary: Vocabulary) -> pl.DataFrame:
    """The keys, and the texts to show beside them, if there are any."""
    table = pl.DataFrame({"key": vocabulary.keys})
    return table if vocabulary.texts is None else table.with_columns(text=vocabulary.texts)


def load(path: str | Path, comm: Comm = SINGLE_PROCESS) -> Dataset:
    """Open prepared data. Only the manifest and the tokenizer are read at once.

    Each of several processes gets the pairs, texts and features of its own queries, or its share of
    the graded rows of each split. Graded rows, and pairs from one file, are memory-mapped.
    """
    folder = storage.read(Path(path), "data")
    with storage.check_contents(folder.path):
        return _dataset(folder, comm)


def _dataset(folder: storage.Folder, comm: Comm) -> Dataset:
    meta = folder.manifest
    n_queries, n_candidates = meta["sizes"]
    graded = meta["data_kind"] == "graded"
    columns = Columns.from_json(meta["columns"]) if "columns" in meta else None
    held = _HeldQueries(
        n_queries, (0, n_queries) if graded else comm.share(n_queries), _shards(meta)
    )
    parts: dict[str, Any] = {}
    for name in PARTS:
        if graded and name in folder:
            rows = _from_graded(folder.tensors(name), columns)
            parts[name] = rows.part(*comm.share(len(rows)))
        elif held.file(name) in folder:
            parts[name] = _pairs(folder, name, n_candidates, held)
    return Dataset(
        kind=meta["data_kind"],
        train=parts["train"],
        validation=parts.get("validation"),
        test=parts.get("test"),
        excluded=parts.get("excluded"),
        given=parts.get("given"),
        query_texts=_query_texts(folder, held),
        candidate_texts=texts_of(folder, "candidate_texts", n_candidates),
        tokenizer=tokenizer_of(folder),
        n_tokens=meta.get("n_tokens", 0),
        query_features=_features(folder, "query", n_queries, held.rows),
        candidate_features=_features(folder, "candidate", n_candidates),
        queries=vocabulary(folder, "queries", n_queries),
        candidates=vocabulary(
            folder, "candidates", n_candidates, texts=graded or "candidate_texts" in folder
        ),
        columns=columns,
        summary=meta["summary"],
        fingerprint=meta["fingerprint"],
        first=held.rows[0],
    )


def part(data: Dataset, comm: Comm) -> Dataset:
    """The part of complete data that ``load`` gives to one of several processes."""
    if comm.size == 1:
        return data
    if data.kind == "graded":
        splits: dict[str, Any] = {n: p for n in PARTS if (p := getattr(data, n)) is not None}
        return replace(data, **{n: p.part(*comm.share(len(p))) for n, p in splits.items()})
    start, stop = comm.share(len(data.queries))
    names = (*PARTS, "query_texts")
    held = {n: p.part(start, stop) for n in names if (p := getattr(data, n)) is not None}
    features = data.query_features
    if features is not None:
        held["query_features"] = _rows(features, (start, stop))
    return replace(data, **held, first=start)


class _HeldQueries(NamedTuple):
    """The queries of this process, and the number of files of all queries."""

    n: int  # all queries
    rows: tuple[int, int]  # start and stop
    shards: int

    def file(self, name: str) -> str:
        """The first file of a part."""
        return name if self.shards == 1 else _shard(name, 0)

    def files(self, name: str) -> Iterator[tuple[str, int, int, int]]:
        """Each file with some of the rows: name, size, first and last row inside the file."""
        for shard in range(self.shards):
            start, stop = self.n * shard // self.shards, self.n * (shard + 1) // self.shards
            first, last = max(start, self.rows[0]), min(stop, self.rows[1])
            if self.rows[0] == self.rows[1]:  # no rows: any file will do
                yield self.file(name), stop, 0, 0
                return
            if first < last:
                file = name if self.shards == 1 else _shard(name, shard)
                yield file, stop - start, first - start, last - start


def _shards(meta: Mapping[str, Any]) -> int:
    shards = meta.get("shards", 1)
    if not isinstance(shards, int) or shards < 1:
        raise ValueError(f"it has {shards!r} shards")
    return shards


def _pairs(
    folder: storage.Folder, name: str, n_candidates: int, held: _HeldQueries
) -> Interactions:
    parts = []
    for file, size, start, stop in held.files(name):
        content = from_tensors(folder.tensors(file), n_candidates)
        if content.n_queries != size:
            raise ValueError(f"{file} has {content.n_queries:,} queries, not {size:,}")
        parts.append(content if (start, stop) == (0, size) else content.part(start, stop))
    return parts[0] if len(parts) == 1 else join(parts)


def join(parts: Sequence[Interactions]) -> Interactions:
    """The rows of all parts, one after another, in memory."""
    offsets = _join_offsets([part.offsets for part in parts])
    grades = [part.grades for part in parts if part.grades is not None]
    joined = torch.cat(grades) if len(grades) == len(parts) else None
    candidates = torch.cat([part.candidates for part in parts])
    return Interactions(offsets, candidates, joined, parts[0].n_candidates)


def _join_offsets(offsets: Sequence[Tensor]) -> Tensor:
    counts = torch.cat([one.diff() for one in offsets])
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _query_texts(folder: storage.Folder, held: _HeldQueries) -> Texts | None:
    if held.file("query_texts") not in folder:
        return None
    parts = []
    for file, size, start, stop in held.files("query_texts"):
        content = texts_of(folder, file, size)
        assert content is not None  # a missing file of several is an error
        parts.append(content if (start, stop) == (0, size) else content.part(start, stop))
    if len(parts) == 1:
        return parts[0]
    tokens = torch.cat([part.tokens for part in parts])
    weights = [part.weights for part in parts if part.weights is not None]
    joined = torch.cat(weights) if len(weights) == len(parts) else None
    return Texts(_join_offsets([part.offsets for part in parts]), tokens, joined)


def _rows(features: Features, rows: tuple[int, int]) -> Features:
    own = slice(*rows)
    return Features(features.numbers[own], features.categories[own], features.columns)


def _features(
    folder: storage.Folder, side: str, n: int, rows: tuple[int, int] | None = None
) -> Features | None:
    name = f"{side}_features"
    if name not in folder:
        return None
    tensors, columns = folder.tensors(name), Columns.from_json(folder.manifest[f"{side}_columns"])
    features = Features(tensors["numbers"], tensors["categories"], columns)
    shapes = [tuple(tensor.shape) for tensor in (features.numbers, features.categories)]
    if shapes != [(n, len(columns.numbers)), (n, len(columns.levels))]:
        raise ValueError(f"the {side} features have shapes {shapes}")
    return features if rows in (None, (0, n)) else _rows(features, rows or (0, n))


def texts_of(folder: storage.Folder, name: str, n: int) -> Texts | None:
    """The texts of n rows, if there are any; ``check_content`` checks their content."""
    if name not in folder:
        return None
    tensors = folder.tensors(name)
    texts = Texts(tensors["offsets"], tensors["tokens"], tensors.get("weights"))
    shapes = {tuple(tensor.shape) for tensor in (texts.tokens, texts.weights) if tensor is not None}
    if texts.offsets.shape != (n + 1,) or len(shapes) > 1:
        raise ValueError(f"{name} have shapes {texts.offsets.shape}, {shapes}")
    return texts


def tokenizer_of(folder: storage.Folder) -> str | None:
    """The tokenizer, if there is one; it is checked since the folder may come from elsewhere."""
    if TOKENIZER not in folder:
        return None
    text = folder.text(TOKENIZER)
    try:
        size = n_tokens(text)
    except ValueError as error:
        file = folder.manifest["files"][TOKENIZER]["file"]
        raise storage.damaged(folder.path, f"{file} is {error}") from error
    if size != folder.manifest["n_tokens"]:
        raise ValueError(f"the tokenizer has {size:,} tokens")
    return text


def vocabulary(folder: storage.Folder, name: str, size: int, *, texts: bool = False) -> Vocabulary:
    """The keys and, optionally, the texts beside them; both are read on first use."""

    def words() -> pl.Series | None:
        return folder.table(name).to_dict().get("text")

    return Vocabulary(size, lambda: folder.table(name)["key"], words if texts else None)


def from_tensors(tensors: Mapping[str, Tensor], n_candidates: int) -> Interactions:
    return Interactions(
        tensors["offsets"], tensors["candidates"], tensors.get("grades"), n_candidates
    )


def _from_graded(tensors: Mapping[str, Tensor], columns: Columns | None = None) -> Graded:
    """Graded rows; a ValueError if their shapes do not match each other or the columns."""
    rows = Graded(
        tensors["numbers"], tensors["categories"], tensors.get("images"), tensors["grades"]
    )
    n, widths = len(rows), (rows.numbers.shape[1], rows.categories.shape[1])
    lengths = {len(tensor) for tensor in tensors.values()}
    fits = columns is None or widths == (len(columns.numbers), len(columns.levels))
    if lengths != {n} or not fits:
        raise ValueError(f"the rows have shapes {[list(t.shape) for t in tensors.values()]}")
    return rows


# ---------------------------------------------------------------------------------- checks


def check_content(data: Dataset) -> None:
    """A UserError if the content is damaged. Loading checks sizes and shapes only."""
    for name in PARTS:
        part = getattr(data, name)
        if isinstance(part, Interactions) and part.n_pairs:
            low, high = (int(end) for end in torch.aminmax(part.candidates))
            ordered = bool((part.offsets.diff() >= 0).all())
            complete = int(part.offsets[0]) == 0 and int(part.offsets[-1]) == part.n_pairs
            if low < 0 or high >= part.n_candidates or not ordered or not complete:
                raise _damaged(f"{name} pairs")
        if isinstance(part, Graded) and not _rows_valid(part, data):
            raise _damaged(f"{name} rows")
    for side in ("query", "candidate"):
        features: Features | None = getattr(data, f"{side}_features")
        if features is not None and not _categories_valid(features.categories, features.columns):
            raise _damaged(f"{side} features")
        texts: Texts | None = getattr(data, f"{side}_texts")
        if texts is not None and not texts_valid(texts, data.n_tokens):
            raise _damaged(f"{side} texts")


def _rows_valid(part: Graded, data: Dataset) -> bool:
    """Whether all grades and categories exist."""
    if len(part):
        low, high = (int(end) for end in torch.aminmax(part.grades))
        if low < -1 or high >= len(data.candidates):
            return False
    return data.columns is None or _categories_valid(part.categories, data.columns)


def _categories_valid(categories: Tensor, columns: Columns) -> bool:
    """Whether each category is a place in its levels, or -1."""
    if not categories.numel():
        return True
    sizes = torch.tensor([len(values) for values in columns.levels.values()])
    lowest, highest = torch.aminmax(categories, dim=0)
    return bool((lowest >= -1).all()) and bool((highest < sizes).all())


def texts_valid(texts: Texts, n_tokens: int) -> bool:
    """Whether the offsets ascend and all tokens are below ``n_tokens``."""
    ends = int(texts.offsets[0]), int(texts.offsets[-1])
    if ends != (0, len(texts.tokens)) or bool((texts.counts() < 0).any()):
        return False
    if len(texts.tokens) == 0:
        return True
    low, high = (int(end) for end in torch.aminmax(texts.tokens))
    finite = texts.weights is None or bool(texts.weights.isfinite().all())
    return low >= 0 and high < n_tokens and finite


def _damaged(what: str) -> UserError:
    return UserError(f"the {what} are damaged", hint="`rankfold verify` names the file")
