"""Files of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from rankfold.data.read.vectors import read_both_sides, read_vectors
from rankfold.errors import UserError
from rankfold.types import Vocabulary

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_rows_of_an_array_have_the_keys_from_0(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    read = read_vectors(tmp_path / "v.npy")
    assert read.keys.to_list() == [0, 1, 2, 3]
    assert np.array_equal(read.vectors, VECTORS)


@pytest.mark.parametrize("keys", [["b", "a", "d", "c"], [7, 5, 9, 1]])
@pytest.mark.parametrize("kind", ["npz", "parquet", "arrow"])
def test_keys_and_vectors(keys: list[Any], kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"v.{kind}"
    if kind == "npz":
        np.savez(path, keys=np.array(keys), vectors=VECTORS.astype(np.float64))
    else:
        table = pl.DataFrame({"key": keys, "vector": VECTORS.tolist()})
        table.write_parquet(path) if kind == "parquet" else table.write_ipc(path)
    read = read_vectors(path)
    assert read.keys.to_list() == keys
    assert read.vectors.dtype == np.float32
    wanted = sorted([keys[2], keys[0], "x" if isinstance(keys[0], str) else 100])
    vectors, rows = read.of(Vocabulary.of(pl.Series(wanted)))
    found = {wanted[row]: vector.tolist() for row, vector in zip(rows, vectors, strict=True)}
    assert found == {keys[0]: [0.0, 1.0, 2.0], keys[2]: [6.0, 7.0, 8.0]}
    assert isinstance(vectors, torch.Tensor)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_both_sides(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"v.{kind}"
    if kind == "npz":
        sides = {"query": VECTORS[:3], "candidate": VECTORS[3:]}
        arrays = {f"{side}_vectors": part for side, part in sides.items()}
        np.savez(path, query_keys=np.array(["a", "b", "c"]), candidate_keys=["x"], **arrays)
    else:
        table = {"side": ["query"] * 3 + ["candidate"], "key": ["a", "b", "c", "x"]}
        pl.DataFrame({**table, "vector": VECTORS.tolist()}).write_parquet(path)
    both = read_both_sides(path)
    assert both["query"].keys.to_list() == ["a", "b", "c"]
    assert np.array_equal(both["candidate"].vectors, VECTORS[3:])
    with pytest.raises(UserError, match="queries and candidates, not of rows"):
        read_vectors(path)


BAD = np.array([[1.0, np.nan], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"keys": [1, 2]}, "has the arrays keys"),
        ({"keys": [1, 1], "vectors": np.eye(2)}, "1 more than once"),
        ({"keys": [1], "vectors": np.eye(2)}, "1 keys and 2 vectors"),
        ({"vectors": BAD}, "infinite or missing"),
        ({"vectors": np.ones(3)}, r"the shape \[3\]"),
        ({"vectors": np.array([["a", "b"]])}, "are not numbers"),
    ],
)
def test_wrong_arrays_are_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v.npz")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [1, 2]}, "no column 'vector'"),
        ({"key": [1, 2], "vector": [[1.0], [1.0, 2.0]]}, "different lengths"),
        ({"key": [1, 2], "vector": ["a", "b"]}, "are not numbers"),
    ],
)
def test_wrong_tables_are_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "v.parquet")
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v.parquet")


def test_sides_of_different_widths_and_missing_sides(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", query_vectors=np.eye(2), candidate_vectors=np.eye(3))
    with pytest.raises(UserError, match="width 2 for queries and 3 for candidates"):
        read_both_sides(tmp_path / "w.npz")
    np.savez(tmp_path / "q.npz", query_vectors=np.eye(2))
    with pytest.raises(UserError, match="no vectors of a candidate"):
        read_both_sides(tmp_path / "q.npz")


@pytest.mark.parametrize("name", ["v.npy", "v.npz", "v.parquet"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_vectors(tmp_path / name)
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(UserError, match="cannot be read"):
        read_vectors(tmp_path / name)


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="cannot be read"):
        read_vectors(tmp_path / "v.npy")
