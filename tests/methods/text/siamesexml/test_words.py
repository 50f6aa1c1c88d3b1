"""The words beside the vectors: their scores, and what becomes of them when a model changes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
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
    width = ranker.model.config["width"]
    vectors = samples.encode_texts(ranker.model, data.query_texts, "query")[:, :width]
    near = torch.zeros_like(scores)
    known = data.train.counts()
    for row, own in enumerate(vectors):
        cosines = [
            float(own @ other) if n else -9.0 for other, n in zip(vectors, known, strict=True)
        ]
        nearest = sorted(range(len(cosines)), key=lambda one: -cosines[one])[:20]
        total = sum(math.exp(10 * cosines[one]) for one in nearest)
        for one in nearest:
            near[row, data.train.part(one, one + 1).candidates] += (
                math.exp(10 * cosines[one]) / total
            )
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
    torch.testing.assert_close(top.scores, expected.gather(1, top.ids), rtol=5e-3, atol=2e-3)
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
    torch.testing.assert_close(top.scores, whole[:, left].gather(1, top.ids), rtol=5e-3, atol=2e-3)


def test_a_forgotten_query_is_no_near_document(tmp_path: Path) -> None:
    data = uneven()
    only_near = {"linear_weight": 0.0, "neighbour_weight": 1.0}
    ranker = fitted(data, tmp_path / "model", **only_near)
    fewer = ranker.forget([0, 1, 2])
    for model, documents in ((ranker.model, 100), (fewer.model, 97)):
        assert int((model.tensors["offsets"].diff() > 0).sum()) == documents
        assert len(model.tensors["documents"]) == len(model.tensors["offsets"]) - 1
    opened, asked = fewer.searcher.opened, data.query_texts
    assert opened.extra_texts is not None
    assert opened.texts is not None
    assert asked is not None
    first = asked.part(0, 1)
    shares = opened.extra_texts(first, opened.texts(first, "query")).grades
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


def test_classifiers_read_characters(tmp_path: Path) -> None:
    """Labels follow the stem of a word; each text has another ending."""
    stems, endings = ["garden", "window", "planet", "kitchen"], ["er", "ing", "ed", "s", "ist"]
    rows = [(f"{stem}{end}{n % 7}x", stem) for stem in stems for end in endings for n in range(5)]
    table = pl.DataFrame({"text": [one for one, _ in rows], "labels": [[own] for _, own in rows]})
    data = rf.prepare(table, format="texts", split="queries:0.8,0.1,0.1", out=tmp_path / "data")
    only = {"linear_weight": 1.0, "neighbour_weight": 0.0}
    ranker = fitted(data, tmp_path / "model", **only)
    extra = ranker.searcher.opened.extra_texts
    assert extra is not None
    new = ranker.tokens(stems)  # no training document has these words
    scores = extra(new, torch.zeros(len(stems), 0))
    assert scores.grades is not None
    for row, stem in enumerate(stems):
        own = scores.part(row, row + 1)
        assert own.grades is not None
        best = own.candidates[own.grades.argmax()]
        assert ranker.candidates.keys[int(best)] == stem
