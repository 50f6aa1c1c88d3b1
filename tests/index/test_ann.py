"""Approximate search finds what it says it does, and never what is excluded."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rankings import ROUNDING, assert_same_ranking
from safetensors.torch import load, save
from torch import Tensor
from torch.nn.functional import normalize

from rankfold.index import ann, inverted
from rankfold.index.ann import Approximate, Built, build_index, faiss_scan
from rankfold.index.exact import Exact
from rankfold.index.inverted import (
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
) -> Approximate:
    """An index that looks into so many lists, in half of so many groups, however bad that is."""
    lists = build_lists(candidates, 2**30, seed=0)
    groups = join_groups(lists, torch.arange(len(lists.spreads)) % n_groups)
    taken, compared = min(n_lists, len(lists.spreads)), (len(groups.spreads) + 1) // 2
    probing = Probing(depth, taken, 1.0, 0.5, 0.0, compared)
    return Approximate(candidates, budget, built=Built(lists, groups, [probing]))


def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few lists."""
    monkeypatch.setattr(inverted, "FEW", 16)


def recall(found: TopK, right: TopK) -> float:
    return float((found.ids.unsqueeze(2) == right.ids.unsqueeze(1)).any(dim=1).double().mean())


# ---------------------------------------------------------------------------------- recall


@pytest.mark.parametrize("target", [0.8, 0.95])
@pytest.mark.parametrize("draw", [clustered, skewed])
@pytest.mark.parametrize("k", [10, 100])
def test_new_queries_reach_the_target(draw: object, k: int, target: float) -> None:
    assert callable(draw)
    candidates, queries = draw(1, 20_000), draw(3, 1000)
    index = Approximate(candidates, queries=queries[:500], target=target)
    assert target <= index.recall < 1
    used = next(p for p in index.built.probings if p.depth >= k)
    assert used.share < 0.1
    found, right = (i.search(queries[500:], k) for i in (index, Exact(candidates)))
    assert target <= recall(found, right) < 1


