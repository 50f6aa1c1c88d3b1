"""Models on disk and their evaluation after pairs are added or queries removed."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import polars as pl
import pytest
import torch
from added_pairs import MORE, PAIRS, same
from safetensors.torch import load_file

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.index import add_index
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import add, extend, fit_and_add, forget
from rankfold.types import Dataset, Interactions

pytestmark = pytest.mark.usefixtures("extra_methods")


# ---------------------------------------------------------------------------------- leaks


def pairs_in(data: Dataset, part: Interactions) -> set[tuple[Any, Any]]:
    queries = data.queries.take(part.query_of_pair().long()).to_list()
    return set(zip(queries, data.candidates.take(part.candidates).to_list(), strict=True))


@pytest.mark.parametrize("method", ["sums", "neighbours"])
def test_pairs_added_after_the_fit_are_counted(method: str) -> None:
    """Validation: pairs of folded-in queries; test: added pairs."""
    pairs = [(q, (q * c * c + c) % 19) for q in range(15) for c in range(10)]
    data = rf.prepare(pl.DataFrame(pairs, schema=["query", "candidate"], orient="row"))
    ranker = rf.fit(method, data)
    test = sorted(pairs_in(data, data.split("test")))
    known = sorted(pairs_in(data, data.split("train")))
    more = [*test[-3:], *known[:9], (99, 1), (99, 2)]
    grown = ranker.add(_columns(more))
    touched = {query for query, _ in test[-3:]}
    validation = pairs_in(data, data.split("validation"))
    expected = sum(query in touched for query, _ in validation)
    assert 0 < expected < len(validation)

    def leaks(model: Ranker, split: Any, data: Dataset = data) -> int:
        return rf.evaluate(model, data, split=split, metrics="ndcg@3").trained_on

    assert leaks(ranker, "test") == leaks(ranker, "validation") == 0
    assert leaks(grown, "test") == 3
    assert leaks(grown, "validation") == expected
    for moved in (grown.forget([0]), grown.add(([-1], [2]))):  # the rows of those counted move
        assert (leaks(moved, "test"), leaks(moved, "validation")) == (3, expected)
    last = test[-1][0]
    assert leaks(grown.forget([last]), "test") == sum(query != last for query, _ in test[-3:])
    assert leaks(ranker.forget([0]), "test") == leaks(ranker.forget([0]), "validation") == 0
    other = rf.prepare(pl.DataFrame(more, schema=["query", "candidate"], orient="row"), seed=3)
    tested = pairs_in(other, other.split("test"))
    assert leaks(grown, "test", other) == len(tested) > 0


def test_a_refit_still_counts_validation_after_a_removal() -> None:
    pairs = [(q, (q * c * c + c) % 19) for q in range(15) for c in range(10)]
    data = rf.prepare(pl.DataFrame(pairs, schema=["query", "candidate"], orient="row"))
    ranker = rf.fit("sums", data, refit=True).forget([3])
    left = [pair for pair in pairs_in(data, data.split("validation")) if pair[0] != 3]
    result = rf.evaluate(ranker, data, split="validation", metrics="ndcg@3")
    assert result.trained_on == len(left)
    assert result.unknown == 1
    assert rf.evaluate(ranker, data, metrics="ndcg@3").trained_on == 0


def _columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [query for query, _ in pairs], [candidate for _, candidate in pairs]


# ---------------------------------------------------------------------------------- on disk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Prepared ``data`` and ``more``."""
    whole = {"split": (1.0, 0.0, 0.0)}
    rf.prepare(PAIRS, out=tmp_path / "data", **whole)
    rf.prepare(MORE, out=tmp_path / "more", **whole)
    return tmp_path


def test_pairs_are_added_to_the_model_of_a_folder(home: Path) -> None:
    out = home / "model"
    rf.fit("sums", home / "data", out=out)
    first = add(out, home / "more")
    assert same(first, rf.fit("sums", PAIRS).add(MORE))
    assert same(rf.load(out), first)
    assert same(add(first, MORE), first)  # known pairs change nothing
    assert same(add(out, home / "more"), first)
    assert len(rf.load(out).model.notes["added"]) == 2


