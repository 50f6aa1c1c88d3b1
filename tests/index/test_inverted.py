"""An inverted file reaches its stated recall, and never returns excluded candidates."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rankings import ROUNDING, assert_same_ranking
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn.functional import normalize

from rankfold.index import inverted
from rankfold.index import lists as index_lists
from rankfold.index.exact import Exact
from rankfold.index.inverted import Built, Inverted, build_index, faiss_scan
from rankfold.index.lists import (
    Lists,
    Probing,
    build_lists,
    choose_lists,
    choose_probings,
    group_lists,
    join_groups,
    points,
    promises,
    scan,
)
from rankfold.types import TopK, from_pairs


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def to_bytes(index: Inverted) -> bytes:
    """An index as one file."""
    return bytes(save({name: tensor.contiguous() for name, tensor in index.tensors().items()}))


def from_bytes(data: bytes, candidates: Tensor) -> Inverted:
    """The index in a file; a ValueError if it is damaged."""
    try:
        tensors = load(data)
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"the index is damaged: {error}") from error
    return Inverted.from_tensors(tensors, candidates)


def clustered(seed: int, n: int) -> Tensor:
    """Unit vectors around 100 centres."""
    rng = torch.Generator().manual_seed(seed)
    centres = normalize(normal(99, 100, 16))
    return normalize(
        centres[torch.randint(0, 100, (n,), generator=rng)] + normal(seed, n, 16) * 0.15
    )


def skewed(seed: int, n: int) -> Tensor:
    """Columns of falling size, log-normal norms."""
    return normal(seed, n, 16) / torch.arange(1, 17) * normal(seed + 1, n, 1).mul(0.7).exp()


def few_lists(
    candidates: Tensor, n_lists: int, n_groups: int = 1, *, depth: int = 64, budget: int = 2**30
) -> Inverted:
    """An index that reads ``n`` lists, in half of the groups, whatever its recall."""
    lists = build_lists(candidates, 2**30, seed=0)
    groups = join_groups(lists, torch.arange(len(lists.spreads)) % n_groups)
    taken, compared = min(n_lists, len(lists.spreads)), (len(groups.spreads) + 1) // 2
    probing = Probing(depth, taken, 1.0, 0.5, 0.0, compared)
    return Inverted(candidates, budget, built=Built(lists, groups, [probing]))


def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lists are grouped as well."""
    monkeypatch.setattr(index_lists, "MAX_CENTRES_COMPARED", 16)


def recall(result: TopK, right: TopK) -> float:
    return float((result.ids.unsqueeze(2) == right.ids.unsqueeze(1)).any(dim=1).double().mean())


# ---------------------------------------------------------------------------------- recall


@pytest.mark.parametrize("target", [0.8, 0.95])
@pytest.mark.parametrize("draw", [clustered, skewed])
@pytest.mark.parametrize("k", [10, 100])
def test_new_queries_reach_the_target(draw: object, k: int, target: float) -> None:
    assert callable(draw)
    candidates, queries = draw(1, 20_000), draw(3, 1000)
    index = Inverted(candidates, queries=queries[:500], target=target)
    assert target <= index.recall < 1
    used = next(p for p in index.built.probings if p.depth >= k)
    assert used.share < 0.1
    result, right = (i.search(queries[500:], k) for i in (index, Exact(candidates)))
    assert target <= recall(result, right) < 1


@pytest.mark.parametrize("few", [16, 10**6])
def test_predicted_recall_equals_measured_recall(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """It is computed from the ranks of lists; compare it with a search of the same queries."""
    monkeypatch.setattr(index_lists, "MAX_CENTRES_COMPARED", few)
    candidates, queries = skewed(1, 5000), skewed(3, 200)
    lists, right = build_lists(candidates, 2**30, 0), Exact(candidates).search(queries, 32)
    groups = group_lists(lists, 2**30)
    [probing] = choose_probings(lists, groups, queries, right.ids, [32], 0.9)
    assert (probing.groups < len(groups.spreads)) == (few == 16)
    read_points = partial(scan, points(lists), groups)
    taken = choose_lists(lists, groups, queries, probing, read_points)
    result = TopK(*scan(candidates, lists, queries, taken, 32))
    assert recall(result, right) == pytest.approx(probing.recall, abs=1e-6)
    read = lists.offsets.diff()[taken].where(taken >= 0, 0).sum(dim=1).double().mean() / 5000
    assert float(read) == pytest.approx(probing.share)


def test_promise_matches_the_formula() -> None:
    offsets, ids = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2])
    lists = Lists(torch.tensor([[1.0, 0], [0, 2.0]]), torch.tensor([0.5, 3.0]), offsets, ids)
    result = promises(lists, torch.tensor([[3.0, 4.0]]), 2.0)
    assert result.tolist() == [[3 * 1 + 2 * 5 * 0.5, 4 * 2 + 2 * 5 * 3.0]]


