"""Data sets of pairs: from numbered pairs, or from a scipy.sparse matrix; their fingerprints."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from rankfold.data.build.pairs import Pairs
from rankfold.data.build.side_features import SideData
from rankfold.data.read import in_memory
from rankfold.errors import UserError
from rankfold.types import (
    SPLITS,
    Dataset,
    Features,
    Interactions,
    Texts,
    Vocabulary,
    from_pairs,
    to_tensors,
)

_MAX_GRADES_COUNTED = 20  # in a summary


def to_dataset(
    pairs: Pairs, keys: Mapping[str, Vocabulary], sides: SideData, history: Mapping[str, Any]
) -> Dataset:
    """A data set of pairs with their splits, and of the features and texts of both sides.

    Texts stay beside the keys, as they were written: pretrained encoders read them. ``history`` is
    added to the summary.
    """
    queries = Vocabulary.of(keys["query"].keys, sides.words.get("query"))
    candidates = Vocabulary.of(keys["candidate"].keys, sides.words.get("candidate"))
    shape = (len(queries), len(candidates))
    grades = pairs.grades
    if grades is not None and (grades == 1).all():
        grades = None
    parts: dict[str, Any] = {}
    for number, name in enumerate((*SPLITS, "given")):
        rows = pairs.splits == number
        parts[name] = from_pairs(
            torch.from_numpy(pairs.queries[rows]),
            torch.from_numpy(pairs.candidates[rows]),
            None if grades is None else torch.from_numpy(grades[rows]),
            shape,
            None if pairs.times is None else torch.from_numpy(pairs.times[rows]),
        )
        if name != "train" and not np.any(rows):
            parts[name] = None
    if parts["given"] is None:
        del parts["given"]
    return Dataset(
        kind="texts" if sides.texts else "interactions",
        **parts,
        queries=queries,
        candidates=candidates,
        query_texts=sides.texts.get("query"),
        candidate_texts=sides.texts.get("candidate"),
        query_features=sides.features.get("query"),
        candidate_features=sides.features.get("candidate"),
        tokenizer=sides.tokenizer,
        n_tokens=sides.n_tokens,
        summary={**pair_counts(parts, shape), **_grade_summary(grades), **history},
        fingerprint=fingerprint(
            parts.values(), queries.keys, candidates.keys, sides.features, sides.texts
        ),
    )


def from_sparse(matrix: Any) -> Dataset:
    """A scipy.sparse matrix as training data; row and column numbers are the keys."""
    rows = in_memory.sum_duplicates(matrix)
    grades = torch.from_numpy(np.asarray(rows.data, dtype=np.float32))
    if not bool(((grades > 0) & (grades < torch.inf)).all()):  # also if one is NaN
        raise UserError(
            "the matrix has negative, infinite or missing entries",
            hint="grades are numbers above 0",
        )
    if len(grades) == 0:
        raise UserError("the matrix has no entries", hint="is it the right one?")
    train = Interactions(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32 if max(rows.shape) < 2**31 else np.int64)),
        None if bool((grades == 1).all()) else grades,
        rows.shape[1],
    )
    queries, candidates = (Vocabulary.numbered(size) for size in rows.shape)
    content = fingerprint([train, None, None], queries.keys, candidates.keys)
    return Dataset("interactions", train, None, None, queries, candidates, fingerprint=content)


def pair_counts(parts: Mapping[str, Interactions | None], shape: tuple[int, int]) -> dict[str, Any]:
    """The numbers of queries, candidates and pairs, for a summary."""
    sizes = {name: 0 if part is None else part.n_pairs for name, part in parts.items()}
    present = [part for part in parts.values() if part is not None]
    counts = {
        "query": torch.stack([part.counts() for part in present]).sum(dim=0),
        "candidate": torch.stack([part.candidate_counts() for part in present]).sum(dim=0),
    }
    total = sum(sizes.values())
    return {
        "queries": shape[0],
        "candidates": shape[1],
        "pairs": total,
        **sizes,
        "density": total / (shape[0] * shape[1]),
        **{
            f"pairs_per_{side}": {"median": int(of_side.median()), "max": int(of_side.max())}
            for side, of_side in counts.items()
        },
    }


def _grade_summary(grades: NDArray[np.float32] | None) -> dict[str, Any]:
    if grades is None:
        return {"grades": None}
    values, counts = np.unique(grades, return_counts=True)
    summary: dict[str, Any] = {
        "lowest": float(values[0]),
        "highest": float(values[-1]),
        "mean": float(grades.mean(dtype=np.float64)),
    }
    if len(values) <= _MAX_GRADES_COUNTED:
        summary["pairs"] = {f"{value:g}": int(n) for value, n in zip(values, counts, strict=True)}
    return {"grades": summary}


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
