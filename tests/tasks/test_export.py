"""Exported files give the rankings of the model, without rankfold."""

from pathlib import Path

import faiss
import numpy as np
import polars as pl
import pytest
import torch
from planted import groups, split_groups
from rankings import assert_same_keys

import rankfold as rf
from rankfold.errors import UserError
from rankfold.index.build import build
from rankfold.index.faiss_export import export_faiss
from rankfold.models.index import add_index
from rankfold.models.load import load_ranker
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import Ranking
from rankfold.tasks.export import export
from rankfold.types import Model, Vocabulary, from_pairs


def fitted(method: str = "rg2-plain", **options: object) -> Ranker:
    model = rf.fit(method, groups(), **options)
    assert isinstance(model, Ranker)
    return model


def test_tables_have_a_vector_per_key(tmp_path: Path) -> None:
    model = fitted(width=8)
    about = export(model, tmp_path / "out")
    queries = pl.read_parquet(tmp_path / "out" / "queries.parquet")
    candidates = pl.read_parquet(tmp_path / "out" / "candidates.parquet")
    assert about["width"] == 8
    assert about["queries"]["rows"] == len(queries) == len(model.queries)
    scores = queries["vector"].to_numpy() @ candidates["vector"].to_numpy().T
    expected = model.search(queries["key"].to_list(), k=5, include_seen=True)
    best = np.argsort(-scores, axis=1, kind="stable")
    keys = candidates["key"].to_numpy()[best].tolist()
    assert_same_keys(expected, Ranking(keys, np.take_along_axis(scores, best, 1)))


def test_arrays_equal_the_tables(tmp_path: Path) -> None:
    model = fitted(width=8)
    export(model, tmp_path / "tables", index=False)
    export(model, tmp_path / "arrays", format="npy", index=False)
    for side in ("queries", "candidates"):
        table = pl.read_parquet(tmp_path / "tables" / f"{side}.parquet")
        array = np.load(tmp_path / "arrays" / f"{side}.npy")
        keys = pl.read_parquet(tmp_path / "arrays" / f"{side}.keys.parquet")
        assert np.array_equal(table["vector"].to_numpy(), array)
        assert table.drop("vector").equals(keys)
    assert not (tmp_path / "arrays" / "index.faiss").exists()


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_files_of_a_model_with_a_tail_give_its_scores(tmp_path: Path, format: str) -> None:
    model = fitted("rg2", width=8, tail_weight=2.0)
    about, out = export(model, tmp_path / "out", format=format, index=False), tmp_path / "out"
    n, matrix = len(model.candidates), np.zeros((len(model.candidates),) * 2)
    if format == "npy":
        queries, candidates = (np.load(out / f"{side}.npy") for side in ("queries", "candidates"))
        arrays = np.load(out / "neighbours.npz")
        np.add.at(matrix, (np.arange(n)[:, None], arrays["ids"]), arrays["weights"])
    else:
        tables = [pl.read_parquet(out / f"{side}.parquet") for side in ("queries", "candidates")]
        queries, candidates = (table["vector"].to_numpy() for table in tables)
        table = pl.read_parquet(out / "neighbours.parquet")
        places = {key: place for place, key in enumerate(tables[1]["key"])}
        rows, columns = ([places[key] for key in table[name]] for name in ("key", "neighbour"))
        matrix[rows, columns] = table["weight"].to_numpy()
    chosen = np.zeros((len(model.queries), n))
    chosen[model.seen.query_of_pair(), model.seen.candidates] = 1
    h = chosen.sum(axis=1, keepdims=True)
    factor = eval(about["neighbours"]["factor"].split(",")[0], {"h": h})  # noqa: S307
    scores = queries @ candidates.T + factor * (chosen @ matrix)
    best = np.argsort(-scores, axis=1, kind="stable")
    keys = [[model.candidates.keys[int(place)] for place in row] for row in best]
    expected = model.search(model.queries.keys.to_list(), k=5, include_seen=True)
    assert_same_keys(expected, Ranking(keys, np.take_along_axis(scores, best, 1)), rtol=1e-4)


def test_the_exported_index_is_read_by_faiss(tmp_path: Path) -> None:
    model = fitted(width=8)
    export(model, tmp_path / "out")
    index = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    vectors = pl.read_parquet(tmp_path / "out" / "queries.parquet")["vector"].to_numpy()
    scores, ids = index.search(vectors[:4], 3)
    expected = model.search(model.queries.keys[:4].to_list(), k=9, include_seen=True)
    actual = Ranking(model.candidates.keys.to_numpy()[ids].tolist(), scores)
    assert_same_keys(actual, expected)


