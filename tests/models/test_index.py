"""An index is kept in the model's folder, used by whoever opens it, and dropped when stale."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from rankings import assert_same_ranking
from torch import Tensor

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.index import INDEXES, faiss_files
from rankfold.index.kind import Kind, Saved
from rankfold.index.recall import recalls
from rankfold.models.index import add_index
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import extend, forget
from rankfold.types import Interactions, Model, TopK, Vocabulary, from_pairs

pytestmark = pytest.mark.usefixtures("extra_methods")

KINDS = [kind for kind in INDEXES if kind != "auto"]
N, M = 3000, 600
INF = float("inf")


def drawn(seed: int, n: int) -> Tensor:
    """Around 50 centres."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(50, 6, generator=torch.Generator().manual_seed(9))
    group = torch.randint(0, 50, (n,), generator=rng)
    return centres[group] + 0.3 * torch.randn(n, 6, generator=rng)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose vectors were drawn, with enough candidates for every kind."""
    rows = torch.arange(M).repeat_interleave(2)
    seen = from_pairs(rows, torch.arange(2).repeat(M) * 7 + rows, None, (M, N))
    tensors = {"queries": drawn(1, M), "candidates": drawn(2, N)}
    model = Model("rg2-plain", {}, tensors, {"history": [], "seed": 0})
    path = tmp_path_factory.mktemp("indexed") / "model"
    Ranker(model, Vocabulary.numbered(M), Vocabulary.numbered(N), seen).save(path)
    return path


@pytest.fixture
def path(folder: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(folder, tmp_path / "model"))


def named(path: Path) -> dict[str, Any]:
    return dict(storage.read(path).manifest["files"])


@pytest.mark.parametrize("kind", KINDS)
def test_is_kept_beside_the_other_files_and_comes_back(path: Path, kind: str) -> None:
    before, times = named(path), {p.name: p.stat().st_mtime_ns for p in path.iterdir()}
    about_indexes = add_index(path, kind, recall=0.9, similar=True)
    after = named(path)
    assert {name: after[name] for name in before} == before
    kept = [path / entry["file"] for entry in before.values()]
    assert all(file.stat().st_mtime_ns == times[file.name] for file in kept)
    assert about_indexes.keys() == {"index", "likeness"}
    about = about_indexes["index"]
    assert about["kind"] == kind
    assert about["metric"] == "inner product"
    assert about_indexes["likeness"]["metric"] == "cosine"
    sizes = [entry["size"] for name, entry in after.items() if name.startswith("index")]
    assert about["bytes"] == sum(sizes)
    assert (sum(sizes) == 0) == (kind == "exact")
    if kind != "exact":
        assert (about["of"], about["measured_on"], about["target"]) == ("queries", 256, 0.9)
        assert about_indexes["likeness"]["of"] == "candidates"
    assert all(0.9 <= about["recall"][k] <= 1 for k in ("1", "10", "100"))
    storage.read(path, "model", full=True)
    opened = rf.load(path)
    assert opened.about == about
    assert type(opened.searcher.index) is type(opened.searcher.similar.index)
    keys = list(range(M))
    near, exact = opened.search(keys), rf.load(path, "exact").search(keys)
    assert rf.load(path, "exact").about["kind"] == "exact"
    hits = [len(set(a) & set(b)) for a, b in zip(near.keys, exact.keys, strict=True)]
    assert np.mean(hits) / 10 >= 0.9
    assert 7 not in opened.search([0]).keys[0]  # seen
    like = opened.search(candidates=[5], k=20)
    assert 5 not in like.keys[0]
    right = rf.load(path, "exact").search(candidates=[5], k=20)
    assert len(set(like.keys[0]) & set(right.keys[0])) >= 16


@pytest.mark.parametrize("kind", KINDS)
def test_opened_is_what_was_built(path: Path, kind: str) -> None:
    """Memory and file give the same lists."""
    candidates, vectors = drawn(2, N), drawn(3, 40)
    how = {"queries": drawn(1, 200), "target": 0.9, "seed": 0}
    built = INDEXES[kind].build(candidates, 2**30, **how)
    storage.write(path, "model", {}, built.files("index"))
    opener = INDEXES[kind].open
    assert opener is not None
    saved = Saved(storage.read(path, "model"), "index", built.about())
    opened = opener(saved, candidates, 2**30)
    for k in (1, 10, 200):
        ours, theirs = opened.search(vectors, k), built.search(vectors, k)
        assert_same_ranking(ours, theirs)


def test_codes_stay_in_their_file(path: Path) -> None:
    import faiss

    add_index(path, "compressed", recall=0.9)
    index = rf.load(path).searcher.index
    lists = faiss.downcast_InvertedLists(index.codes.coded.invlists)  # type: ignore[attr-defined]
    assert isinstance(lists, faiss.OnDiskInvertedLists)


def test_a_new_index_replaces_the_old_one(path: Path) -> None:
    add_index(path, "compressed", recall=0.9, similar=True)
    assert {"index", "index_lists", "likeness", "likeness_lists"} <= named(path).keys()
    add_index(path, "inverted", recall=0.9)
    assert {name for name in named(path) if name.startswith(("index", "like"))} == {"index"}
    assert "likeness" not in storage.read(path).manifest
    add_index(path, "exact")
    assert not any(name.startswith("index") for name in named(path))
    assert rf.load(path).about["kind"] == "exact"


def test_killed_in_between_leaves_the_old_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_index(path, "inverted", recall=0.9)
    before = (path / storage.MANIFEST).read_bytes()

    def die(_index: object, put: storage.Put) -> None:
        put(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("rankfold.index.hnsw.write_to", die)
    with pytest.raises(KeyboardInterrupt):
        add_index(path, "hnsw", recall=0.5)
    assert (path / storage.MANIFEST).read_bytes() == before
    assert rf.load(path).about["kind"] == "inverted"
    assert {file.name for file in path.iterdir()} == {
        storage.CARD,
        storage.MANIFEST,
        *(entry["file"] for entry in named(path).values()),
    }


def test_a_model_that_was_replaced_meanwhile_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.index import build as indexing

    build = indexing.build

    def replace_first(*given: Any, **how: Any) -> Any:
        ranker = rf.load(path)
        other = Model("rg2-plain", {}, {"queries": drawn(5, M), "candidates": drawn(6, N)},
                      ranker.model.notes)  # fmt: skip
        for _ in range(2):
            Ranker(other, ranker.queries, ranker.candidates, ranker.seen).save(path)
        return build(*given, **how)

    monkeypatch.setattr(indexing, "build", replace_first)
    with pytest.raises(UserError, match="was replaced since it was opened"):
        add_index(path, "inverted", recall=0.9)
    assert torch.equal(rf.load(path).model.tensors["candidates"], drawn(6, N))


def test_adding_and_removing_queries_keeps_it_and_new_candidates_drop_it(tmp_path: Path) -> None:
    pairs = ([f"q{i % 50}" for i in range(900)], [f"c{i * 7 % 333}" for i in range(900)])
    table = pl.DataFrame({"candidate": [f"c{i}" for i in range(333)], "size": range(333)})
    data = rf.prepare(pairs, split=(1.0, 0.0, 0.0), candidate_features=table)
    path = tmp_path / "model"
    rf.fit("slopes", data).save(path)
    add_index(path, "inverted", recall=0.9)
    entry = named(path)["index"]
    forget(path, ["q1"])
    assert named(path)["index"] == entry
    ranker = rf.load(path).add((["new"], ["c1"]))
    ranker.save(path)
    ranker.save(tmp_path / "copy")
    for kept in (path, tmp_path / "copy"):
        assert named(kept)["index"] == entry
        assert rf.load(kept).about["kind"] == "inverted"
        storage.read(kept, "model", full=True)
    grown = extend(path, pl.DataFrame({"candidate": ["c999"], "size": [7]}))
    assert grown.model.notes["extended"][-1]["indexes_dropped"] == 1
    assert "index" not in named(path)
    assert rf.load(path).about["kind"] == "exact"


@pytest.mark.parametrize("kind", ["hnsw", "compressed", "inverted"])
def test_an_index_of_other_candidates_is_refused(path: Path, tmp_path: Path, kind: str) -> None:
    add_index(path, kind, recall=0.5)
    folder = storage.read(path)
    less = {**folder.tensors("tensors")}
    less["candidates"] = less["candidates"][:-1].clone()
    kept = {name: folder.reuse(name) for name in folder.manifest["files"]}
    storage.write(tmp_path / "forged", "model", folder.meta, {**kept, "tensors": less})
    with pytest.raises(UserError, match="is damaged"):
        rf.load(tmp_path / "forged").about  # noqa: B018


@pytest.mark.parametrize("kind", ["hnsw", "compressed"])
def test_a_file_that_faiss_cannot_read_is_refused(path: Path, kind: str) -> None:
    add_index(path, kind, recall=0.5)
    folder = storage.read(path)
    kept = {name: folder.reuse(name) for name in folder.manifest["files"]}
    nonsense = storage.ForeignFile("faiss", lambda put: put(b"no index" * 100))
    storage.write(path, "model", folder.meta, {**kept, "index": nonsense})
    with pytest.raises(UserError, match="is damaged"):
        rf.load(path).about  # noqa: B018


def test_a_damaged_file_is_refused(path: Path) -> None:
    add_index(path, "hnsw", recall=0.5)
    file = path / named(path)["index"]["file"]
    assert file.suffix == ".faiss"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match="does not match its checksum"):
        rf.load(path)


def test_text_models_are_measured_with_texts(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(40)]
    texts = [f"{words[i % 40]} {words[i * 3 % 40]} {words[i * 7 % 40]}" for i in range(300)]
    rows = {"query": [f"q{i}" for i in range(300)], "candidate": [f"c{i}" for i in range(300)]}
    queries = pl.DataFrame({"query": rows["query"], "text": texts})
    labels = pl.DataFrame({"candidate": rows["candidate"], "text": texts})
    pairs = (rows["query"], rows["candidate"])
    data = rf.prepare(pairs, split=(1.0, 0.0, 0.0), query_texts=queries, candidate_texts=labels)
    rf.fit("words", data).save(tmp_path / "model")
    about = add_index(tmp_path / "model", "inverted", recall=0.9)["index"]
    assert (about["of"], about["measured_on"]) == ("queries", 150)


def test_without_queries_the_candidates_are_the_sample() -> None:
    from rankfold.index.build import build

    assert build("inverted", drawn(2, N), target=0.9).about["of"] == "candidates"
    assert build("exact", drawn(2, N)).about["recall"] == {"1": 1.0, "10": 1.0, "100": 1.0}
    with pytest.raises(UserError, match="`recall` must be above 0 and at most 1"):
        build("exact", drawn(2, N), target=1.5)


def test_a_candidate_is_not_counted_among_its_own_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that returns only the candidate itself has a recall of 0."""
    from rankfold.index import build as building
    from rankfold.index.exact import Exact

    class Itself(Exact):
        kind = "itself"

        def search(
            self,
            vectors: Tensor,
            k: int,
            exclude: Interactions | None = None,
            allow: Tensor | None = None,
        ) -> TopK:
            result, own = super().search(vectors, k, exclude, allow), super().search(vectors, 1).ids
            return TopK(torch.where(result.ids == own, result.ids, -1), result.scores)

    kind = Kind(lambda candidates, budget, **_how: Itself(candidates, budget), None)
    monkeypatch.setitem(INDEXES, "itself", kind)
    unit = torch.nn.functional.normalize(drawn(2, N))
    assert building.build("itself", unit).about["recall"] == {"1": 0.0, "10": 0.0, "100": 0.0}