def test_a_file_has_the_columns_of_the_fitted_data(tmp_path: Path) -> None:
    def table(pairs: tuple[list[str], list[str]], *names: str) -> pl.DataFrame:
        return pl.DataFrame([["x"] * len(pairs[0]), *pairs], schema=["note", *names])

    names = {"query_column": "who", "candidate_column": "what"}
    data = rf.prepare(table(PAIRS, "who", "what"), split=(1.0, 0.0, 0.0), **names)
    expected = rf.fit("sums", data, out=tmp_path / "model").add(MORE)
    table(MORE, "who", "what").write_csv(tmp_path / "more.csv")
    assert same(add(tmp_path / "model", tmp_path / "more.csv"), expected)
    table(MORE, "a", "b").write_csv(tmp_path / "other.csv")
    with pytest.raises(UserError, match="no column 'who'"):
        add(tmp_path / "model", tmp_path / "other.csv")
    columns = {"query_column": "a", "candidate_column": "b"}
    assert same(add(tmp_path / "model", tmp_path / "other.csv", **columns), expected)
    assert same(add(expected, table(MORE, "a", "b"), **columns), expected)
    with pytest.raises(UserError, match="no columns to name"):
        add(expected, data, **columns)


def test_a_model_is_fitted_once_and_then_added_to(home: Path) -> None:
    out = home / "model"
    first = fit_and_add("sums", home / "data", home / "more", out)
    assert same(first, rf.fit("sums", PAIRS).add(MORE))
    assert same(rf.load(out), first)
    fitted = []
    again = fit_and_add(
        "sums", home / "data", home / "more", out, report=lambda *_: fitted.append(1)
    )
    assert fitted == []
    assert same(again, first)
    assert len(rf.load(out).model.notes["added"]) == 2


def test_a_model_has_the_settings_of_its_fit(home: Path) -> None:
    fit = partial(fit_and_add, "ssl", home / "data", home / "more", home / "model")
    with pytest.raises(UserError, match="ssl cannot add pairs"):
        fit()
    first = fit(encoder="history", epochs=1, width=4)
    assert same(fit(), first)


