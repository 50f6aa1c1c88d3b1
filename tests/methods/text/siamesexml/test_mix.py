"""The mix of classifiers, texts, centroids and popularity, and how it is chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import siamese_samples as samples
import torch
from torch import Tensor

import rankfold as rf
from rankfold.encoders.bag_encoder import BagEncoder
from rankfold.encoders.bags import weigh, with_pairs
from rankfold.index.exact import Exact
from rankfold.methods.text.siamesexml import members, mix
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import best
from rankfold.types import Dataset, Interactions, from_pairs


def test_the_mix_matches_the_formula() -> None:
    done = {f"0.{key}": torch.randn(5, 3) for key in ("refined", "texts", "centroids")}
    done |= {f"1.{key}": torch.randn(5, 3) for key in ("refined", "texts", "centroids")}
    counts = torch.tensor([0, 1, 2, 40, 5])
    result = mix.mixture([done], mix.Mix(0.7, 0.2, 0.1), 2, counts)
    for number in (0, 1):
        corpus = [done[f"{number}.{key}"] for key in ("refined", "texts", "centroids")]
        expected = (0.7 * corpus[0] + 0.3 * corpus[1] + 0.2 * corpus[2]) / 2
        torch.testing.assert_close(result[:, number * 3 : number * 3 + 3], expected)
    assert result[:, 6].tolist() == pytest.approx([0.2 * math.log(1 + n) for n in counts.tolist()])
    torch.testing.assert_close(
        mix.mixture([done], mix.Mix(0.7, 0.2, 0.0), 2, counts), result[:, :6]
    )


def test_the_mix_is_the_same_in_tiles_and_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    done = {f"0.{key}": torch.randn(11, 4) for key in members.MIXED}
    chosen, counts = mix.Mix(0.7, 0.2, 0.1), torch.arange(11)
    expected = mix.mixture([done], chosen, 1, counts)
    monkeypatch.setattr(mix, "TILE", 4)
    monkeypatch.setattr(mix, "_MIXED_ROWS", 3)
    halves = mix.mixture([done], chosen, 1, counts, torch.float16)
    torch.testing.assert_close(mix.mixture(mix.released(done), chosen, 1, counts), expected)
    assert not done
    assert halves.dtype == torch.float16
    torch.testing.assert_close(halves.float(), expected, rtol=1e-3, atol=1e-4)


def test_a_model_with_vectors_in_halves_gives_nearly_the_same_scores(tmp_path: Path) -> None:
    data = samples.topics()
    given = {**samples.SMALL, **samples.SHORT, "classifier_share": 0.5, "centroid_weight": 0.3}
    for table in ("float32", "float16"):
        rf.fit("siamesexml", data, out=tmp_path / table, **given, table=table)
    whole, half = (rf.load(tmp_path / table) for table in ("float32", "float16"))
    assert isinstance(whole, Ranker)
    assert isinstance(half, Ranker)
    assert half.model.tensors["candidates"].dtype == torch.float16
    for inputs in ({"queries": [0, 1, 2]}, {"candidates": [0, 3]}):
        one, other = (m.search(**inputs, k=samples.LABELS) for m in (whole, half))
        torch.testing.assert_close(
            torch.as_tensor(one.scores), torch.as_tensor(other.scores), rtol=2e-3, atol=2e-3
        )


def test_popularity_is_one_more_column_and_changes_nothing_else() -> None:
    data = samples.topics()
    assert data.query_texts is not None
    given = {**samples.SHORT, "classifier_share": 0.5, "centroid_weight": 0.3}
    without, by_it = (
        samples.model_of(
            samples.steps("siamesexml", data, samples.run(), **given, popularity_weight=weight)
        )
        for weight in (0.0, 0.1)
    )
    for key, tensor in without.tensors.items():
        result = by_it.tensors[key]
        assert torch.equal(tensor, result[:, :-1] if key == "candidates" else result)
    plain, more = (samples.encode_texts(m, data.query_texts, "query") for m in (without, by_it))
    counts = data.split("train").candidate_counts()
    scores = plain @ without.tensors["candidates"].T + 0.1 * torch.log1p(counts)
    torch.testing.assert_close(more @ by_it.tensors["candidates"].T, scores)


def test_an_old_model_without_popularity_still_answers() -> None:
    data = samples.topics()
    assert data.query_texts is not None
    model = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), **samples.SHORT, popularity_weight=0.0)
    )
    config = {key: value for key, value in model.config.items() if key != "popularity_weight"}
    vectors = samples.encode_texts(replace(model, config=config), data.query_texts, "query")
    assert torch.equal(vectors, samples.encode_texts(model, data.query_texts, "query"))
    assert vectors.shape[1] == model.tensors["candidates"].shape[1]


@pytest.mark.parametrize("index", ["exact", "auto"])
def test_a_saved_model_ranks_by_the_formula(index: str, tmp_path: Path) -> None:
    """Without seen pairs and a document's own label."""
    data = samples.topics()
    own = from_pairs(
        torch.arange(samples.LABELS),
        torch.arange(samples.LABELS).flip(0),
        None,
        (samples.DOCUMENTS, samples.LABELS),
    )
    data = replace(data, excluded=own)
    given = {**samples.SMALL, **samples.SHORT, "popularity_weight": 0.3}
    rf.fit("siamesexml", data, out=tmp_path / "model", **given)
    ranker = rf.load(tmp_path / "model", index=index)
    assert isinstance(ranker, Ranker)
    tensors = ranker.model.tensors
    assert data.query_texts is not None
    encoder = BagEncoder(tensors["0.tokens.weight"].float(), residual=False, rng=torch.Generator())
    bags = with_pairs(data.query_texts, tensors["pairs"], samples.WORDS)
    vectors = encoder(weigh(bags, tensors["rarity"]))
    counts = data.split("train").candidate_counts()
    scores = vectors @ tensors["candidates"][:, :16].T + 0.3 * torch.log1p(counts)
    for hidden in (data.split("train"), own):
        scores[hidden.query_of_pair().long(), hidden.candidates.long()] = -torch.inf
    rows = torch.arange(samples.DOCUMENTS)
    result = best(ranker, "queries", rows, samples.LABELS)
    expected = scores.sort(dim=1, descending=True).values
    torch.testing.assert_close(result.scores, expected)
    left = result.ids.clamp(min=0)
    torch.testing.assert_close(scores.gather(1, left).where(result.ids >= 0, -torch.inf), expected)


