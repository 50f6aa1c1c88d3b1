"""The contract of every kind of index, exact or approximate."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index import INDEXES, compressed, filter, hnsw
from rankfold.index.exact import Exact
from rankfold.index.kind import SavableIndex
from rankfold.types import Interactions, TopK, from_pairs

Build = Callable[[Tensor], SavableIndex]


def make(kind: str, candidates: Tensor, target: float = 0.5) -> SavableIndex:
    """An index tuned on some of the candidates."""
    queries = candidates.detach()[::7].float()
    return INDEXES[kind].build(candidates, 2**30, queries=queries, target=target, seed=0)


@pytest.fixture(params=INDEXES)
def build(request: pytest.FixtureRequest) -> Build:
    return partial(make, request.param)


def pairs(hidden: Tensor) -> Interactions:
    queries, candidates = hidden.nonzero().T
    return from_pairs(queries, candidates, None, (hidden.shape[0], hidden.shape[1]))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_without_excluded_pairs(build: Build) -> None:
    result = build(torch.tensor([[1.0], [3.0], [2.0]])).search(torch.tensor([[1.0], [-1.0]]), 2)
    assert result.ids.tolist() == [[1, 2], [0, 2]]
    assert result.scores.tolist() == [[3.0, 2.0], [-1.0, -2.0]]
    assert result.ids.dtype == torch.int64


def test_vectors_in_training_can_be_searched(build: Build) -> None:
    candidates = torch.eye(3, requires_grad=True)
    result = build(candidates).search(torch.eye(3, requires_grad=True) * 2, 1)
    assert result.ids.tolist() == [[0], [1], [2]]
    assert not result.scores.requires_grad


def test_no_candidates_no_queries_no_columns(build: Build) -> None:
    assert build(torch.zeros(0, 3)).search(torch.zeros(2, 3), 5).ids.shape == (2, 0)
    assert build(torch.zeros(4, 3)).search(torch.zeros(0, 3), 5).ids.shape == (0, 4)
    assert build(torch.zeros(4, 3)).search(torch.zeros(2, 3), 0).ids.shape == (2, 0)
    assert build(torch.zeros(4, 0)).search(torch.zeros(2, 0), 3).ids.tolist() == [[0, 1, 2]] * 2
    assert build(torch.ones(1, 2)).search(torch.ones(1, 2), 9).ids.tolist() == [[0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [0, 1, 100, 5000])
def test_results_are_ordered_and_not_excluded(build: Build, dtype: torch.dtype, k: int) -> None:
    candidates, vectors = normal(1, 2000, 4).to(dtype), normal(2, 9, 4)
    hidden = normal(3, 9, 2000) > torch.linspace(-3, 3, 9)[:, None]
    hidden[0] = True
    result = build(candidates).search(vectors, k, pairs(hidden))
    assert result.ids.shape == (9, min(k, 2000))
    padded = result.ids < 0
    left = (~hidden).sum(dim=1).clamp(max=min(k, 2000))
    assert torch.equal((~padded).sum(dim=1), left)
    assert torch.equal(padded, result.scores == -torch.inf)
    assert bool((result.scores[:, :-1] >= result.scores[:, 1:]).all())
    places = result.ids.clamp(min=0)
    assert not bool((hidden.gather(1, places) & ~padded).any())
    assert all(
        len({i for i in row if i >= 0}) == n
        for row, n in zip(result.ids.tolist(), left, strict=True)
    )
    right = (vectors @ candidates.float().T).gather(1, places)
    torch.testing.assert_close(result.scores[~padded].float(), right[~padded])


@pytest.mark.parametrize("where", ["query", "candidate"])
def test_nan_is_refused(build: Build, where: str) -> None:
    good, bad = torch.zeros(2, 3), torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])
    with pytest.raises(UserError, match=f"the vector of {where} 1 contains NaN"):
        build(bad if where == "candidate" else good).search(bad, 1)


@pytest.mark.parametrize("large", [torch.inf, -torch.inf, 1e30])
def test_products_that_overflow_are_refused(build: Build, large: float) -> None:
    """Infinity minus infinity is NaN, which cannot be ranked."""
    with pytest.raises(UserError, match="inner products overflow"):
        build(torch.tensor([[1e30, -1e30]])).search(torch.tensor([[large, large]]), 1)
    with pytest.raises(UserError, match="inner products overflow"):
        build(torch.tensor([[0.0, 0.0]])).search(torch.tensor([[torch.inf, 0.0]]), 1)


def test_wrong_shapes_are_refused(build: Build) -> None:
    index = build(torch.zeros(4, 3))
    with pytest.raises(UserError, match="query vectors must have 3 columns, got 2"):
        index.search(torch.zeros(1, 2), 1)
    with pytest.raises(UserError, match=r"excluded pairs must be 1 x 4 .* got 5 x 4"):
        index.search(torch.zeros(1, 3), 1, pairs(torch.ones(5, 4) > 0))


def test_allowed_candidates_out_of_range_are_refused(build: Build) -> None:
    with pytest.raises(UserError, match="allowed candidates must be below 4, got 1 to 4"):
        build(torch.zeros(4, 3)).search(torch.zeros(1, 3), 1, None, torch.tensor([1, 4]))


# ---------------------------------------------------------------------------------- filters


def naive(vectors: Tensor, candidates: Tensor, hidden: Tensor, k: int) -> Tensor:
    """Scores of the best k that are not hidden, -inf pads."""
    scores = (vectors @ candidates.T).masked_fill(hidden, -torch.inf)
    return scores.sort(dim=1, descending=True).values[:, :k]


def clustered(seed: int, n: int) -> Tensor:
    """Vectors around 50 centres, with different norms."""
    rng = torch.Generator().manual_seed(seed)
    centres = normal(99, 50, 8)
    group = torch.randint(0, 50, (n,), generator=rng)
    return (centres[group] + 0.4 * normal(seed, n, 8)) * normal(seed + 1, n, 1).mul(0.3).exp()


@pytest.fixture(scope="module")
def indexes() -> dict[str, SavableIndex]:
    """One of each kind over the same candidates, at a recall of .9."""
    candidates, queries = clustered(1, 6000), clustered(3, 128)
    how = {"queries": queries, "target": 0.9, "seed": 0}
    return {kind: INDEXES[kind].build(candidates, 2**30, **how) for kind in INDEXES}


@pytest.fixture
def no_exact_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lists of allowed candidates are fetched as well."""
    monkeypatch.setattr(filter, "MAX_SCORED_ALLOWED", 0)


