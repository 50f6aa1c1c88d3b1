"""Module II of the released code: random walks, near candidates and shortlists."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from rankings import assert_same_ranking, sorted_by
from released_samples import dense, module_of, near_by_loops, rng_of
from text_samples import random_data
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import unit
from rankfold.index.exact import Exact
from rankfold.methods.text import neighbours
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.released import shortlists
from rankfold.types import from_pairs

# ---------------------------------------------------------------------------------- module II


def test_visits_of_a_walk_follow_its_powers() -> None:
    """The place after a step is spread as (.8 first + .2 place before) T, T a hop over a document.

    20,000 steps: frequencies are off by less than .02.
    """
    data = random_data(2, m=12, n=5)
    rows, steps = data.split("train"), 20_000
    assert int((rows.candidate_counts() == 0).sum()) <= 1
    result = dense(shortlists.random_walks(rows, steps, 5, rng_of()))
    chosen = dense(rows).double()
    hop = (chosen / chosen.sum(dim=0).clamp(min=1)).T @ (
        chosen / chosen.sum(dim=1, keepdim=True).clamp(min=1)
    )
    first = torch.eye(5, dtype=torch.float64)
    place = first @ hop
    for _ in range(100):  # by then it no longer moves
        place = (0.8 * first + 0.2 * place) @ hop
    lonely = rows.candidate_counts() == 0
    place[lonely] = first[lonely]
    torch.testing.assert_close(result.double(), place, atol=0.02, rtol=0)


def test_a_walk_starts_again_where_it_began() -> None:
    """Candidate 0 shares a document with 1, 1 with 2: from 0 to 2 it takes two hops in a row."""
    rows = from_pairs(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2]), None, (2, 4))
    result = dense(shortlists.random_walks(rows, 20_000, 4, rng_of()))
    assert result[3].tolist() == [0, 0, 0, 1]  # in no document
    direct = 0.2 * 0.5 * 0.25 / (1 - 0.2 * 0.5)  # nearly: to 1, no restart, on to 2
    assert 0 < float(result[0, 2]) < 3 * direct
    torch.testing.assert_close(result.sum(dim=1), torch.ones(4))


def test_only_the_most_frequent_are_kept() -> None:
    met = torch.randint(9, (6, 30), generator=rng_of())
    first = torch.tensor([1, 2, 4, 5, 7, 8])
    keys, counts = shortlists.most_met(met, first, 9, 3)
    expected = []
    for row, start in zip(met.tolist(), first.tolist(), strict=True):
        often = sorted(Counter(row).items(), key=lambda item: (-item[1], item[0]))[:3]
        expected += [(start * 9 + place, count) for place, count in often]
    assert list(zip(keys.tolist(), counts.tolist(), strict=True)) == expected


def test_rows_of_a_pruned_walk_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlists, "WALK_BLOCK", 5)  # several blocks
    rows = random_data(3).split("train")
    result = shortlists.random_walks(rows, 400, 2, rng_of())
    assert int(result.counts().max()) == 2
    torch.testing.assert_close(dense(result).sum(dim=1), torch.ones(rows.n_candidates))


@pytest.mark.parametrize("count", [0, 1, 6, 99])
def test_neighbours_are_the_nearest(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlists, "DOCUMENT_BLOCK", 7)  # several blocks
    vectors, known = (torch.randn(n, 4, generator=rng_of(n)) for n in (5, 30))
    result = shortlists.nearest_rows(vectors, known, count)
    scores = vectors @ known.T
    assert result.ids.shape == (5, min(count, 30))
    assert_same_ranking(result, sorted_by(scores))


@pytest.mark.parametrize("count", [0, 4, 300])
def test_near_scores_match_the_formula(count: int) -> None:
    module, corpus = module_of(random_data(4))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    space = shortlists.space_of(module.features, corpus, walk)
    chosen = corpus.rows.select(corpus.labelled)
    vectors = unit(torch.randn(6, 8, generator=rng_of(8)))
    result = shortlists.near_scores(vectors, space, chosen, count)
    expected = [near_by_loops(vector, space, dense(chosen), count) for vector in vectors]
    torch.testing.assert_close(result, torch.tensor(expected), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_near_space_is_centroids_plus_smoothed_texts() -> None:
    module, corpus = module_of(random_data(5))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    space = shortlists.space_of(module.features, corpus, walk)
    documents, texts = (
        gelu(module.encoder.sums(bags)) for bags in (corpus.documents, corpus.labels)
    )
    chosen, weights = dense(corpus.rows), dense(walk)
    asking = chosen.any(dim=1)
    torch.testing.assert_close(space.documents, unit(documents[asking]))
    for y in range(len(texts)):
        text = unit(sum(weights[y, z] * texts[z] for z in range(len(texts))))  # type: ignore[arg-type]
        own = documents[chosen[:, y] > 0]
        centroid = unit(own.sum(dim=0)) if len(own) else text
        torch.testing.assert_close(space.candidates[y], text + centroid)


@pytest.mark.parametrize(("size", "count"), [(4, 5), (1, 40), (4, 0), (50, 3)])
def test_shortlists_are_the_best_without_own_labels(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of all candidates, although only some are compared."""
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)
    monkeypatch.setattr(shortlists, "PAIR_BLOCK", 5)
    module, corpus = module_of(random_data(6))
    space = shortlists.space_of(
        module.features, corpus, shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    )
    config = ReleasedConfig(shortlist=size, neighbours=count)
    result = shortlists.mine_shortlists(space, corpus, config, Exact)
    chosen = dense(corpus.rows.select(corpus.labelled))
    assert result.shape == (len(chosen), min(size, chosen.shape[1]))
    for row, vector in enumerate(space.documents):
        scores = torch.tensor(near_by_loops(vector, space, chosen, count))
        scores[chosen[row] > 0] = -torch.inf
        left = min(size, int((chosen[row] == 0).sum()))
        ids = result[row].long()
        assert len(set(ids[:left].tolist())) == left
        assert set(ids[left:].tolist()) <= {-1}
        torch.testing.assert_close(scores[ids[:left]], scores.topk(left).values)  # ties