def test_lists_hold_every_candidate_and_their_moments() -> None:
    candidates = skewed(5, 3000)
    lists = build_lists(candidates, 2**16, seed=1)
    assert sorted(lists.ids.tolist()) == [*range(3000)]
    for place in range(0, len(lists.spreads), 20):
        ids = lists.ids[lists.offsets[place] : lists.offsets[place + 1]]
        assert ids.tolist() == sorted(ids.tolist()) != []
        torch.testing.assert_close(lists.centres[place], candidates[ids].mean(dim=0))
        squares = (candidates[ids] - lists.centres[place]).square().mean()
        assert float(lists.spreads[place]) == pytest.approx(math.sqrt(squares), abs=1e-3)


def test_norms_that_differ_need_the_spread() -> None:
    """Why the spread is part of a promise."""
    candidates, queries = skewed(1, 20_000), skewed(3, 256)
    lists, right = build_lists(candidates, 2**30, 0), Exact(candidates).search(queries, 64)
    groups = group_lists(lists, 2**30)
    [probing] = choose_probings(lists, groups, queries, right.ids, [64], 0.95)
    assert probing.slack > 0


def test_unstructured_vectors_are_searched_exactly() -> None:
    """Nearly all lists would have to be read."""
    candidates, queries = normal(1, 3000, 64), normal(2, 20, 64)
    index = Inverted(candidates)
    assert index.recall == 1
    assert_same_ranking(index.search(queries, 50), Exact(candidates).search(queries, 51))


def test_few_candidates_are_searched_exactly() -> None:
    assert isinstance(build_index(torch.zeros(inverted.MIN_CANDIDATES - 1, 1)), Exact)
    assert isinstance(build_index(normal(1, inverted.MIN_CANDIDATES, 2)), Inverted)


def test_lists_are_only_used_on_a_cpu() -> None:
    assert inverted.lists_are_faster(torch.zeros(inverted.MIN_CANDIDATES, 1))
    assert not inverted.lists_are_faster(torch.zeros(inverted.MIN_CANDIDATES, 1, device="meta"))


# ---------------------------------------------------------------------------------- results


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 400),
    k=st.integers(0, 70),
    n_lists=st.integers(1, 40),
    n_groups=st.integers(1, 20),
    share=st.sampled_from([0.0, 0.03, 0.3, 1.0]),
    budget=st.sampled_from([1, 50_000, 2**30]),
)
def test_excluded_candidates_are_never_returned_and_no_list_is_short(
    seed: int, n: int, k: int, n_lists: int, n_groups: int, share: float, budget: int
) -> None:
    candidates, vectors = normal(seed, n, 3).round(), normal(seed + 1, 6, 3).round()
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.rand(6, n, generator=rng) < share * torch.rand(6, 1, generator=rng) * 2
    exclude = from_pairs(*hidden.nonzero().T, None, (6, n))
    result = few_lists(candidates, n_lists, n_groups, budget=budget).search(vectors, k, exclude)
    scores = (vectors @ candidates.T).masked_fill(hidden, -torch.inf)
    left = (~hidden).sum(dim=1).clamp(max=k).tolist()
    for row, ids in enumerate(result.ids.tolist()):
        kept, pads = ids[: left[row]], ids[left[row] :]
        assert set(pads) <= {-1}
        assert len(set(kept)) == left[row]
        assert not hidden[row, kept].any()
        assert kept == sorted(kept, key=lambda c, row=row: (-float(scores[row, c]), c))
        assert torch.equal(result.scores[row, : left[row]], scores[row, kept])