def test_a_model_of_another_fit_is_not_changed(home: Path) -> None:
    out = home / "model"
    rf.fit("sums", home / "data", out=out)
    before = storage.read(out).manifest
    for method, data, message in (
        ("popularity", "data", "was fitted by sums, not by popularity"),
        ("sums", "more", "was fitted on other data than .*more"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            fit_and_add(method, home / data, home / "more", out)
        assert "nothing was changed" in caught.value.hint
    with pytest.raises(UserError, match="is a data folder"):
        fit_and_add("sums", home / "data", home / "more", home / "more")
    assert storage.read(out).manifest == before


def test_invalid_pairs_are_refused_before_the_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        fit_and_add("sums", home / "data", home / "nowhere", home / "model")
    monkeypatch.setitem(METHODS, "sums", replace(METHODS["sums"], answers=()))
    with pytest.raises(UserError, match="cannot add pairs"):
        fit_and_add("sums", home / "data", home / "more", home / "model")
    assert not (home / "model").exists()


# ---------------------------------------------------------------------------------- forgetting


KEYS = ["someone-in-particular", "bob", "carol"]
PLANTED = torch.tensor([3.14159265, 2.71828182, 1.41421356, 1.61803398])  # the forgotten vector


def save_with_a_planted_query(out: Path, index: str | None = None) -> None:
    """A model in which only the first of ``KEYS`` has the planted vector and chose "secret"."""
    ranker = rf.fit("sums", ([*KEYS, "bob"], ["secret", "ink", "tea", "tea"]))
    row = int(ranker.queries.find(KEYS[:1]))
    tensors = dict(ranker.model.tensors)
    tensors["queries"][row] = PLANTED
    replace(ranker, model=replace(ranker.model, tensors=tensors)).save(out)
    if index is not None:
        add_index(out, index, recall=0.5)


def traces(home: Path, name: str = "model") -> list[str]:
    """Where a key, vector or pair of the forgotten query is, in any file of or beside a folder.

    Every file is decoded; one of an unknown format is an error.
    """
    found = []
    files = [path for path in home.rglob("*") if path.is_file() and name in str(path)]
    for path in files:
        if KEYS[0].encode() in path.read_bytes():
            found.append(f"{path}: key")
        match path.suffix:
            case ".parquet":
                with path.open("rb") as table:
                    columns = pl.read_parquet(table).get_columns()
                if any(KEYS[0] in map(str, column.to_list()) for column in columns):
                    found.append(f"{path}: key")
            case ".safetensors":
                tensors = load_file(path)
                vectors = [t for t in tensors.values() if t.ndim == 2 and t.shape[1] == 4]
                if any(bool(torch.isclose(t, PLANTED.to(t)).all(dim=1).any()) for t in vectors):
                    found.append(f"{path}: vector")
                if path.name.startswith("seen") and len(tensors["offsets"]) > len(KEYS):
                    found.append(f"{path}: pairs")
            case ".faiss":
                stored = faiss.read_index(str(path))
                rows = stored.storage.reconstruct_n(0, stored.ntotal)
                if bool(np.isclose(rows, PLANTED.numpy()).all(axis=1).any()):
                    found.append(f"{path}: vector")
            case suffix:
                assert suffix in (".json", ".md"), path
    return found


@pytest.mark.parametrize("index", [None, "hnsw"])
def test_no_file_holds_a_forgotten_query(home: Path, index: str | None) -> None:
    out = home / "model"
    save_with_a_planted_query(out, index)
    assert {trace.rpartition(" ")[2] for trace in traces(home)} == {"key", "vector", "pairs"}
    done = forget(out, KEYS[:1])
    assert (done.forgotten, done.unknown) == (1, [])
    assert rf.load(out).queries.keys.to_list() == ["bob", "carol"]
    assert traces(home) == []
    assert storage.leftovers(out) == storage.foreign(out) == []


@pytest.mark.parametrize("stop_at", ["save", "sweep"])
def test_an_interrupted_forgetting_can_be_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    """A kill before the sweep left the old files, and the new manifest knew no such query."""
    out = home / "model"
    save_with_a_planted_query(out)
    calls: list[Path] = []

    def stop(path: Path, *_rest: object) -> None:
        calls.append(path)
        if stop_at == "save" or len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        place = "os.replace" if stop_at == "save" else "rankfold.storage.sweep"
        patch.setattr(place, stop)
        with pytest.raises(KeyboardInterrupt):
            forget(out, KEYS[:1])
    assert traces(home) != []
    again = forget(out, KEYS[:1])
    assert again.forgotten + len(again.unknown) == 1
    assert traces(home) == []
    third = forget(out, KEYS[:1])
    assert (third.forgotten, third.unknown) == (0, KEYS[:1])
    assert third.ranker.model.notes["removed"] == 1


def test_what_a_killed_write_left_beside_is_forgotten_too(home: Path) -> None:
    out = home / "model"
    save_with_a_planted_query(out)
    shutil.copytree(out, home / ".model.writing-0123456789abcdef")
    forget(out, KEYS[:1])
    assert traces(home) == []


def test_a_checkpoint_must_go_before_queries_are_forgotten(home: Path) -> None:
    """It has vectors of all queries, and its fit would write them again."""
    out = home / "model"
    save_with_a_planted_query(out)
    storage.write(home / "model.checkpoint", "checkpoint", {}, {})
    before = out.joinpath("manifest.json").read_bytes()
    with pytest.raises(UserError, match="checkpoint of an interrupted fit") as caught:
        forget(out, KEYS[:1])
    assert "--resume" in caught.value.hint
    assert out.joinpath("manifest.json").read_bytes() == before


# ---------------------------------------------------------------------------------- two at once


@pytest.mark.parametrize(
    "change",
    [
        lambda out: forget(out, ["bob"]),
        lambda out: extend(out, pl.DataFrame({"candidate": ["x"], "f": [1.0]})),
        lambda out: add_index(out, "exact"),
        lambda out: fit_and_add("sums", out.with_name("data"), out.with_name("more"), out),
        lambda out: rf.fit("sums", out.with_name("data"), out=out, report=pytest.fail),
    ],
    ids=["forget", "extend", "index", "add", "fit"],
)
def test_a_change_waits_for_no_other_change(home: Path, change: Callable[[Path], object]) -> None:
    """Each loads the model, changes it and writes it: the second would undo the first.

    A fit says so before its first step.
    """
    out = home / "model"
    rf.fit("sums", home / "data", out=out)
    with storage.locked(out), pytest.raises(UserError, match=f"process {os.getpid()} is writing"):
        change(out)
    assert not (home / "model.checkpoint").exists()