class First:
    """A judge of the first 30 documents, whose best labels are those of their topic."""

    queries, depth = torch.arange(30), 3

    def hidden(self, queries: Tensor) -> Interactions:
        """One hidden label per document, often the best one."""
        return from_pairs(
            torch.arange(len(queries)),
            queries % samples.LABELS,
            None,
            (len(queries), samples.LABELS),
        )

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        wanted = (ids >= 0) & (ids % samples.TOPICS == (queries % samples.TOPICS)[:, None])
        return (wanted / torch.arange(1, 4)).sum(dim=1)


@pytest.mark.parametrize(
    ("memory_budget", "block_bytes", "tile"),
    [
        (1, 2**23, 2**17),
        (2**30, 8 * samples.LABELS, 2**17),
        (2**30, 2**23, 2**17),
        (2**30, 2**23, 5),
        (2**30, 2**23, 1),
    ],
)
@pytest.mark.parametrize(
    "mixes",
    [
        [mix.Mix(0.7, 0.2, 0.0), mix.Mix(0.1, 0.9, 1.0), mix.Mix(1.0, 0.0, 0.3)],
        [mix.Mix(0.7, 0.2, weight) for weight in (0.0, 0.3, 1.0)],
    ],
)
def test_scores_of_mixes_are_those_of_a_search(
    mixes: list[mix.Mix],
    memory_budget: int,
    block_bytes: int,
    tile: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slow way: one index per mixture."""
    monkeypatch.setattr(mix, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(mix, "TILE", tile)
    counts, rng = torch.arange(samples.LABELS), torch.Generator().manual_seed(2)
    corpus = samples.corpus_of(samples.topics())._replace(counts=counts)
    sizes = {
        "refined": samples.LABELS,
        "texts": samples.LABELS,
        "centroids": samples.LABELS,
        "tokens.weight": samples.WORDS,
    }
    done = {
        f"{number}.{key}": torch.randn(size, 8, generator=rng)
        for number in (0, 1)
        for key, size in sizes.items()
    }
    config, judged = SiameseConfig(width=8, members=2), First()
    given = replace(samples.run(), judge=judged, memory_budget=memory_budget)
    result = mix.score_mixes(mixes, done, config, corpus, given)
    vectors = members.encode(
        members.encoders_of(done, config, len(corpus.idf)), corpus.documents.select(judged.queries)
    )
    for each in mixes:
        index = Exact(mix.mixture([done], each, 2, counts))
        extended = mix.with_column(vectors, each.popularity_weight, torch.tensor([0.5]))
        ids = index.search(extended, 3, judged.hidden(judged.queries)).ids
        assert result[each].score == pytest.approx(float(judged.values(judged.queries, ids).mean()))
    assert len({one.score for one in result.values()}) == 3


class Wanting:
    """A judge of one query that wants one candidate first."""

    def __init__(self, candidate: int) -> None:
        self.candidate, self.queries, self.depth = candidate, torch.tensor([0]), 1

    def hidden(self, queries: Tensor) -> Interactions:
        return from_pairs(queries[:0], queries[:0], None, (len(queries), samples.LABELS))

    def values(self, _queries: Tensor, ids: Tensor) -> Tensor:
        return (ids[:, 0] == self.candidate).float()


def nearly_equal_labels(data: Dataset) -> tuple[Corpus, dict[str, Tensor]]:
    """Labels whose vectors are nearly the same: label 0 has the best, label 5 most documents."""
    rows = torch.arange(40).sort().values
    column = torch.where(rows < 30, 5, rows % 5)
    pairs = from_pairs(rows, column, None, (samples.DOCUMENTS, samples.LABELS))
    corpus = samples.corpus_of(replace(data, train=pairs))
    encoder = BagEncoder(torch.randn(len(corpus.idf), 4), residual=False, rng=torch.Generator())
    with torch.no_grad():
        first = encoder(corpus.documents.select(torch.tensor([0])))
    vectors = first * (1 - 1e-3 * torch.arange(samples.LABELS)[:, None])
    done = {f"0.{key}": vectors for key in ("refined", "texts", "centroids")}
    return corpus, {**done, "0.tokens.weight": encoder.tokens.weight.detach()}


@pytest.mark.parametrize("wanted", [0, 5])
def test_validation_chooses_the_popularity_weight(wanted: int) -> None:
    corpus, done = nearly_equal_labels(samples.topics())
    judged = replace(samples.run(), judge=Wanting(wanted))
    chosen, tried = mix.choose_mix(done, SiameseConfig(width=4), corpus, judged)
    assert (chosen.popularity_weight > 0) == (wanted == 5)
    assert len(tried) == 29
    assert max(each["score"] for each in tried) == 1.0


def test_given_weights_of_a_mix_are_kept() -> None:
    corpus, done = nearly_equal_labels(samples.topics())
    config = SiameseConfig(width=4, popularity_weight=0.0, centroid_weight=0.2)
    judged = replace(samples.run(), judge=Wanting(5))
    chosen, tried = mix.choose_mix(done, config, corpus, judged)
    assert chosen[1:3] == (0.2, 0.0)
    assert len(tried) == len(mix.CLASSIFIER_SHARES)
    assert mix.choose_mix(done, config, corpus, samples.run()) == (mix.Mix(0.75, 0.2, 0.0), [])


def test_members_scores_are_averaged() -> None:
    data = samples.topics()
    assert data.query_texts is not None
    settings = {
        **samples.SHORT,
        "classifier_share": 0.5,
        "centroid_weight": 0.0,
        "popularity_weight": 0.0,
    }
    three = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), members=3, **settings)
    )
    vectors = samples.encode_texts(three, data.query_texts, "query")
    scores = vectors @ three.tensors["candidates"].T
    each = [
        vectors[:, part] @ three.tensors["candidates"][:, part].T * 3
        for part in (slice(0, 16), slice(16, 32), slice(32, 48))
    ]
    torch.testing.assert_close(scores, torch.stack(each).mean(dim=0))
    assert not torch.allclose(each[0], each[1])