def test_probing_all_lists_is_exact() -> None:
    candidates, vectors = skewed(1, 3000).round(decimals=1), skewed(3, 50)
    index, exclude = few_lists(candidates, 10**6), torch.rand(50, 3000) < 0.01
    pairs = from_pairs(*exclude.nonzero().T, None, (50, 3000))
    result, right = index.search(vectors, 20, pairs), Exact(candidates).search(vectors, 40, pairs)
    assert_same_ranking(result, right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_faiss_reads_the_lists_as_torch_does(dtype: torch.dtype) -> None:
    candidates, queries = skewed(1, 2000).to(dtype), skewed(3, 40)
    lists = build_lists(candidates, 2**30, seed=0)
    taken = promises(lists, queries, 1.0).topk(3, dim=1).indices
    reference = TopK(*scan(candidates, lists, queries, taken, 80))
    ids, scores = faiss_scan(inverted._fill(candidates, lists, dtype), queries, taken, 60)
    assert bool((ids < 0).any())
    # some processors round queries to the type of the candidates
    fast = TopK(ids, scores.masked_fill(ids < 0, -torch.inf))
    assert_same_ranking(fast, reference, ROUNDING[dtype])
    own = (candidates[ids.clamp(min=0)].float() * queries[:, None]).sum(dim=2)
    own = TopK(ids, own.masked_fill(ids < 0, -torch.inf))
    assert_same_ranking(own, reference, ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_widths_that_faiss_reads_slowly_are_padded(dtype: torch.dtype) -> None:
    """Decoding one column at a time instead of 16 takes six times as long."""
    candidates, queries = normal(1, 2000, 37).to(dtype), normal(3, 40, 37)
    lists = build_lists(candidates, 2**30, seed=0)
    taken = promises(lists, queries, 1.0).topk(3, dim=1).indices
    halves = torch.float16 if dtype == torch.float32 else dtype
    coded = inverted._fill(candidates, lists, halves)
    assert coded.d == 48
    result = inverted.scan_and_rescore(candidates, coded, queries, taken, 10)
    assert_same_ranking(result, TopK(*scan(candidates, lists, queries, taken, 20)))


def test_plain_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other devices."""
    in_groups(monkeypatch)
    candidates, queries = clustered(1, 4000), clustered(2, 100)
    index = Inverted(candidates, 2**20)
    lists, groups, probings = index.built
    assert probings[1].groups < len(groups.spreads)
    fast = index.search(queries, 30)
    monkeypatch.setattr(index, "_scan", partial(scan, candidates, lists))
    monkeypatch.setattr(index, "_scan_points", partial(scan, points(lists), groups))
    assert_same_ranking(fast, index.search(queries, 30))


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_half_precision_works_for_any_scale(size: float) -> None:
    """Lists hold half precision, in which 1e9 is infinite and 1e-9 is 0."""
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    usual, scaled = Inverted(candidates), Inverted(candidates * size)
    right_ids = Exact(candidates).search(queries, 20)
    expected, actual = usual.search(queries, 20), scaled.search(queries, 20)
    # rounding may make other lists, so recall is compared, not ids
    assert recall(actual, right_ids) == pytest.approx(recall(expected, right_ids), abs=0.02)
    right = (candidates[actual.ids] * queries[:, None]).sum(dim=2) * size
    torch.testing.assert_close(actual.scores, right, rtol=1e-4, atol=1e-5 * size)


def test_one_long_vector_does_not_cost_the_others_precision() -> None:
    """Halves range from 6e-8 to 65,504: with a largest entry of 1 the others would become 0."""
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    usual = Inverted(candidates)
    candidates[0] *= 1e8
    index = Inverted(candidates, built=usual.built)
    same = index.search(queries, 20).ids[:, :, None] == usual.search(queries, 20).ids[:, None]
    assert same.any(dim=2).double().mean() > 0.94  # one in 20 may be the long one


def test_equal_seeds_give_equal_bits() -> None:
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    one, two, other = (Inverted(candidates, seed=seed) for seed in (4, 4, 5))
    assert to_bytes(one) == to_bytes(two) != to_bytes(other)
    assert all(
        torch.equal(*p) for p in zip(one.search(queries, 9), two.search(queries, 9), strict=True)
    )


# ---------------------------------------------------------------------------------- on disk


def test_round_trip_is_exact() -> None:
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    index = Inverted(candidates)
    assert index.built.probings[0].groups < len(index.built.groups.spreads)
    data = to_bytes(index)
    again = from_bytes(data, candidates)
    assert to_bytes(again) == data
    assert again.recall == index.recall < 1
    assert len(data) < candidates.numel() * 4 / 4
    results = zip(again.search(queries, 20), index.search(queries, 20), strict=True)
    assert all(torch.equal(*pair) for pair in results)


@pytest.mark.parametrize("n", [10, 100])
def test_an_old_index_without_groups_compares_all_lists(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    candidates, queries = clustered(1, 3000), clustered(2, 50)
    new = Inverted(candidates)  # few lists: one group
    tensors = new.tensors()
    del tensors["groups"]
    in_groups(monkeypatch)
    old = Inverted.from_tensors({**tensors, "probings": tensors["probings"][:, :5]}, candidates)
    assert_same_ranking(old.search(queries, n), new.search(queries, n))
    assert to_bytes(old) == to_bytes(new)


@pytest.mark.parametrize("n", [0, 1])
def test_round_trip_of_very_few_candidates(n: int) -> None:
    again = from_bytes(to_bytes(Inverted(torch.ones(n, 2))), torch.ones(n, 2))
    assert again.search(torch.ones(1, 2), 3).ids.tolist() == [[0][:n]]


@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    candidates = clustered(1, 300)
    whole = to_bytes(Inverted(candidates))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match="the index"):
        from_bytes(whole[:cut], candidates)
    place, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    try:
        index = from_bytes(whole[:place] + bytes([value]) + whole[place + 1 :], candidates)
    except ValueError:
        return
    ids = index.search(clustered(2, 3), 20).ids
    assert all(len(set(row)) == 20 and set(row) <= {*range(300)} for row in ids.tolist())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ids", lambda t: t.clamp(max=298), "must hold every candidate once"),
        ("ids", lambda t: t[1:].clone(), "ids must be"),
        ("ids", lambda t: t.float(), "ids must be"),
        ("offsets", lambda t: t.flip(0), "must cover 300"),
        ("offsets", lambda t: t * 2, "must cover 300"),
        ("centres", lambda t: t[:, 1:].clone(), "centres must be"),
        ("centres", lambda t: t * torch.nan, "must be finite"),
        ("spreads", lambda t: t[1:].clone(), "must be"),
        ("groups", lambda t: t - 1, "group numbers must be from 0"),
        ("groups", lambda t: t + 1, "must be consecutive"),
        ("groups", lambda t: t[1:].clone(), "groups must be"),
        ("groups", lambda t: t.float(), "groups must be"),
        ("probings", lambda t: t + torch.tensor([0, 0, 0, 0, 0, 1]), "must compare at most"),
        ("probings", lambda t: t * 100, "must read at most"),
        ("probings", lambda t: t * torch.nan, "must be finite"),
        ("probings", lambda t: t[0].clone(), "probings must be"),
    ],
)
def test_inconsistent_parts_are_refused(name: str, change: object, message: str) -> None:
    assert callable(change)
    candidates = clustered(1, 300)
    tensors = load(to_bytes(Inverted(candidates)))
    with pytest.raises(ValueError, match=message):
        from_bytes(save({**tensors, name: change(tensors[name])}), candidates)
    del tensors[name]
    message = "probings must be" if name == "groups" else f"the index has no '{name}'"
    with pytest.raises(ValueError, match=message):
        from_bytes(save(tensors), candidates)


def test_other_candidates_are_refused() -> None:
    data = to_bytes(Inverted(clustered(1, 300)))
    with pytest.raises(ValueError, match="ids must be"):
        from_bytes(data, clustered(1, 301))
    with pytest.raises(ValueError, match="centres must be"):
        from_bytes(data, clustered(1, 300)[:, 1:])
