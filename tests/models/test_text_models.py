"""Models over texts: what they answer, new candidates, and folders."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rankings import assert_same_keys
from text_models import BOTH, as_bags, chosen_by, documents, popular, prepared, tokens
from text_models import text_data as text_data
from text_models import words_ranker as words_ranker

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.index import INDEXES
from rankfold.index.exact import Exact
from rankfold.index.inverted import Inverted
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.models.search import Filter, Searcher
from rankfold.tasks.update import fit_and_add, forget
from rankfold.types import Dataset, Model, Opened, Texts

pytestmark = pytest.mark.usefixtures("extra_methods")


# ---------------------------------------------------------------------------------- answers


def by_hand(model: Model, texts: Texts) -> torch.Tensor:
    """All scores of a model: sums of token vectors, their inner products."""
    table, candidates = model.tensors["table"], model.tensors["candidates"]
    rows = [
        texts.tokens[a:b].long() for a, b in zip(texts.offsets, texts.offsets[1:], strict=False)
    ]
    return torch.stack([table[row].sum(dim=0) for row in rows]) @ candidates.T


@pytest.mark.parametrize("memory_budget", [1, 2**12, 2**30])
def test_queries_are_ranked_by_their_texts_in_blocks_of_any_size(
    data: Dataset, ranker: Ranker, memory_budget: int
) -> None:
    assert data.query_texts is not None
    rows = torch.tensor([7, 3, 3, 39])
    exclude = data.split("train").select(rows)
    searcher = Searcher(ranker.model, data.split("train"), memory_budget, data.query_texts)
    actual = searcher.of_queries(rows, 4, Filter(exclude))
    scores = by_hand(ranker.model, data.query_texts.select(rows))
    scores[exclude.query_of_pair().long(), exclude.candidates.long()] = -torch.inf
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(actual.scores, expected.values[:, :4])
    assert torch.equal(actual.ids[:, :3], expected.indices[:, :3])


@pytest.mark.parametrize("memory_budget", [1, 2**30])
@BOTH
def test_texts_without_a_known_word_get_the_most_popular(
    data: Dataset, method: str, memory_budget: int
) -> None:
    model = rf.fit(method, data).model
    searcher = Searcher(model, data.seen("test"), memory_budget)
    queries = tokens(data, "xyzzy", "green tea", "", "old maps")
    exclude = data.seen("test").select(torch.tensor([0, 1, 0, 1]))
    for hidden in (None, exclude):
        result = searcher.of_texts(queries, 5, Filter(hidden))
        alone = searcher.of_texts(queries.select(torch.tensor([1])), 5)
        first = [key for key in popular(data) if hidden is None or key not in seen_by(data, 0)]
        for row in (0, 2):
            ids = result.ids[row]
            assert data.candidates.take(ids[ids >= 0]).to_list() == first
        if hidden is None:
            assert torch.equal(result.ids[1:2], alone.ids)
            assert data.candidates.keys[int(result.ids[1, 0])] == "tag 2"
    assert searcher.of_texts(tokens(data), 3).ids.shape == (0, 3)


def seen_by(data: Dataset, row: int) -> list[str]:
    return data.candidates.take(data.seen("test").select(torch.tensor([row])).candidates).to_list()


def test_a_text_without_words_has_a_zero_vector_for_any_method(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = rf.fit("words", data)
    encode = METHODS["words"].open(ranker.model).texts
    assert encode is not None
    biased = Opened(texts=lambda texts, side: encode(texts, side) + 1.0)
    monkeypatch.setitem(METHODS, "words", replace(METHODS["words"], open=lambda _: biased))
    assert ranker.search(text=["?!"]).keys == [popular(data)]


def test_without_texts_of_queries_there_is_no_answer(data: Dataset, ranker: Ranker) -> None:
    with pytest.raises(UserError, match="words ranks by the texts of queries, but there are none"):
        Searcher(ranker.model, data.split("train")).of_queries(torch.tensor([0]), 3)


def test_a_history_is_a_hint_only_where_it_is_an_input() -> None:
    pairs = np.array([[0, 0], [0, 1], [1, 1], [1, 2]])
    ranker = rf.fit("bpr", pairs, epochs=1, width=2)
    with pytest.raises(UserError, match="bpr does not rank by text") as caught:
        ranker.search(text=["tea"])
    assert "history" not in caught.value.hint


def test_a_refit_can_be_saved_and_loaded(tmp_path: Path) -> None:
    prepared(out=tmp_path / "data")
    ranker = rf.fit("words", tmp_path / "data", refit=True, out=tmp_path / "model")
    assert ranker.model.notes["refit"]
    assert rf.load(tmp_path / "model").search(text=["tea"]).keys == ranker.search(text=["tea"]).keys


# ---------------------------------------------------------------------------------- the ranker


@BOTH
def test_save_and_load_round_trip(data: Dataset, method: str, tmp_path: Path) -> None:
    ranker = rf.fit(method, data, out=tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert (again.tokenizer, again.n_tokens) == (data.tokenizer, data.n_tokens)
    texts = ["Green TEA!", "noodles 麺 äther", "", "xyzzy"]
    result = again.search(text=texts)
    assert result.keys == ranker.search(text=texts).keys
    assert [keys[0] for keys in result.keys[:1]] == ["tag 2"]
    assert result.texts is not None
    assert result.texts[0][0] == "green tea"
    keys = data.queries.keys.to_list()
    assert again.search(keys).keys == ranker.search(keys).keys
    assert np.array_equal(again.search(keys).scores, ranker.search(keys).scores)
    assert again.search(text="green tea").keys == again.search(text=["green tea"]).keys


def test_a_known_query_is_ranked_by_its_text_without_seen_candidates(ranker: Ranker) -> None:
    text = documents()["text"][3]
    whole, left = ranker.search(["d03"], include_seen=True), ranker.search(["d03"])
    assert whole.keys == ranker.search(text=[text]).keys
    assert whole.keys[0][0] == "tag 3"
    assert ("tag 3" in left.keys[0]) is ("tag 3" not in chosen_by(ranker, "d03"))


def test_similar_candidates_follow_from_vectors(ranker: Ranker, data: Dataset) -> None:
    assert set(ranker.search(candidates=["tag 1"]).keys[0]) == {f"tag {i}" for i in (0, 2, 3, 4)}
    with pytest.raises(UserError, match="overlap cannot find similar candidates"):
        rf.fit("overlap", data).search(candidates=["tag 1"])


@BOTH
def test_unsupported_requests_are_refused(data: Dataset, method: str, tmp_path: Path) -> None:
    ranker = rf.fit(method, data)
    with pytest.raises(UserError, match=f"{method} ranks by text, not by history") as caught:
        ranker.search(history=["tag 1"])
    assert "text" in caught.value.hint
    with pytest.raises(UserError, match=f"{method} ranks by text and cannot add pairs"):
        ranker.add((["d01"], ["tag 3"]))
    with pytest.raises(UserError, match="cannot add pairs"):
        fit_and_add(method, data, tmp_path / "more", tmp_path / "model")
    with pytest.raises(UserError, match="got queries and text"):
        ranker.search(["d01"], text=["tea"])


def test_texts_of_removed_queries_are_removed(ranker: Ranker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    fewer = forget(tmp_path / "model", ["d00", "d17"]).ranker
    assert fewer.texts is not None
    assert len(fewer.texts) == len(fewer.queries) == 38
    keys = fewer.queries.keys.to_list()
    assert fewer.search(keys).keys == ranker.search(keys).keys
    assert rf.load(tmp_path / "model").search(keys).keys == fewer.search(keys).keys


def test_a_model_that_keeps_words_of_queries_cannot_remove_them(data: Dataset) -> None:
    with pytest.raises(UserError, match="overlap has learnt from its queries") as caught:
        rf.fit("overlap", data).forget(["d00"])
    assert "fit again" in caught.value.hint


# ---------------------------------------------------------------------------------- on disk


def test_a_damaged_file_is_named(ranker: Ranker, tmp_path: Path) -> None:
    for kind in ("texts-*.safetensors", "tokenizer-*.json", "candidates-*.parquet"):
        ranker.save(tmp_path / "model")
        (file,) = (tmp_path / "model").glob(kind)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(UserError, match=f"{file.name} does not match its checksum"):
            rf.load(tmp_path / "model")
        file.unlink()
        with pytest.raises(UserError, match=f"{file.name} is missing"):
            rf.load(tmp_path / "model")


def forged(
    ranker: Ranker, path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    """A model folder with other content but right checksums."""
    ranker.save(path / "model")
    folder = storage.read(path / "model")
    meta = {k: v for k, v in folder.manifest.items() if k not in ("checksum", "files")}
    files: dict[str, Any] = {
        name: folder.tensors(name) for name in ("tensors", "seen", "texts") if name in folder
    }
    files |= {name: folder.table(name) for name in ("queries", "candidates")}
    files["tokenizer"] = folder.text("tokenizer")
    change(files, meta)
    storage.write(path / "forged", "model", meta, files)


def _put(name: str, key: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(files: dict[str, Any], meta: dict[str, Any]) -> None:
        (meta if name == "meta" else files[name])[key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda files, _: files["texts"]["tokens"].fill_(10**6),
        lambda files, _: files["texts"]["tokens"].fill_(-1),
        lambda files, _: files["texts"]["offsets"].fill_(3),
        lambda files, _: files["texts"].pop("offsets"),
        lambda files, _: files.pop("texts"),
        lambda files, _: files.update(tokenizer='{"model": {"type": "evil"}}'),
        lambda files, _: files.update(tokenizer="["),
        _put("meta", "n_tokens", 3),
        _put("meta", "n_tokens", "many"),
        lambda _, meta: meta.pop("n_tokens"),
    ],
)
def test_a_forged_model_is_refused(
    ranker: Ranker, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    forged(ranker, tmp_path, change)
    with pytest.raises(UserError, match="is damaged"):
        rf.load(tmp_path / "forged")


# ---------------------------------------------------------------------------------- bags


def test_models_of_bags_answer_only_known_queries(data: Dataset, tmp_path: Path) -> None:
    bags = replace(data, query_texts=as_bags(data.query_texts), tokenizer=None)
    rf.fit("words", bags, out=tmp_path / "model")
    ranker = rf.load(tmp_path / "model")
    assert ranker.search(["d03"]).keys == rf.fit("words", data).search(["d03"]).keys
    assert rf.evaluate(ranker, bags, metrics="ndcg@3").queries > 0
    with pytest.raises(UserError, match="fitted on bags") as caught:
        ranker.search(text=["tea"])
    assert "known query" in caught.value.hint


# ---------------------------------------------------------------------------------- the index


def test_an_approximate_index_finds_what_the_exact_one_does(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.index.inverted.MIN_CANDIDATES", 0)
    for method in ("words", "sums"):
        exact = rf.fit(method, data)
        near = replace(exact, index="auto")
        keys = data.queries.keys.to_list()
        assert isinstance(near.searcher.index, Inverted)
        assert isinstance(exact.searcher.index, Exact)
        assert_same_keys(near.search(keys, k=3), exact.search(keys, k=3))
        results = [rf.evaluate(exact, data, metrics="ndcg@3", index=index) for index in INDEXES]
        assert all(result.metrics == pytest.approx(results[0].metrics) for result in results)


@pytest.mark.parametrize("method", ["overlap", "neighbours"])
def test_methods_without_vectors_have_no_approximate_index(data: Dataset, method: str) -> None:
    ranker = rf.fit(method, data)
    for ask in (
        lambda: replace(ranker, index="auto"),
        lambda: rf.evaluate(ranker, data, index="auto"),
    ):
        with pytest.raises(UserError, match=f"{method} has no vectors") as caught:
            ask()
        assert "exact" in caught.value.hint
    with pytest.raises(UserError, match="there is no index 'faiss'"):
        rf.evaluate(ranker, data, index="faiss")
