"""Texts as weighted bags, and their vectors."""

import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from rankfold.encoders.bag_encoder import BagEncoder, unit
from rankfold.encoders.bags import (
    as_bags,
    beside,
    character_grams,
    common_pairs,
    inverse_document_frequency,
    thin,
    weigh,
    weigh_in_order,
    with_grams,
    with_pairs,
)
from rankfold.types import Texts

TOKENS = 12
some_texts = st.lists(st.lists(st.integers(0, TOKENS - 1), max_size=9), min_size=1, max_size=6)


def texts_of(lists: list[list[int]]) -> Texts:
    offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
    return Texts(offsets, torch.tensor([t for one in lists for t in one], dtype=torch.int32))


def dense(bags: Texts) -> Tensor:
    assert bags.weights is not None
    rows = torch.repeat_interleave(bags.counts())
    return torch.zeros(len(bags), TOKENS).index_put(
        (rows, bags.tokens.long()), bags.weights, accumulate=True
    )


@given(some_texts)
def test_a_bag_counts_each_token(lists: list[list[int]]) -> None:
    expected = torch.tensor([[float(one.count(t)) for t in range(TOKENS)] for one in lists])
    result = as_bags(texts_of(lists))
    assert torch.equal(dense(result), expected)
    assert len(result.tokens) == sum(len(set(one)) for one in lists)


@given(some_texts, some_texts)
def test_idf_matches_the_formula(ours: list[list[int]], theirs: list[list[int]]) -> None:
    n = len(ours) + len(theirs)
    having = [sum(t in one for one in [*ours, *theirs]) for t in range(TOKENS)]
    expected = torch.tensor([1 + math.log((1 + n) / (1 + df)) for df in having])
    torch.testing.assert_close(
        inverse_document_frequency([texts_of(ours), texts_of(theirs)], TOKENS), expected
    )


@given(some_texts)
def test_weights_are_tf_idf_of_length_one(lists: list[list[int]]) -> None:
    idf = torch.rand(TOKENS) + 0.5
    result = dense(weigh(texts_of(lists), idf))
    for row, one in enumerate(lists):
        raw = [
            (1 + math.log(one.count(t))) * float(idf[t]) if t in one else 0 for t in range(TOKENS)
        ]
        norm = math.sqrt(sum(w * w for w in raw)) or 1.0
        torch.testing.assert_close(result[row], torch.tensor([w / norm for w in raw]))


