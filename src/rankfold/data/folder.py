"""Prepared data on disk: one folder, memory-mapped when it is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from rankfold import store
from rankfold.errors import UserError
from rankfold.types import Dataset, Graded, Interactions, Vocabulary

PARTS = ("train", "validation", "test", "excluded")


def save(data: Dataset, path: Path) -> None:
    files: dict[str, store.Content] = {
        name: to_tensors(part) for name in PARTS if (part := getattr(data, name)) is not None
    }
    files["queries"] = pl.DataFrame({"key": data.queries.keys})
    files["candidates"] = pl.DataFrame({"key": data.candidates.keys})
    meta = {
        "data_kind": data.kind,
        "sizes": [len(data.queries), len(data.candidates)],
        "fingerprint": data.fingerprint,
        "summary": dict(data.summary),
    }
    store.write(path, "data", meta, files)


def load(path: str | Path) -> Dataset:
    """Open prepared data. Nothing but the manifest is read before it is used."""
    folder = store.read(Path(path), "data")
    with store.understood(folder.path):
        return _dataset(folder)


def _dataset(folder: store.Folder) -> Dataset:
    meta = folder.manifest
    n_queries, n_candidates = meta["sizes"]
    read = from_graded if meta["data_kind"] == "graded" else from_tensors
    parts: dict[str, Any] = {
        name: read(folder.tensors(name), n_candidates) for name in PARTS if name in folder
    }
    return Dataset(
        kind=meta["data_kind"],
        train=parts["train"],
        validation=parts.get("validation"),
        test=parts.get("test"),
        excluded=parts.get("excluded"),
        queries=vocabulary(folder, "queries", n_queries),
        candidates=vocabulary(folder, "candidates", n_candidates),
        summary=meta["summary"],
        fingerprint=meta["fingerprint"],
    )


def check_pairs(data: Dataset) -> None:
    """A UserError where a split is damaged inside, which loading does not look for."""
    for name in PARTS:
        part = getattr(data, name)
        if isinstance(part, Interactions) and part.n_pairs:
            low, high = (int(end) for end in torch.aminmax(part.candidates))
            ordered = bool((part.offsets.diff() >= 0).all())
            whole = int(part.offsets[0]) == 0 and int(part.offsets[-1]) == part.n_pairs
            if low < 0 or high >= part.n_candidates or not ordered or not whole:
                raise UserError(
                    f"the {name} pairs are damaged", hint="`rankfold verify` names the file"
                )


def fingerprint(
    parts: Iterable[Interactions | None], queries: pl.Series, candidates: pl.Series
) -> str:
    """A hash of the content: equal splits of equal keys have equal fingerprints."""
    digest = hashlib.sha256()
    for part in parts:
        for tensor in {} if part is None else to_tensors(part).values():
            digest.update(tensor.numpy().data)
        digest.update(b"|")
    for keys in (queries, candidates):
        digest.update(str(keys.dtype).encode())
        if keys.dtype == pl.String:
            digest.update(keys.str.len_bytes().to_numpy().data)
            digest.update("".join(keys).encode())
        else:
            digest.update(keys.to_numpy().data)
    return digest.hexdigest()


def vocabulary(folder: store.Folder, name: str, size: int) -> Vocabulary:
    """Keys that are read when they are first needed."""
    return Vocabulary(size, lambda: folder.table(name)["key"])


def to_tensors(part: Interactions | Graded) -> dict[str, Tensor]:
    """The tensors of a part, without those it does not have."""
    names = type(part).__slots__
    return {n: t for n in names if isinstance(t := getattr(part, n), Tensor)}


def from_tensors(tensors: Mapping[str, Tensor], n_candidates: int) -> Interactions:
    return Interactions(
        tensors["offsets"], tensors["candidates"], tensors.get("grades"), n_candidates
    )


def from_graded(tensors: Mapping[str, Tensor], _n_grades: int) -> Graded:
    return Graded(
        tensors["numbers"], tensors["categories"], tensors.get("images"), tensors["grades"]
    )
