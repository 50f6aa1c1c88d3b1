"""Fingerprints of data sets: equal content has an equal hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import polars as pl
import torch

from rankfold.types import Columns, Features, Graded, Interactions, Texts, to_tensors


def fingerprint(
    parts: Iterable[Interactions | None],
    queries: pl.Series,
    candidates: pl.Series,
    features: Mapping[str, Features] = MappingProxyType({}),
    texts: Mapping[str, Texts] = MappingProxyType({}),
) -> str:
    """A hash of splits, keys, features and tokens."""
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
    for side in sorted(features):
        columns = features[side].columns.to_json()
        digest.update(json.dumps([side, columns], sort_keys=True).encode())
        for tensor in to_tensors(features[side]).values():
            digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    for side in sorted(texts):
        digest.update(f"{side} texts".encode())
        for tensor in to_tensors(texts[side]).values():
            digest.update(tensor.numpy().data)
    return digest.hexdigest()


def fingerprint_graded(
    parts: Iterable[Graded | None], names: Sequence[str], columns: Columns | None
) -> str:
    """A hash of graded rows: their splits, the names of their grades and their columns."""
    digest = hashlib.sha256()
    schema = None if columns is None else columns.to_json()
    digest.update(json.dumps([list(names), schema], sort_keys=True).encode())
    for part in parts:
        for name, tensor in {} if part is None else to_tensors(part).items():
            digest.update(f"{name} {list(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update(b"|")
    return digest.hexdigest()