@pytest.mark.parametrize("few", [16, 10**6])
def test_recall_is_what_searching_finds(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The rank of lists, from which it is computed, against a search of the same queries."""
    monkeypatch.setattr(inverted, "FEW", few)
    candidates, queries = skewed(1, 5000), skewed(3, 200)
    lists, right = build_lists(candidates, 2**30, 0), Exact(candidates).search(queries, 32)
    groups = group_lists(lists, 2**30)
    [probing] = choose_probings(lists, groups, queries, right.ids, [32], 0.9)
    assert (probing.groups < len(groups.spreads)) == (few == 16)
    read_points = partial(scan, points(lists), groups)
    taken = choose_lists(lists, groups, queries, probing, read_points)
    found = TopK(*scan(candidates, lists, queries, taken, 32))
    assert recall(found, right) == pytest.approx(probing.recall, abs=1e-6)
    read = lists.offsets.diff()[taken].where(taken >= 0, 0).sum(dim=1).double().mean() / 5000
    assert float(read) == pytest.approx(probing.share)


def test_promise_is_the_written_formula() -> None:
    offsets, ids = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2])
    lists = Lists(torch.tensor([[1.0, 0], [0, 2.0]]), torch.tensor([0.5, 3.0]), offsets, ids)
    found = promises(lists, torch.tensor([[3.0, 4.0]]), 2.0)
    assert found.tolist() == [[3 * 1 + 2 * 5 * 0.5, 4 * 2 + 2 * 5 * 3.0]]


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
    """Why promises are not those of the mean alone."""
    candidates, queries = skewed(1, 20_000), skewed(3, 256)
    lists, right = build_lists(candidates, 2**30, 0), Exact(candidates).search(queries, 64)
    groups = group_lists(lists, 2**30)
    [probing] = choose_probings(lists, groups, queries, right.ids, [64], 0.95)
    assert probing.slack > 0


def test_hopeless_vectors_are_searched_exactly() -> None:
    """Without any structure nearly all lists would have to be read."""
    candidates, queries = normal(1, 3000, 64), normal(2, 20, 64)
    index = Approximate(candidates)
    assert index.recall == 1
    assert_same_ranking(index.search(queries, 50), Exact(candidates).search(queries, 51))


def test_few_candidates_are_searched_exactly() -> None:
    assert isinstance(build_index(torch.zeros(ann.SMALL - 1, 1)), Exact)
    assert isinstance(build_index(normal(1, ann.SMALL, 2)), Approximate)
    assert isinstance(build_index(normal(1, ann.SMALL, 2), target=1.0), Exact)


def test_lists_pay_on_a_cpu_alone() -> None:
    assert ann.lists_pay(torch.zeros(ann.SMALL, 1))
    assert not ann.lists_pay(torch.zeros(ann.SMALL, 1, device="meta"))


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
def test_nothing_excluded_is_returned_and_nothing_is_short(
    seed: int, n: int, k: int, n_lists: int, n_groups: int, share: float, budget: int
) -> None:
    candidates, vectors = normal(seed, n, 3).round(), normal(seed + 1, 6, 3).round()
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.rand(6, n, generator=rng) < share * torch.rand(6, 1, generator=rng) * 2
    exclude = from_pairs(*hidden.nonzero().T, None, (6, n))
    found = few_lists(candidates, n_lists, n_groups, budget=budget).search(vectors, k, exclude)
    scores = (vectors @ candidates.T).masked_fill(hidden, -torch.inf)
    left = (~hidden).sum(dim=1).clamp(max=k).tolist()
    for row, ids in enumerate(found.ids.tolist()):
        kept, pads = ids[: left[row]], ids[left[row] :]
        assert set(pads) <= {-1}
        assert len(set(kept)) == left[row]
        assert not hidden[row, kept].any()
        assert kept == sorted(kept, key=lambda c, row=row: (-float(scores[row, c]), c))
        assert torch.equal(found.scores[row, : left[row]], scores[row, kept])


def test_all_lists_are_exact_search() -> None:
    candidates, vectors = skewed(1, 3000).round(decimals=1), skewed(3, 50)
    index, exclude = few_lists(candidates, 10**6), torch.rand(50, 3000) < 0.01
    pairs = from_pairs(*exclude.nonzero().T, None, (50, 3000))
    found, right = index.search(vectors, 20, pairs), Exact(candidates).search(vectors, 40, pairs)
    assert_same_ranking(found, right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_faiss_reads_the_lists_as_torch_does(dtype: torch.dtype) -> None:
    candidates, queries = skewed(1, 2000).to(dtype), skewed(3, 40)
    lists = build_lists(candidates, 2**30, seed=0)
    taken = promises(lists, queries, 1.0).topk(3, dim=1).indices
    reference = TopK(*scan(candidates, lists, queries, taken, 80))
    ids, scores = faiss_scan(ann._fill(candidates, lists, dtype), queries, taken, 60)
    assert bool((ids < 0).any())
    # some processors round queries to the type of the candidates
    fast = TopK(ids, scores.masked_fill(ids < 0, -torch.inf))
    assert_same_ranking(fast, reference, ROUNDING[dtype])
    own = (candidates[ids.clamp(min=0)].float() * queries[:, None]).sum(dim=2)
    own = TopK(ids, own.masked_fill(ids < 0, -torch.inf))
    assert_same_ranking(own, reference, ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_widths_that_faiss_reads_slowly_are_filled_up(dtype: torch.dtype) -> None:
    """One by one instead of sixteen at once, a search took six times as long."""
    candidates, queries = normal(1, 2000, 37).to(dtype), normal(3, 40, 37)
    lists = build_lists(candidates, 2**30, seed=0)
    taken = promises(lists, queries, 1.0).topk(3, dim=1).indices
    halves = torch.float16 if dtype == torch.float32 else dtype
    coded = ann._fill(candidates, lists, halves)
    assert coded.d == 48
    found = ann.read_again(candidates, coded, queries, taken, 10)
    assert_same_ranking(found, TopK(*scan(candidates, lists, queries, taken, 20)))


def test_plain_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another device."""
    in_groups(monkeypatch)
    candidates, queries = clustered(1, 4000), clustered(2, 100)
    index = Approximate(candidates, 2**20)
    lists, groups, probings = index.built
    assert probings[1].groups < len(groups.spreads)
    fast = index.search(queries, 30)
    monkeypatch.setattr(index, "_scan", partial(scan, candidates, lists))
    monkeypatch.setattr(index, "_scan_points", partial(scan, points(lists), groups))
    assert_same_ranking(fast, index.search(queries, 30))


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_rounded_lists_have_room_for_any_size(size: float) -> None:
    """They are of half precision, in which 1e9 is infinite and 1e-9 is 0."""
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    usual, scaled = Approximate(candidates), Approximate(candidates * size)
    expected, found = usual.search(queries, 20), scaled.search(queries, 20)
    assert (found.ids == expected.ids).double().mean() > 0.99  # the lists may differ, by rounding
    right = (candidates[found.ids] * queries[:, None]).sum(dim=2) * size
    torch.testing.assert_close(found.scores, right, rtol=1e-4, atol=1e-5 * size)


def test_a_vector_much_longer_than_the_others_takes_no_precision_from_them() -> None:
    """Halves reach from 6e-8 to 65,504: were the largest entry 1, the others would be 0."""
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    usual = Approximate(candidates)
    candidates[0] *= 1e8
    index = Approximate(candidates, built=usual.built)
    same = index.search(queries, 20).ids[:, :, None] == usual.search(queries, 20).ids[:, None]
    assert same.any(dim=2).double().mean() > 0.94  # one in 20 may be the long one


def test_equal_seeds_give_equal_bits() -> None:
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    one, two, other = (Approximate(candidates, seed=seed) for seed in (4, 4, 5))
    assert one.to_bytes() == two.to_bytes() != other.to_bytes()
    assert all(
        torch.equal(*p) for p in zip(one.search(queries, 9), two.search(queries, 9), strict=True)
    )


# ---------------------------------------------------------------------------------- on disk


def test_round_trip_is_exact() -> None:
    candidates, queries = skewed(1, 20_000), skewed(3, 100)
    index = Approximate(candidates)
    assert index.built.probings[0].groups < len(index.built.groups.spreads)
    data = index.to_bytes()
    again = Approximate.from_bytes(data, candidates)
    assert again.to_bytes() == data
    assert again.recall == index.recall < 1
    assert len(data) < candidates.numel() * 4 / 4
    results = zip(again.search(queries, 20), index.search(queries, 20), strict=True)
    assert all(torch.equal(*pair) for pair in results)


@pytest.mark.parametrize("n", [10, 100])
def test_an_index_from_before_groups_compares_all_lists(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    candidates, queries = clustered(1, 3000), clustered(2, 50)
    new = Approximate(candidates)  # few lists: one group
    tensors = new.tensors()
    del tensors["groups"]
    in_groups(monkeypatch)
    old = Approximate.from_tensors({**tensors, "probings": tensors["probings"][:, :5]}, candidates)
    assert torch.equal(old.search(queries, n).ids, new.search(queries, n).ids)
    assert old.to_bytes() == new.to_bytes()


@pytest.mark.parametrize("n", [0, 1])
def test_round_trip_of_next_to_nothing(n: int) -> None:
    again = Approximate.from_bytes(Approximate(torch.ones(n, 2)).to_bytes(), torch.ones(n, 2))
    assert again.search(torch.ones(1, 2), 3).ids.tolist() == [[0][:n]]


@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    candidates = clustered(1, 300)
    whole = Approximate(candidates).to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match="the index"):
        Approximate.from_bytes(whole[:cut], candidates)
    place, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    try:
        index = Approximate.from_bytes(
            whole[:place] + bytes([value]) + whole[place + 1 :], candidates
        )
    except ValueError:
        return
    ids = index.search(clustered(2, 3), 20).ids
    assert all(len(set(row)) == 20 and set(row) <= {*range(300)} for row in ids.tolist())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ids", lambda t: t.clamp(max=298), "does not hold every candidate once"),
        ("ids", lambda t: t[1:].clone(), "ids are"),
        ("ids", lambda t: t.float(), "ids are"),
        ("offsets", lambda t: t.flip(0), "do not cover 300"),
        ("offsets", lambda t: t * 2, "do not cover 300"),
        ("centres", lambda t: t[:, 1:].clone(), "centres are"),
        ("centres", lambda t: t * torch.nan, "not all finite"),
        ("spreads", lambda t: t[1:].clone(), "are"),
        ("groups", lambda t: t - 1, "groups are not numbers below"),
        ("groups", lambda t: t + 1, "not numbered one after the other"),
        ("groups", lambda t: t[1:].clone(), "groups are"),
        ("groups", lambda t: t.float(), "groups are"),
        ("probings", lambda t: t + torch.tensor([0, 0, 0, 0, 0, 1]), "groups that are not among"),
        ("probings", lambda t: t * 100, "lists that are not among"),
        ("probings", lambda t: t * torch.nan, "not all finite"),
        ("probings", lambda t: t[0].clone(), "probings are"),
    ],
)
def test_parts_that_do_not_fit_are_refused(name: str, change: object, message: str) -> None:
    assert callable(change)
    candidates = clustered(1, 300)
    tensors = load(Approximate(candidates).to_bytes())
    with pytest.raises(ValueError, match=message):
        Approximate.from_bytes(save({**tensors, name: change(tensors[name])}), candidates)
    del tensors[name]
    message = "probings are" if name == "groups" else f"the index has no '{name}'"
    with pytest.raises(ValueError, match=message):
        Approximate.from_bytes(save(tensors), candidates)


def test_other_candidates_are_refused() -> None:
    data = Approximate(clustered(1, 300)).to_bytes()
    with pytest.raises(ValueError, match="ids are"):
        Approximate.from_bytes(data, clustered(1, 301))
    with pytest.raises(ValueError, match="centres are"):
        Approximate.from_bytes(data, clustered(1, 300)[:, 1:])