def test_recall_counts_only_real_candidates() -> None:
    truth = TopK(
        torch.tensor([[4, 2, -1], [-1, -1, -1]]), torch.tensor([[3.0, 1, -INF], [-INF] * 3])
    )
    result = TopK(
        torch.tensor([[4, -1, -1], [-1, -1, -1]]), torch.tensor([[3.0, -INF, -INF], [-INF] * 3])
    )
    assert recalls(result, truth).tolist() == [0.5, 1.0]
    assert recalls(truth, truth).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("method", ["neighbours", "popularity"])
def test_methods_that_need_no_index_refuse_one(tmp_path: Path, method: str) -> None:
    rf.fit(method, (["a", "b", "b"], ["x", "x", "y"])).save(tmp_path / "model")
    if method == "neighbours":
        with pytest.raises(UserError, match="neighbours has no vectors"):
            add_index(tmp_path / "model")
    else:
        assert add_index(tmp_path / "model")["index"]["kind"] == "exact"  # few candidates
    with pytest.raises(UserError, match=r"no index 'faiss'|has no vectors"):
        add_index(tmp_path / "model", "faiss")


def test_old_versions_of_faiss_map_less(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that it does not have is left out."""
    add_index(path, "hnsw", recall=0.5)
    monkeypatch.delattr(faiss_files.faiss(), "IO_FLAG_MMAP_IFC", raising=False)
    assert len(rf.load(path).search([1]).keys[0]) == 10


def test_a_folder_that_is_not_writable_is_refused_before_building(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr("rankfold.index.build.build", None)
    with pytest.raises(UserError, match="not writable"):
        add_index(path)


def test_a_file_that_changed_is_not_copied(path: Path, tmp_path: Path) -> None:
    add_index(path, "inverted", recall=0.9)
    ranker = rf.load(path)
    file = path / named(path)["index"]["file"]
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(UserError, match="does not match its checksum"):
        ranker.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
