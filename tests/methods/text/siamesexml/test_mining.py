"""Mined documents, shortlists and centroids against brute force."""

from __future__ import annotations

from dataclasses import replace

import siamese_samples as samples
import torch
from rankings import assert_same_ranking, sorted_by

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.bag_encoder import BagEncoder, unit
from rankfold.encoders.bags import weigh
from rankfold.encoders.sharded_table import TableShard
from rankfold.index.exact import Exact
from rankfold.methods.text.siamesexml import mining, modules
from rankfold.types import Interactions, TopK, from_pairs


def test_mined_documents_are_the_nearest_wrong_ones() -> None:
    data = samples.topics()
    corpus = samples.corpus_of(data)
    encoder = BagEncoder(torch.randn(samples.WORDS, 8), residual=False, rng=torch.Generator())
    result = mining.mine_documents(encoder, corpus, Exact)
    scores = encoder(corpus.labels) @ encoder(corpus.documents).T
    assert isinstance(data.train, Interactions)
    for label in range(samples.LABELS):
        true = (data.train.candidates == label).nonzero().flatten()
        scores[label, data.train.query_of_pair()[true].long()] = -torch.inf
        scores[label, samples.DOCUMENTS - 20 :] = -torch.inf  # not in train
    ids = result.long()[:, None]
    assert_same_ranking(TopK(ids, scores.gather(1, ids)), sorted_by(scores))


def test_shortlists_hold_the_nearest_by_text_and_by_documents() -> None:
    corpus = samples.corpus_of(samples.topics())
    encoder = BagEncoder(torch.randn(samples.WORDS, 8), residual=False, rng=torch.Generator())
    with torch.no_grad():
        texts, vectors = encoder(corpus.labels), encoder(corpus.documents)
        result = mining.mine_shortlists(encoder, corpus, 4, Exact)
    assert len(result) == samples.DOCUMENTS - 20
    middles = mining.centroids(encoder, corpus, texts)
    for row in range(0, samples.DOCUMENTS - 20, 7):
        own = corpus.rows.select(torch.tensor([row])).candidates.long()
        listed = result[row][result[row] >= 0].long()
        near = torch.zeros(samples.LABELS, dtype=torch.bool)
        for table in (texts, middles):  # of equal scores any may be listed
            scores = (vectors[row] @ table.T).index_fill(0, own, -torch.inf)
            best = scores.topk(2).values
            torch.testing.assert_close(scores[listed].topk(2).values, best, rtol=0, atol=1e-5)
            near |= scores >= best[-1] - 1e-5
        assert bool(near[listed].all())
        assert len(listed.unique()) == len(listed) <= 4


def test_centroids_are_means_of_documents() -> None:
    corpus = samples.corpus_of(samples.topics())
    encoder = BagEncoder(torch.randn(samples.WORDS, 8), residual=False, rng=torch.Generator())
    with torch.no_grad():
        texts, vectors = encoder(corpus.labels), encoder(corpus.documents)
        result = mining.centroids(encoder, corpus, texts)
    for label in range(samples.LABELS):
        owners = corpus.rows.query_of_pair()[corpus.rows.candidates == label].long()
        torch.testing.assert_close(result[label], unit(vectors[owners].sum(dim=0)))


def test_centroids_by_tiles_are_the_same() -> None:
    corpus = samples.corpus_of(samples.topics())
    encoder = BagEncoder(torch.randn(samples.WORDS, 8), residual=False, rng=torch.Generator())
    small = TableShard(samples.LABELS, SINGLE_PROCESS, memory_budget=8 * 4 * 8 * 5)  # 5 labels
    counts = corpus.counts.clone()
    with torch.no_grad():
        texts = encoder(corpus.labels)
        expected = mining.centroids(encoder, corpus._replace(counts=counts), texts)
        result = mining.centroids(encoder, corpus._replace(label_shard=small), texts)
        torch.testing.assert_close(result, expected)
        without = corpus.rows.keep(corpus.rows.candidates != 2)
        result = mining.centroids(
            encoder, corpus._replace(label_shard=small, rows=without), texts.half()
        )
    assert torch.equal(result[2], texts[2].half())
    torch.testing.assert_close(result[3].float(), expected[3], rtol=1e-3, atol=1e-3)


def test_hardest_of_marks_the_largest_finite_scores() -> None:
    scores = torch.tensor([[0.1, 0.9, -torch.inf, 0.5], [-torch.inf, -torch.inf, 0.2, -torch.inf]])
    expected = torch.tensor([[False, True, False, True], [False, False, True, False]])
    assert torch.equal(modules.hardest_of(scores, 2), expected)


def test_draw_one_is_uniform() -> None:
    rows = from_pairs(torch.tensor([0, 0, 0, 1]), torch.tensor([2, 5, 7, 1]), None, (2, 9))
    rng = torch.Generator().manual_seed(0)
    both = torch.arange(2)
    drawn = torch.stack([modules.draw_one(rows, both, rng) for _ in range(3000)])
    assert set(drawn[:, 1].tolist()) == {1}
    counts = torch.bincount(drawn[:, 0].long(), minlength=9)[[2, 5, 7]]
    assert int(counts.sum()) == 3000
    assert int((counts - 1000).abs().max()) < 120


def test_padding_and_repeats() -> None:
    rows = from_pairs(torch.tensor([0, 0, 2]), torch.tensor([2, 5, 1]), None, (3, 9))
    assert modules.padded(rows).tolist() == [[2, 5], [-1, -1], [1, -1]]
    result = mining.without_repeats(torch.tensor([[3, 1, 3, 2], [0, 0, 0, -1]]))
    assert result.tolist() == [[1, 2, 3, -1], [-1, 0, -1, -1]]


def test_the_method_weighs_the_tokens() -> None:
    """Texts encoded later have the weights of training."""
    data = samples.topics()
    plain = {"pairs_from": 0, "popularity_weight": 0.0}
    model = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), **samples.SHORT, **plain)
    )
    assert data.query_texts is not None
    encoder = BagEncoder(
        model.tensors["0.tokens.weight"].float(), residual=False, rng=torch.Generator()
    )
    expected = encoder(weigh(data.query_texts, model.tensors["rarity"]))
    torch.testing.assert_close(samples.encode_texts(model, data.query_texts, "query"), expected)


def test_excluded_pairs_are_not_negatives() -> None:
    """Each label's nearest wrong document is excluded: the next one is mined."""
    data, encoder = (
        samples.topics(),
        BagEncoder(torch.randn(samples.WORDS, 8), residual=False, rng=torch.Generator()),
    )
    first = mining.mine_documents(encoder, samples.corpus_of(data), Exact)
    order = first.argsort(stable=True)
    excluded = from_pairs(first[order], order, None, (samples.DOCUMENTS, samples.LABELS))
    second = mining.mine_documents(
        encoder, samples.corpus_of(replace(data, excluded=excluded)), Exact
    )
    assert not bool((first == second).any())
