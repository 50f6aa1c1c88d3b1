"""Extra scores beside inner products: exact search and merged results agree with brute force."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rankings import assert_same_ranking, sorted_by
from torch import Tensor

from rankfold.index.exact import Exact
from rankfold.index.extra_scores import merge_extra
from rankfold.types import Interactions, TopK, from_pairs

M, N, D, K = 7, 300, 8, 10


def drawn(seed: int) -> tuple[Tensor, Tensor, Interactions, Interactions]:
    """Vectors of both sides, extra scores with repeated pairs, and excluded pairs."""
    rng = torch.Generator().manual_seed(seed)
    vectors, candidates = (torch.randn(n, D, generator=rng) for n in (M, N))
    counts = torch.randint(0, 60, (M,), generator=rng)
    counts[0] = 0
    total = int(counts.sum())
    ids = torch.randint(N, (total,), generator=rng).int()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    extra = Interactions(offsets, ids, 3 * torch.rand(total, generator=rng), N)
    hidden = (torch.rand(M, N, generator=rng) < 0.2).nonzero()
    return vectors, candidates, extra, from_pairs(hidden[:, 0], hidden[:, 1], None, (M, N))


def all_scores(vectors: Tensor, candidates: Tensor, extra: Interactions) -> Tensor:
    scores = vectors @ candidates.T
    assert extra.grades is not None
    for pair, row in enumerate(extra.query_of_pair().tolist()):
        scores[row, int(extra.candidates[pair])] += extra.grades[pair]
    return scores


@given(seed=st.integers(0, 1000), filtered=st.booleans(), allowed=st.booleans())
def test_both_ways_equal_brute_force(*, seed: int, filtered: bool, allowed: bool) -> None:
    vectors, candidates, extra, hidden = drawn(seed)
    exclude = hidden if filtered else None
    allow = torch.arange(0, N, 3) if allowed else None
    scores = all_scores(vectors, candidates, extra)
    if exclude is not None:
        scores[exclude.query_of_pair().long(), exclude.candidates.long()] = -torch.inf
    if allow is not None:
        scores[:, torch.isin(torch.arange(N), allow, invert=True)] = -torch.inf
    index = Exact(candidates, memory_budget=2**14)
    exact = index.search(vectors, K, exclude, allow, extra)
    plain = index.search(vectors, K, exclude, allow)
    merged = merge_extra(plain, vectors, candidates, extra, exclude, allow)
    for top in (exact, merged):
        assert_same_ranking(top, sorted_by(scores))


def test_extra_scores_move_a_candidate_to_the_top() -> None:
    vectors, candidates, *_ = drawn(0)
    last = int((vectors[0] @ candidates.T).argmin())
    extra = from_pairs(torch.tensor([0]), torch.tensor([last]), torch.tensor([100.0]), (M, N))
    index = Exact(candidates)
    assert int(index.search(vectors, K, extra=extra).ids[0, 0]) == last
    plain = index.search(vectors, K)
    merged = merge_extra(plain, vectors, candidates, extra)
    assert int(merged.ids[0, 0]) == last
    assert_same_ranking(TopK(*(t[1:] for t in merged)), TopK(*(t[1:] for t in plain)))


@pytest.mark.parametrize("n", [0, 1])
def test_few_queries(n: int) -> None:
    vectors, candidates, extra, _ = drawn(1)
    top = Exact(candidates).search(vectors[:n], K, extra=extra.part(0, n))
    assert top.ids.shape == (n, K)