def test_given_weights_are_only_normalised() -> None:
    texts = Texts(torch.tensor([0, 2]), torch.tensor([3, 5]).int(), torch.tensor([3.0, 4.0]))
    result = weigh(texts, torch.rand(TOKENS))
    assert result.weights is not None
    torch.testing.assert_close(result.weights, torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("residual", [False, True])
def test_vectors_match_the_formula(residual: bool) -> None:  # noqa: FBT001
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(TOKENS, 5, generator=rng)
    encoder = BagEncoder(start.clone(), residual=residual, rng=rng)
    bags = weigh(texts_of([[1, 2, 2], [], [7], [0, 11, 3]]), torch.ones(TOKENS))
    sums = dense(bags) @ start
    expected = unit(sums)
    if residual:
        assert encoder.mixing is not None
        first = unit(sums.relu())
        expected = unit(first + (first @ encoder.mixing.T).relu())
    result = encoder(bags)
    torch.testing.assert_close(result, expected)
    assert torch.equal(result[1], torch.zeros(5))
    lengths = result[[0, 2, 3]].norm(dim=1)
    torch.testing.assert_close(lengths[lengths > 0], torch.ones(int((lengths > 0).sum())))


def test_gradients_reach_only_the_tokens_of_the_texts() -> None:
    encoder = BagEncoder(torch.randn(TOKENS, 4), residual=False, rng=torch.Generator())
    encoder(weigh(texts_of([[1, 2], [2, 9]]), torch.ones(TOKENS))).sum().backward()
    assert encoder.tokens.weight.grad is not None
    rows = encoder.tokens.weight.grad.coalesce().indices()[0]
    assert rows.tolist() == [1, 2, 9]


def test_thinning_drops_its_share_and_keeps_the_rest() -> None:
    bags = weigh(texts_of([list(range(TOKENS))] * 500), torch.ones(TOKENS))
    result = thin(bags, 0.3, torch.Generator().manual_seed(0))
    assert bags.weights is not None
    assert result.weights is not None
    gone = result.weights == 0
    assert 0.27 < float(gone.double().mean()) < 0.33
    assert torch.equal(result.weights[~gone], bags.weights[~gone])
    assert torch.equal(thin(bags, 0.0, torch.Generator()).weights, bags.weights)  # type: ignore[arg-type]


@given(some_texts, some_texts, st.integers(1, 3))
def test_pairs_are_adjacent_tokens_that_occur_often(
    ours: list[list[int]], theirs: list[list[int]], least: int
) -> None:
    every = [pair for one in [*ours, *theirs] for pair in itertools.pairwise(one)]
    often = sorted({a * TOKENS + b for a, b in every if every.count((a, b)) >= least})
    pairs = common_pairs([texts_of(ours), texts_of(theirs)], TOKENS, least)
    assert pairs.tolist() == often
    result = with_pairs(texts_of(ours), pairs, TOKENS)
    for row, one in enumerate(ours):
        keys = [a * TOKENS + b for a, b in itertools.pairwise(one)]
        expected = [*one, *(TOKENS + often.index(key) for key in keys if key in often)]
        tokens = result.tokens[result.offsets[row] : result.offsets[row + 1]].tolist()
        assert tokens == expected


def test_bags_have_no_pairs() -> None:
    bags = Texts(torch.tensor([0, 2]), torch.tensor([3, 5]).int(), torch.tensor([3.0, 4.0]))
    assert len(common_pairs([bags], TOKENS, 1)) == 0
    assert with_pairs(bags, torch.tensor([3 * TOKENS + 5]), TOKENS) is bags


@given(lists=some_texts)
def test_texts_in_order_have_the_weights_of_their_bags(lists: list[list[int]]) -> None:
    texts, idf = texts_of(lists), torch.linspace(1, 3, TOKENS)
    result = weigh_in_order(texts, idf)
    assert torch.equal(result.tokens, texts.tokens)
    torch.testing.assert_close(dense(result), dense(weigh(texts, idf)))


def test_grams_of_words_stand_beside_the_words() -> None:
    grams = character_grams(["garden", "of", "gardens"])
    assert grams.counts().tolist() == [5, 0, 6]  # <gar gard arde rden den>, and dens ens>
    common = set(grams.part(0, 1).candidates.tolist()) & set(grams.part(2, 3).candidates.tolist())
    assert len(common) == 4
    texts = Texts(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 2], dtype=torch.int32))
    read = with_grams(texts, grams)
    assert read.counts().tolist() == [5, 0, 6]
    ones = torch.ones(3), torch.ones(grams.n_candidates)
    words, others = (weigh(*own) for own in zip((texts, read), ones, strict=True))
    both = beside(words, replace(others, tokens=others.tokens + 3))
    squares = [float(both.part(row, row + 1).weights.square().sum()) for row in range(3)]
    assert squares == pytest.approx([1, 0, 1])
    first = both.part(0, 1)
    assert first.weights[first.tokens < 3].square().sum().item() == pytest.approx(0.5)


def test_unit_vectors_and_their_gradients_are_those_of_normalize() -> None:
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    start[1], start[2] = 0, start[2] * 1e-8  # shorter than the smallest norm
    wanted = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    results, gradients = [], []
    for of in (unit, partial(normalize, dim=-1, eps=1e-6)):
        vectors = start.clone().requires_grad_()
        results.append(of(vectors))
        gradients.append(torch.autograd.grad(results[-1], vectors, wanted)[0])
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)