KINDS = {"exact": ("FlatIP", 1.0), "inverted": ("IVFFlat", 0.95), "hnsw": ("HNSW", 0.9)}
KINDS["compressed"] = ("IVFPQ", 0.3)  # only codes, of random vectors


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_index_is_read_by_faiss(kind: str, tmp_path: Path) -> None:
    name, recall = KINDS[kind]
    rng = torch.Generator().manual_seed(0)
    candidates = torch.randn(3000, 6, generator=rng)
    index = build(kind, candidates, target=0.9).index
    about = export_faiss(index, candidates, tmp_path / "index.faiss")
    exported = faiss.read_index(str(tmp_path / "index.faiss"))
    assert about["kind"] == name
    if "lists" in about:
        assert exported.nprobe == about["nprobe"] < about["lists"]  # the file is self-contained
    if kind == "hnsw":
        assert exported.hnsw.efSearch == about["efSearch"]
    queries = np.zeros((20, exported.d), dtype=np.float32)
    queries[:, :6] = candidates[:20].numpy()
    ids = torch.from_numpy(exported.search(queries, 10)[1])
    exact = (candidates[:20] @ candidates.T).topk(10).indices
    hits = (ids.unsqueeze(2) == exact.unsqueeze(1)).any(dim=2)
    assert float(hits.float().mean()) >= recall
    if kind != "exact":
        assert about["recall@10"] >= recall


@pytest.mark.parametrize("kind", ["hnsw", "compressed"])
def test_memory_mapped_tensors_are_exported_completely(kind: str, tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    candidates = torch.randn(3000, 8, generator=rng)
    tensors = {"queries": torch.randn(600, 8, generator=rng), "candidates": candidates}
    seen = from_pairs(torch.arange(600), torch.arange(600), None, (600, 3000))
    keys = (Vocabulary.numbered(600), Vocabulary.numbered(3000))
    Ranker(Model("rg2-plain", {}, tensors), *keys, seen).save(tmp_path / "model")
    add_index(tmp_path / "model", kind, recall=0.9)
    export(load_ranker(tmp_path / "model"), tmp_path / "out")
    index = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    assert index.ntotal == 3000
    if kind == "compressed":
        index.nprobe = index.nlist
    assert (index.search(tensors["queries"][:5].numpy(), 3)[1] >= 0).all()


def test_unsupported_exports_are_refused_and_leave_no_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no vectors"):
        export(fitted("ease"), tmp_path / "out")
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="already exists"):
        export(fitted(width=8), tmp_path / "there")
    with pytest.raises(UserError, match="got 'csv'"):
        export(fitted(width=8), tmp_path / "out", format="csv")
    with pytest.raises(UserError, match="no folder"):
        export(fitted(width=8), tmp_path / "nowhere" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_failed_export_leaves_no_files(tmp_path: Path) -> None:
    def full(what: str, _share: float) -> None:
        if "index" in what:
            raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left"):
        export(fitted(width=8), tmp_path / "out", progress=full)
    assert list(tmp_path.iterdir()) == []


def test_what_the_vectors_alone_lose(tmp_path: Path) -> None:
    data = split_groups()
    model = rf.fit("rg2", data, width=4, tail_weight=2.0)
    assert isinstance(model, Ranker)
    loss = export(model, tmp_path / "out", index=False, data=data)["loss"]
    assert loss["model"] == pytest.approx(rf.evaluate(model, data)["ndcg@10"])
    queries = data.queries.keys.to_list()
    vectors = {
        side: np.stack(pl.read_parquet(tmp_path / "out" / f"{side}.parquet")["vector"].to_numpy())
        for side in ("queries", "candidates")
    }
    scores = vectors["queries"] @ vectors["candidates"].T
    seen, test = data.seen("test"), data.split("test")
    values = []
    for row in range(len(queries)):
        scores[row, seen.candidates[seen.offsets[row] : seen.offsets[row + 1]]] = -np.inf
        truth = set(test.candidates[test.offsets[row] : test.offsets[row + 1]].tolist())
        best = np.argsort(-scores[row], kind="stable")[:10].tolist()
        gains = [1 / np.log2(place + 2) for place, one in enumerate(best) if one in truth]
        ideal = sum(1 / np.log2(place + 2) for place in range(min(10, len(truth))))
        if truth:
            values.append(sum(gains) / ideal)
    assert loss["vectors"] == pytest.approx(np.mean(values), rel=1e-3)


def test_a_state_dict_loads_without_pickled_code(tmp_path: Path) -> None:
    model = fitted(width=8)
    export(model, tmp_path / "out", index=False, torch=True)
    state = torch.load(tmp_path / "out" / "model.pt", weights_only=True)
    assert state.keys() == model.model.tensors.keys()
    assert torch.equal(state["candidates"], model.model.tensors["candidates"])
