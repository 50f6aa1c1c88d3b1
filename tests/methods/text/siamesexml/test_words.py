"""The words beside the vectors: their scores, and what becomes of them when a model changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import siamese_samples as samples
import torch
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.siamesexml import mix, words
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, from_pairs

WEIGHTS = {"linear_weight": 2.0, "linear_rare": 0.5, "linear_middle": 1.5, "neighbour_weight": 0.7}


def uneven() -> Dataset:
    """Topics, with fewer documents for the first labels: candidates of all bands but the last."""
    data = samples.topics()
    rows, labels = data.train.query_of_pair(), data.train.candidates.long()
    kept = (labels > 3) | (rows < 4 * (3 + 3 * labels))
    shape = data.n_queries, samples.LABELS
    return replace(data, train=from_pairs(rows[kept], labels[kept], None, shape))


def fitted(data: Dataset, out: Path, **settings: Any) -> Ranker:
    rf.fit("siamesexml", data, out=out, **{**samples.SMALL, **samples.SHORT, **settings})
    ranker = rf.load(out)
    assert isinstance(ranker, Ranker)
    return ranker


def by_hand(ranker: Ranker, data: Dataset) -> Tensor:
    """The scores of all documents: those of the vectors, of classifiers and of near documents."""
    assert data.query_texts is not None
    scores = samples.encode_texts(ranker.model, data.query_texts, "query")
    scores = scores @ ranker.model.tensors["candidates"].T
    run = samples.run()
    index = neighbours.build_index(data, run.device, bigrams=True)
    learner = linear.Learner(index, data.train, linear.Config(), run)
    for _ in learner.learn():
        pass
    bags = neighbours.bags_of(data.query_texts, index)
    chances = learner.classifiers().chances(bags)
    counts = data.train.candidate_counts()
    factors = torch.where(counts < 10, 0.5, torch.where(counts < 50, 1.5, 1.0)) * 2.0
    factors[counts < linear.Config().least] = 0
    near, _ = neighbours.score_parts(index, bags, 20)
    return scores + factors * torch.where(chances > 1e-3, chances, 0.0) + 0.7 * near


@pytest.mark.parametrize("index", ["exact", "auto"])
def test_a_saved_model_ranks_by_the_formula(index: str, tmp_path: Path) -> None:
    data = uneven()
    fitted(data, tmp_path / "model", **WEIGHTS)
    ranker = rf.load(tmp_path / "model", index=index)
    assert isinstance(ranker, Ranker)
    expected = by_hand(ranker, data)
    assert data.query_texts is not None
    top = ranker.searcher.of_texts(data.query_texts, samples.LABELS)
    torch.testing.assert_close(top.scores, expected.gather(1, top.ids), rtol=1e-4, atol=1e-4)
    assert bool((top.ids.sort(dim=1).values == torch.arange(samples.LABELS)).all())


def test_bands_begin_at_10_and_at_50() -> None:
    counts = torch.tensor([0, 9, 10, 49, 50, 1000])
    assert words.bands_of(counts).tolist() == [0, 0, 1, 1, 2, 2]


def test_candidates_that_join_have_no_words_and_those_that_leave_take_theirs_along(
    tmp_path: Path,
) -> None:
    data = uneven()
    ranker = fitted(data, tmp_path / "model", **WEIGHTS)
    whole = by_hand(ranker, data)
    fewer = ranker.forget(candidates=[0, 7])
    left = [one for one in range(samples.LABELS) if one not in (0, 7)]
    assert data.query_texts is not None
    top = fewer.searcher.of_texts(data.query_texts, len(left))
    torch.testing.assert_close(top.scores, whole[:, left].gather(1, top.ids), rtol=1e-4, atol=1e-4)


def test_a_forgotten_query_is_no_near_document(tmp_path: Path) -> None:
    data = uneven()
    only_near = {"linear_weight": 0.0, "neighbour_weight": 1.0}
    ranker = fitted(data, tmp_path / "model", **only_near)
    fewer = ranker.forget([0, 1, 2])
    for model, documents in ((ranker.model, 100), (fewer.model, 97)):
        assert int((model.tensors["documents.offsets"].diff() > 0).sum()) == documents
    extra, asked = fewer.searcher.opened.extra_texts, data.query_texts
    assert extra is not None
    assert asked is not None
    shares = extra(asked.part(0, 1)).grades
    assert shares is not None
    assert 1 < float(shares.sum()) <= 3  # a document has up to 3 labels


def test_weights_of_0_leave_no_tensors(tmp_path: Path) -> None:
    ranker = fitted(uneven(), tmp_path / "model", linear_weight=0.0, neighbour_weight=0.0)
    assert not [name for name in ranker.model.tensors if name.startswith(("words", "linear"))]
    assert ranker.searcher.opened.extra_texts is None


def test_close_mixes_are_judged_by_rare_candidates() -> None:
    first, second, third = (mix.Mix(1.0, 0.0, weight) for weight in (0.0, 0.1, 0.2))
    tried = {
        first: mix.Tried(0.5, 1.0),
        second: mix.Tried(0.4995, 2.0),
        third: mix.Tried(0.49, 3.0),
    }
    assert mix._best_of(tried) == second


def test_vectors_from_a_file_have_no_words() -> None:
    config = replace(samples.config_of("siamesexml"), encoder="vectors:file", linear_weight=1.0)
    with pytest.raises(UserError, match="words beside the vectors"):
        words.are_wanted(uneven(), config, samples.run())
    config = replace(config, linear_weight=None, neighbour_weight=None)
    assert not words.are_wanted(uneven(), config, samples.run())
