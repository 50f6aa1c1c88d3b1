"""Documents that are added to a text model: labels move by the written formula, and are found."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import extend, fit_and_add
from rankfold.types import Dataset

TOPICS = ["red apples", "blue water", "green tea", "old maps", "cold noodles"]
SETTINGS: dict[str, Any] = {
    **{"width": 12, "joint_epochs": 1, "popularity_weight": 0.1, "centroid_weight": 0.3},
    **{"classifier_share": 0.5, "linear_weight": 0.0, "linear_rare": 1.0, "linear_middle": 1.0},
    "neighbour_weight": 0.5,
}
NEW_LABEL = pl.DataFrame({"label": ["tag 9"], "text": ["cold water"]})


def documents(prefix: str, labels: list[int], n: int) -> pl.DataFrame:
    """Document i is about the topic of its label."""
    own = [labels[i % len(labels)] for i in range(n)]
    texts = [f"{TOPICS[label % 5]} number {i % 3}" for i, label in enumerate(own)]
    keys = [f"{prefix}{i:02}" for i in range(n)]
    return pl.DataFrame({"key": keys, "text": texts, "labels": [[f"tag {one}"] for one in own]})


def prepared(table: pl.DataFrame, split: str = "1,0,0", **options: Any) -> Dataset:
    labels = pl.DataFrame({"candidate": [f"tag {i}" for i in range(5)], "text": TOPICS})
    how: dict[str, Any] = {"format": "texts", "candidate_texts": labels, "query_column": "key"}
    return rf.prepare(table, split=split, **how, **options)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Nobody has tag 4."""
    return prepared(documents("d", [0, 1, 2, 3], 40), "queries:0.8,0.2,0")


@pytest.fixture(scope="module", params=["siamesexml", "siamesexml-3"])
def ranker(request: pytest.FixtureRequest, data: Dataset) -> Ranker:
    fitted = rf.fit(request.param, data, **SETTINGS)
    assert isinstance(fitted, Ranker)
    return fitted


def unit_of(vectors: Tensor, members: int) -> Tensor:
    parts = [part / part.norm() for part in vectors.chunk(members)]
    return torch.cat(parts)


def mean_of(ranker: Ranker, texts: list[str], members: int) -> Tensor:
    encode = ranker.searcher.opened.texts
    assert encode is not None
    vectors = [encode(ranker.tokens([text]), "query")[0, : members * 12] for text in texts]
    return unit_of(torch.stack(vectors).sum(dim=0), members)


def test_labels_move_by_the_written_formula(ranker: Ranker, data: Dataset) -> None:
    members = int(ranker.model.config["members"])
    more = documents("new", [1, 4], 6)
    grown = ranker.add(prepared(more))
    train = data.split("train")
    words = data.queries.texts
    assert words is not None
    for label in range(5):
        (row,) = ranker.candidates.rows([f"tag {label}"]).tolist()
        before, after = (one.model.tensors["candidates"][row] for one in (ranker, grown))
        docs = train.transpose().part(row, row + 1).candidates.tolist()
        new = more.filter(pl.col("labels").list.contains(f"tag {label}"))["text"].to_list()
        if not new:
            assert torch.equal(after, before)
            continue
        old = mean_of(ranker, [words[doc] for doc in docs], members) if docs else None
        old = unit_of(before[: members * 12], members) if old is None else old
        now = mean_of(ranker, [*(words[doc] for doc in docs), *new], members)
        expected = before[: members * 12] + 0.3 / members * (now - old)
        torch.testing.assert_close(after[: members * 12], expected, atol=1e-5, rtol=0)
        popularity = torch.tensor(len(docs) + len(new)).float().log1p() * 0.1 / 0.5
        torch.testing.assert_close(after[-1], popularity)
    entry = grown.model.notes["added"][-1]
    assert (entry["queries"], entry["pairs"], entry["left_out"]) == (6, 6, 0)
    assert grown.seen.n_pairs == ranker.seen.n_pairs + 6


def test_new_documents_are_near_ones_and_queries(ranker: Ranker, tmp_path: Path) -> None:
    """Nobody had chosen tag 4: only a near document can put it first."""
    more = documents("new", [4], 5).with_columns(text=pl.lit("green maps of blue apples"))
    grown = ranker.add(prepared(more))
    before, after = (one.search(text="green maps of blue apples", k=5) for one in (ranker, grown))
    assert before.keys[0][0] != "tag 4"
    assert after.keys[0][0] == "tag 4"
    assert grown.search(["new00"], k=4).keys[0] == [key for key in after.keys[0] if key != "tag 4"]
    grown.save(tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert isinstance(loaded, Ranker)
    again = loaded.search(text="green maps of blue apples", k=5)
    assert again.keys == after.keys
    assert torch.tensor(again.scores).allclose(torch.tensor(after.scores), atol=1e-5)
    twice = grown.add(prepared(more))
    torch.testing.assert_close(twice.model.tensors, grown.model.tensors)


def test_a_new_label_moves_to_its_documents(ranker: Ranker, tmp_path: Path) -> None:
    more = documents("new", [9, 2], 8).with_columns(text=pl.lit("red tea"))
    ranker.save(tmp_path / "model")
    text = ranker.extend(NEW_LABEL, "label", "text")
    grown = extend(tmp_path / "model", NEW_LABEL, "label", "text", prepared(more))
    assert grown.model.notes["extended"][-1]["candidates"] == 1
    assert grown.model.notes["added"][-1]["pairs"] == 8
    scores = [
        dict(zip(one.keys[0], one.scores[0], strict=True))
        for one in (model.search(text="red tea", k=6) for model in (text, grown))
    ]
    assert scores[1]["tag 9"] > scores[0]["tag 9"] + 0.05
    assert scores[1]["tag 2"] > scores[0]["tag 2"]
    skipped = ranker.add(prepared(more)).model.notes["added"][-1]
    assert (skipped["left_out"], skipped["unknown_candidates"]) == (4, 1)


def test_fit_add_changes_a_fitted_model(data: Dataset, tmp_path: Path) -> None:
    rf.prepare(
        documents("new", [1], 3),
        format="texts",
        split="1,0,0",
        query_column="key",
        out=tmp_path / "more",
    )
    model = fit_and_add("siamesexml", data, tmp_path / "more", tmp_path / "model", **SETTINGS)
    assert model.model.notes["added"][-1]["queries"] == 3
    again = fit_and_add("siamesexml", data, tmp_path / "more", tmp_path / "model", **SETTINGS)
    assert again.model.notes["added"][-1]["pairs"] == 0


def test_documents_that_cannot_be_added_are_refused(ranker: Ranker, data: Dataset) -> None:
    other = documents("d", [4], 3)
    with pytest.raises(UserError, match="the model knows another text of document 'd00'"):
        ranker.add(prepared(other))
    pairs = pl.DataFrame({"query": ["x"], "candidate": ["tag 1"]})
    with pytest.raises(UserError, match="but the data has none"):
        ranker.add(pairs)
    near = rf.fit("text-neighbours", data)
    with pytest.raises(UserError, match="text-neighbours ranks by text and cannot add pairs"):
        near.extend(NEW_LABEL, "label", "text", documents=prepared(other))


def test_a_model_is_evaluated_on_more_documents_than_it_knows(ranker: Ranker) -> None:
    """Their rows are not those of the documents that the model keeps."""
    more = prepared(documents("later", [0, 1, 2, 3], 120), "queries:0.5,0,0.5")
    result = rf.evaluate(ranker, more, metrics="ndcg@3")
    assert result.queries == 60
    assert result["ndcg@3"] > 0.5
