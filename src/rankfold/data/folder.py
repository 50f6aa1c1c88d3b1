"""Prepared data on disk: a folder that is memory-mapped when it is loaded."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
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
from rankfold.types.data import Lists

L = TypeVar("L", bound=Lists)
PARTS = ("train", "validation", "test", "excluded", "given")
TOKENIZER = "tokenizer"
_SIDES = {"query": "queries", "candidate": "candidates"}


def save(data: Dataset, path: Path, shards: int = 1, *, overwrite: bool = False) -> None:
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
    storage.write(path, "data", meta, files, overwrite=overwrite)


def _in_shards(
    name: str, part: Interactions | Graded | Texts, shards: int
) -> dict[str, storage.Content]:
    """The content of a part by file name: one file, or several that are numbered."""
    if shards == 1:
        return {name: to_tensors(part)}
    if isinstance(part, Graded):
        raise UserError("graded rows cannot be sharded", hint="leave --shards out")
    bounds = enumerate(_bounds(len(part.offsets) - 1, shards))
    return {_shard(name, number, shards): to_tensors(part.part(*ends)) for number, ends in bounds}


def _shard(name: str, number: int, shards: int) -> str:
    return name if shards == 1 else f"{name}_{number:05}"


def _bounds(n: int, shards: int) -> Iterator[tuple[int, int]]:
    """Start and stop of the queries in each of the files."""
    return pairwise(n * shard // shards for shard in range(shards + 1))


def to_table(vocabulary: Vocabulary) -> pl.DataFrame:
    """The keys, and the texts to show beside them, if there are any."""
    table = pl.DataFrame({"key": vocabulary.keys})
    return table if vocabulary.texts is None else table.with_columns(text=vocabulary.texts)


def load(path: str | Path, comm: Comm = SINGLE_PROCESS) -> Dataset:
    """Open prepared data. Only the manifest and the tokenizer are read at once.

    Each of several processes gets the pairs, texts and features of its own queries, or its share of
    the graded rows of each split. Graded rows, and pairs from one file, are memory-mapped.
    """
    folder = storage.read(path, "data")
    with storage.check_contents(folder.path):
        return _dataset(folder, comm)


def _dataset(folder: storage.Folder, comm: Comm) -> Dataset:
    meta = folder.manifest
    n_queries, n_candidates = meta["sizes"]
    graded = meta["data_kind"] == "graded"
    columns = Columns.from_json(meta["columns"]) if "columns" in meta else None
    rows = (0, n_queries) if graded else comm.share(n_queries)
    held = partial(_held_lists, folder, rows)
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    for name in PARTS:
        if graded and name in folder:
            split = _from_graded(folder.tensors(name), columns)
            parts[name] = split.part(*comm.share(len(split)))
        elif not graded:
            parts[name] = held(name, partial(_pairs, folder, n_candidates))
    return Dataset(
        kind=meta["data_kind"],
        **parts,
        query_texts=held("query_texts", partial(_texts, folder)),
        candidate_texts=texts_of(folder, "candidate_texts", n_candidates),
        tokenizer=tokenizer_of(folder),
        n_tokens=meta.get("n_tokens", 0),
        query_features=features_of(folder, "query", n_queries, rows),
        candidate_features=features_of(folder, "candidate", n_candidates, (0, n_candidates)),
        queries=vocabulary(folder, "queries", n_queries, texts="n_tokens" in meta),
        candidates=vocabulary(
            folder, "candidates", n_candidates, texts=graded or "candidate_texts" in folder
        ),
        columns=columns,
        summary=meta["summary"],
        fingerprint=meta["fingerprint"],
        first=rows[0],
    )


def part(data: Dataset, comm: Comm) -> Dataset:
    """The part of complete data that ``load`` gives to one of several processes."""
    if comm.size == 1:
        return data
    if data.kind == "graded":
        splits: dict[str, Any] = {n: p for n in PARTS if (p := getattr(data, n)) is not None}
        return replace(data, **{n: p.part(*comm.share(len(p))) for n, p in splits.items()})
    start, stop = comm.share(len(data.queries))
    names = (*PARTS, "query_texts", "query_features")
    held = {n: p.part(start, stop) for n in names if (p := getattr(data, n)) is not None}
    return replace(data, **held, first=start)


def _held_lists(
    folder: storage.Folder, rows: tuple[int, int], name: str, read_file: Callable[[str, int], L]
) -> L | None:
    """The lists of the queries ``rows``, from the files with some of them; None: there are none.

    ``read_file`` is given the name of a file and the number of its queries.
    """
    n, shards = folder.manifest["sizes"][0], folder.manifest.get("shards", 1)
    if not isinstance(shards, int) or shards < 1:
        raise ValueError(f"it has {shards!r} shards")
    if _shard(name, 0, shards) not in folder:
        return None
    low, high = rows
    parts = []
    for number, (start, stop) in enumerate(_bounds(n, shards)):
        own = max(start, low) - start, min(stop, high) - start
        if low == high and number == 0:  # no rows: any file will do
            own = 0, 0
        elif own[0] >= own[1]:
            continue
        content = read_file(_shard(name, number, shards), stop - start)
        parts.append(content if own == (0, stop - start) else content.part(*own))
    return parts[0].join(*parts[1:])


def _pairs(folder: storage.Folder, n_candidates: int, name: str, n: int) -> Interactions:
    pairs = from_tensors(folder.tensors(name), n_candidates)
    if pairs.n_queries != n:
        raise ValueError(f"{name} has {pairs.n_queries:,} queries, not {n:,}")
    if pairs.times is not None and len(pairs.times) != pairs.n_pairs:
        raise ValueError(f"{name} has {len(pairs.times):,} times, not {pairs.n_pairs:,}")
    return pairs


def features_of(
    folder: storage.Folder, side: str, n: int, rows: tuple[int, int]
) -> Features | None:
    """The features of some rows of a side with n rows, if there are any."""
    name = f"{side}_features"
    if name not in folder:
        return None
    tensors, columns = folder.tensors(name), Columns.from_json(folder.manifest[f"{side}_columns"])
    features = Features(tensors["numbers"], tensors["categories"], columns)
    shapes = [tuple(tensor.shape) for tensor in (features.numbers, features.categories)]
    if shapes != [(n, len(columns.numbers)), (n, len(columns.levels))]:
        raise ValueError(f"the {side} features have shapes {shapes}")
    return features.part(*rows)


def texts_of(folder: storage.Folder, name: str, n: int) -> Texts | None:
    """The texts of n rows, if there are any; ``check_content`` checks their content."""
    return _texts(folder, name, n) if name in folder else None


def _texts(folder: storage.Folder, name: str, n: int) -> Texts:
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
        tensors["offsets"],
        tensors["candidates"],
        tensors.get("grades"),
        n_candidates,
        tensors.get("times"),
    )


def _from_graded(tensors: Mapping[str, Tensor], columns: Columns | None) -> Graded:
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
        if isinstance(part, Interactions) and not _valid(part, part.candidates, part.n_candidates):
            raise _damaged(f"{name} pairs")
        if isinstance(part, Graded):
            known = _within(part.grades, -1, len(data.candidates))
            columns = data.columns
            if not known or (columns and not _categories_valid(part.categories, columns)):
                raise _damaged(f"{name} rows")
    for side in _SIDES:
        features: Features | None = getattr(data, f"{side}_features")
        if features is not None and not _categories_valid(features.categories, features.columns):
            raise _damaged(f"{side} features")
        texts: Texts | None = getattr(data, f"{side}_texts")
        if texts is not None and not texts_valid(texts, data.n_tokens):
            raise _damaged(f"{side} texts")


def _categories_valid(categories: Tensor, columns: Columns) -> bool:
    """Whether each category is a place in its levels, or -1."""
    sizes = map(len, columns.levels.values())
    return all(_within(places, -1, n) for places, n in zip(categories.T, sizes, strict=False))


def texts_valid(texts: Texts, n_tokens: int) -> bool:
    """Whether the offsets ascend and all tokens are below ``n_tokens``."""
    finite = texts.weights is None or bool(texts.weights.isfinite().all())
    return finite and _valid(texts, texts.tokens, n_tokens)


def _valid(lists: Lists, entries: Tensor, n: int) -> bool:
    """Whether the offsets ascend from 0 to the number of entries, which are all below n."""
    ends = int(lists.offsets[0]), int(lists.offsets[-1])
    ordered = ends == (0, len(entries)) and bool((lists.counts() >= 0).all())
    return ordered and _within(entries, 0, n)


def _within(values: Tensor, low: int, high: int) -> bool:
    """Whether all values are at least ``low`` and below ``high``."""
    return not values.numel() or (int(values.min()) >= low and int(values.max()) < high)


def _damaged(what: str) -> UserError:
    return UserError(f"the {what} are damaged", hint="`rankfold verify` names the file")