@pytest.mark.parametrize("kind", INDEXES)
@given(
    seed=st.integers(0, 10**6),
    k=st.sampled_from([1, 5, 20, 300, 3000]),
    share=st.sampled_from([0.0, 0.001, 0.02, 0.4, 0.99, 1.0]),
    near=st.booleans(),
    allowed=st.sampled_from([None, 0.0, 0.0005, 0.02, 0.3, 0.9]),
    few=st.sampled_from([0, 10_000]),
)
def test_hidden_candidates_are_never_returned_and_no_list_is_short(
    indexes: dict[str, SavableIndex],
    kind: str,
    seed: int,
    k: int,
    share: float,
    near: bool,  # noqa: FBT001
    allowed: float | None,
    few: int,
) -> None:
    candidates, vectors = clustered(1, 6000), clustered(seed + 5, 5)
    n, rng = len(candidates), torch.Generator().manual_seed(seed)
    shares = share * torch.rand(5, 1, generator=rng)
    draws = torch.rand(5, n, generator=rng)
    if near:  # the best are hidden
        draws = (vectors @ candidates.T).argsort(dim=1, descending=True).argsort(dim=1) / n
    exclude = draws < shares
    allow = None if allowed is None else (torch.rand(n, generator=rng) < allowed).nonzero()[:, 0]
    hidden = exclude.clone()
    if allow is not None:
        hidden |= torch.ones(n, dtype=torch.bool).index_fill(0, allow, value=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter, "MAX_SCORED_ALLOWED", few)
        result = indexes[kind].search(vectors, k, pairs(exclude), allow)
    assert result.ids.shape == result.scores.shape == (5, k)
    real = result.ids >= 0
    assert torch.equal(real.sum(dim=1), (~hidden).sum(dim=1).clamp(max=k))
    assert torch.equal(real, result.scores > -torch.inf)
    places = result.ids.clamp(min=0)
    assert not bool((hidden.gather(1, places) & real).any())
    assert all(len(set(row)) == len(row) for row in (r[r >= 0].tolist() for r in result.ids))
    assert bool((result.scores[:, :-1] >= result.scores[:, 1:]).all())
    scores = (vectors @ candidates.T).gather(1, places)
    torch.testing.assert_close(result.scores[real].float(), scores[real], rtol=1e-4, atol=1e-4)
    best = naive(vectors, candidates, hidden, k)
    assert bool((result.scores[real] <= best[real] + 1e-3).all())
    if kind == "exact":
        torch.testing.assert_close(result.scores[real], best[real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("filtered", ["nothing", "half", "a twentieth", "a thousandth", "the best"])
@pytest.mark.usefixtures("no_exact_scoring")
def test_recall_under_filters(indexes: dict[str, SavableIndex], kind: str, filtered: str) -> None:
    candidates, vectors = clustered(1, 6000), clustered(77, 200)
    n, rng = len(candidates), torch.Generator().manual_seed(5)
    shares = {"half": 0.5, "a twentieth": 0.05, "a thousandth": 0.001}
    hidden, allow, exclude = torch.zeros(200, n, dtype=torch.bool), None, None
    if filtered in shares:
        allow = torch.randperm(n, generator=rng)[: int(n * shares[filtered])].sort().values
        hidden[:] = True
        hidden[:, allow] = False
    elif filtered == "the best":
        best = (vectors @ candidates.T).topk(400, dim=1).indices
        hidden.scatter_(1, best, value=True)
        exclude = pairs(hidden)
    result = indexes[kind].search(vectors, 6, exclude, allow)
    last = naive(vectors, candidates, hidden, 6)[:, -1:]
    assert float((result.scores >= last - 1e-4).double().mean()) >= 0.9


def test_approximate_kinds_do_not_fall_back_to_exact_search(
    indexes: dict[str, SavableIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the tests above would only test exact search."""
    vectors, calls = clustered(7, 3), []
    best = (vectors @ clustered(1, 6000).T).topk(20, dim=1).indices.sort(dim=1).values
    exclude = Interactions(torch.arange(4) * 20, best.flatten().int(), None, 6000)
    monkeypatch.setattr(Exact, "search", lambda *a, **_: calls.append(a))
    monkeypatch.setattr(filter, "MAX_SCORED_ALLOWED", 0)
    indexes["hnsw"].search(vectors, 5)  # it finds too few for the filtered searches below
    for kind in ("inverted", "compressed"):
        indexes[kind].search(vectors, 5)
        indexes[kind].search(vectors, 5, exclude)
        indexes[kind].search(vectors, 5, None, torch.arange(0, 6000, 2))
    assert calls == []


@pytest.mark.parametrize("kind", ["hnsw", "compressed"])
def test_an_unreachable_recall_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw, "MAX_EF_SEARCH", 16)
    monkeypatch.setattr(compressed, "RESCORE_FACTORS", (1,))
    candidates, queries = normal(1, 4000, 32), normal(2, 100, 32)
    with pytest.raises(
        UserError, match=f"a {kind} index reaches a recall of at most 0.* not 0.999"
    ) as caught:
        INDEXES[kind].build(candidates, 2**30, queries=queries, target=0.999, seed=0)
    assert "inverted" in caught.value.hint


def test_the_largest_effort_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the steps before do not lead exactly to it."""
    candidates = normal(1, 3000, 8)
    exact = Exact(candidates)

    def walk(_graph: object, vectors: Tensor, depth: int, ef_search: int) -> TopK:
        result = exact.search(vectors, depth)
        return result if ef_search >= 500 else TopK(result.ids.fill_(-1), result.scores)

    monkeypatch.setattr(hnsw, "MAX_EF_SEARCH", 500)
    monkeypatch.setattr(hnsw, "walk", walk)
    faked = SimpleNamespace(ntotal=3000)
    efforts = hnsw.choose_efforts(faked, exact, candidates[:50], 0.98)
    assert efforts[0] == hnsw.Effort(16, 500, 1.0)


def test_equal_candidates_are_equally_good() -> None:
    """Any of several candidates with equal scores is a true result."""
    candidates = torch.ones(3000, 4)
    for kind in ("hnsw", "compressed"):
        index = INDEXES[kind].build(
            candidates, 2**30, queries=torch.ones(9, 4), target=0.99, seed=0
        )
        assert isinstance(result := index.search(torch.ones(2, 4), 3), TopK)
        assert result.scores.tolist() == [[4.0] * 3] * 2
