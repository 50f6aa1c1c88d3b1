from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.errors import UserError
from rankfold.losses.low_fpr import exact_ranks
from rankfold.samplers import cba_cache as module
from rankfold.samplers.cba_cache import (
    CrossBatchCache,
    counts_before,
    direct_ranks,
    scores_of,
    sort_ascending,
)


def vectors_of(n: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def batch(cache: CrossBatchCache, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of n distinct rows, or of all rows if there are fewer."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(cache.grades), generator=rng)[:n]
    return vectors_of(len(rows), cache.vectors.shape[1], seed), rows


def queues_of(
    shares: list[float] | torch.Tensor, size: int, width: int, counts: list[int] | None = None
) -> CrossBatchCache:
    """A cache of grades with so many rows; None: more rows than places."""
    counts = [20 * size] * len(shares) if counts is None else counts
    grades = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    mixed = grades[torch.randperm(len(grades), generator=torch.Generator().manual_seed(1))]
    return CrossBatchCache(mixed, torch.as_tensor(shares), size, width)


def entries_of(cache: CrossBatchCache, grade: int) -> torch.Tensor:
    """The cached vectors of a grade."""
    mine = (cache.owners == grade) & cache.taken
    return cache.vectors[: len(mine)][mine]


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.lists(st.integers(0, 12), max_size=6),
    st.integers(0, 99),
)
def test_the_cache_holds_the_latest_of_each_grade(
    size: int, counts: list[int], batches: list[int], seed: int
) -> None:
    """Every row, if all fit. Also for a larger batch, and for a batch without some grade."""
    cache = queues_of(torch.ones(3) / 3, size, 2, counts)
    latest: list[dict[int, tuple[float, ...]]] = [{}, {}, {}]
    came = [deque(maxlen=size) for _ in range(3)]
    for number, n in enumerate(batches):
        vectors, rows = batch(cache, n, seed + number)
        cache.push(vectors, rows)
        cache.ranks(vectors, torch.ones(2), by_likeness=False)  # which may keep weights
        for vector, row in zip(vectors.tolist(), rows.tolist(), strict=True):
            grade = int(cache.grades[row])
            latest[grade][row] = tuple(vector)
            came[grade].append(tuple(vector))
    for grade in range(3):
        expected = latest[grade].values() if counts[grade] <= size else came[grade]
        assert sorted(map(tuple, entries_of(cache, grade).tolist())) == sorted(expected)


def brute(cache: CrossBatchCache, score: float, head: torch.Tensor, k: int) -> float:
    """The weighted share of the entries of grades up to k above a score."""
    total = higher = 0.0
    for grade in range(k + 1):
        entries = entries_of(cache, grade)
        for vector in entries:
            weight = float(cache.shares[grade]) / len(entries)
            total += weight
            higher += weight * (score < float(vector @ head))
    return higher / total if total else 0.0


SOME = [0.6, 0.3, 0.1]  # shares
FEW = [50, 3, 50]  # rows


@pytest.mark.parametrize("seen", [0, 3, 40])
def test_direct_ranks_are_weighted_shares(seen: int) -> None:
    cache = queues_of(SOME, 8, 4, FEW)
    cache.push(*batch(cache, seen, 0))
    vectors, head = vectors_of(5, 4, 1), vectors_of(1, 4, 2)[0]
    result = cache.ranks(vectors, head, by_likeness=False)
    expected = [[brute(cache, float(v @ head), head, k) for v in vectors] for k in range(2)]
    torch.testing.assert_close(result, torch.tensor(expected))


def test_ranks_by_similarity_are_means_over_entries() -> None:
    cache = queues_of(SOME, 8, 4, FEW)
    cache.push(*batch(cache, 40, 0))
    vectors, head = vectors_of(5, 4, 1), vectors_of(1, 4, 2)[0]
    result = cache.ranks(vectors, head, by_likeness=True)
    for k in range(2):
        entries = torch.cat([entries_of(cache, g) for g in range(k + 1)])
        own = torch.tensor([brute(cache, float(e @ head), head, k) for e in entries])
        cosines = torch.nn.functional.cosine_similarity(vectors[:, None], entries[None], dim=2)
        torch.testing.assert_close(result[k], (40 * cosines).softmax(dim=1) @ own)


def by_definition(
    cache: CrossBatchCache, vectors: torch.Tensor, head: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ranks by the formulas, in double precision, one threshold at a time.

    By likeness, and direct ones.
    """
    likely, direct, doubled = [], [], vectors.double()
    for k in range(len(cache.shares) - 1):
        parts, shares = [entries_of(cache, g) for g in range(k + 1)], cache.shares.double()
        entries, lengths = torch.cat(parts).double(), [len(part) for part in parts]
        weights = torch.cat([(shares[g] / max(n, 1)).repeat(n) for g, n in enumerate(lengths)])
        weights = weights / weights.sum().clamp(min=1e-30)
        scores = entries @ head.double()
        cosines = torch.nn.functional.cosine_similarity(doubled[:, None], entries[None], dim=2)
        own = (scores[:, None] < scores).double() @ weights
        likely.append((40 * cosines).softmax(dim=1) @ own)
        direct.append(((doubled @ head.double())[:, None] < scores).double() @ weights)
    return torch.stack(likely), torch.stack(direct)


def stepped(vectors: torch.Tensor, step: float) -> torch.Tensor:
    """Multiples of a step: a head of whole numbers scores them without rounding.

    Of wide steps many scores are equal.
    """
    return (vectors / step).round() * step


def whole_head(width: int, seed: int) -> torch.Tensor:
    return torch.randint(-5, 6, (width,), generator=torch.Generator().manual_seed(seed)).float()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 40),
    st.lists(st.integers(0, 90), min_size=2, max_size=12),
    st.integers(1, 200),
    st.sampled_from([1 / 64, 0.5]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10_000),
)
def test_ranks_match_the_formulas(
    size: int, counts: list[int], seen: int, step: float, dtype: torch.dtype, seed: int
) -> None:
    """Of cache that are empty, filled in part, and full; with vectors of 0 and equal scores.

    Also with more thresholds than the width, which are computed in blocks.
    """
    rng = torch.Generator().manual_seed(seed)
    cache = queues_of(torch.rand(len(counts), generator=rng, dtype=dtype), size, 7, counts)
    cache.vectors = cache.vectors.to(dtype)
    for number in range(3):  # weights change until all are full
        vectors, rows = batch(cache, seen, seed + number)
        cache.push(stepped(vectors, step), rows)
        vectors = stepped(vectors_of(30, 7, seed + 10 + number), step)
        vectors[0], head = 0, whole_head(7, seed + number).to(dtype)
        expected, direct = (x.to(dtype) for x in by_definition(cache, vectors, head))
        result = cache.ranks(vectors.to(dtype), head, by_likeness=True)
        torch.testing.assert_close(result, expected, atol=2e-5, rtol=0)
        result = cache.ranks(vectors.to(dtype), head, by_likeness=False)
        torch.testing.assert_close(result, direct, atol=1e-5, rtol=0)
        wanted = torch.rand(30, generator=rng) < 0.6
        some = cache.ranks(vectors.to(dtype), head, by_likeness=True, wanted=wanted)
        torch.testing.assert_close(some[:, wanted], expected[:, wanted], atol=2e-5, rtol=0)


def test_at_full_size_ranks_match_the_formulas() -> None:
    shares, counts = [0.5, 0.2, 0.15, 0.1, 0.05], [2000, 900, 300, 700, 9]
    cache, head = queues_of(shares, 512, 64, counts), whole_head(64, 2)
    vectors, rows = batch(cache, 5000, 0)
    cache.push(stepped(vectors, 1 / 64).relu(), rows)
    inputs = stepped(vectors_of(256, 64, 1), 1 / 64).relu()
    for likeness, expected in zip((True, False), by_definition(cache, inputs, head), strict=True):
        result = cache.ranks(inputs, head, by_likeness=likeness)
        torch.testing.assert_close(result, expected.float(), atol=1e-5, rtol=0)


def test_ranks_keep_full_precision_under_autocast() -> None:
    """Half precision has too few digits for 40 times a cosine, and makes ties of scores."""
    cache, head = queues_of(torch.ones(3) / 3, 64, 16), vectors_of(1, 16, 2)[0]
    cache.push(*batch(cache, 300, 0))
    vectors = vectors_of(50, 16, 1).bfloat16()
    for likeness in (True, False):
        expected = cache.ranks(vectors.float(), head, by_likeness=likeness)
        with torch.autocast("cpu", torch.bfloat16):
            result = cache.ranks(vectors, head, by_likeness=likeness)
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)


def test_loaded_weights_are_those_of_the_loaded_entries() -> None:
    full, young = (queues_of([0.7, 0.3], 4, 2) for _ in range(2))
    full.push(*batch(full, 40, 0))
    young.push(*batch(young, 1, 1))
    vectors, head = vectors_of(5, 2, 1), torch.ones(2)
    full.ranks(vectors, head, by_likeness=True)
    full.load(young.state())
    for likeness in (True, False):
        result, expected = (q.ranks(vectors, head, by_likeness=likeness) for q in (full, young))
        assert torch.equal(result, expected)


@pytest.mark.parametrize("levels", [1, 3, 10_000])
def test_counts_before_equal_a_loop(levels: int) -> None:
    scores = torch.randint(0, levels, (50,), generator=torch.Generator().manual_seed(0)).float()
    expected = [sum(other < score for other in scores.tolist()) for score in scores.tolist()]
    assert counts_before(*sort_ascending(scores)).tolist() == expected


@pytest.mark.parametrize("counts", [[40, 30, 20], [41, 7, 1]])
def test_with_all_rows_in_the_cache_ranks_are_exact(counts: list[int]) -> None:
    """At every step: a row that is pushed again takes its own place."""
    cache = queues_of(torch.tensor(counts) / sum(counts), 60, 6, counts)
    vectors, grades = vectors_of(len(cache.grades), 6, 0), cache.grades
    head = vectors_of(1, 6, 1)[0]
    expected = torch.stack([exact_ranks(vectors @ head, grades <= k) for k in range(2)])
    cache.push(vectors, torch.arange(len(vectors)))
    for number in range(4):
        _, rows = batch(cache, 17, number)
        cache.push(vectors[rows], rows)
        result = cache.ranks(vectors, head, by_likeness=False)
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("n", [1, 5, 64, 67])
def test_no_row_is_below_its_own_entry(n: int) -> None:
    """Products round all rows the same way, however many there are."""
    cache, head = queues_of(torch.ones(3) / 3, 100, 64, [101, 99, 30]), vectors_of(1, 64, 1)[0]
    for number in range(20):
        vectors, rows = batch(cache, n, number)
        cache.push(vectors, rows)
        own = torch.cat([entries_of(cache, g) for g in range(3)])
        scores, expected = (
            scores_of(cache.vectors, head)[: len(cache.owners)],
            scores_of(vectors, head),
        )
        kept = (own[:, None] == vectors).all(dim=2).nonzero()
        assert len(kept) == n
        entries = scores[cache.taken][kept[:, 0]]
        assert torch.equal(entries, expected[kept[:, 1]])


def test_ranks_by_similarity_are_exact_for_dissimilar_rows() -> None:
    cache = queues_of(torch.ones(3) / 3, 4, 12, [4, 4, 4])
    cache.push(torch.eye(12), torch.arange(12))
    head, grades = vectors_of(1, 12, 1)[0], cache.grades
    both = (cache.ranks(torch.eye(12), head, by_likeness=b) for b in (True, False))
    by_likeness, direct = both
    for k in range(2):  # negatives only: a positive has no entry
        torch.testing.assert_close(by_likeness[k][grades <= k], direct[k][grades <= k])


def test_equal_scores_are_not_above() -> None:
    scores, weights = torch.tensor([[1.0, 1.0, 2.0]]), torch.tensor([[1 / 3, 0]])
    result = direct_ranks(torch.tensor([1.0, 2.0, 0.0]), scores, weights)
    torch.testing.assert_close(result, torch.tensor([[1 / 3, 0.0, 1.0]]))


def test_no_table_of_entries_has_more_numbers_than_their_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes, before = [], module.weights_before

    def spied(*given: torch.Tensor) -> torch.Tensor:
        shapes.append(given[2].shape)
        return before(*given)

    monkeypatch.setattr(module, "weights_before", spied)
    cache = queues_of(torch.ones(50) / 50, 4, 8)
    cache.push(*batch(cache, 500, 0))
    result = cache.ranks(vectors_of(5, 8, 1), torch.ones(8), by_likeness=True)
    assert result.shape == (49, 5)
    assert sum(rows for rows, _ in shapes) == 49
    assert max(rows for rows, _ in shapes) <= 8


@pytest.mark.parametrize(("n_grades", "counts"), [(3, [9, 40_000, 40_000]), (100, [60] * 100)])
def test_memory_is_bounded_by_the_vectors_of_full_queues(n_grades: int, counts: list[int]) -> None:
    """For any number of rows and grades: a few numbers per entry besides its vector."""
    cache = queues_of(torch.ones(n_grades) / n_grades, 20, 32, counts)
    cache.push(*batch(cache, len(cache.grades), 0))
    for likeness in (True, False):
        cache.ranks(vectors_of(5, 32, 1), torch.ones(32), by_likeness=likeness)
    assert cache.final is not None
    kept = [value for value in vars(cache).values() if isinstance(value, torch.Tensor)]
    kept += [*cache.final, *(cache.fixed or ())]
    n = sum(tensor.numel() for tensor in kept if tensor is not cache.grades)
    assert n <= n_grades * 20 * (32 + 4) + 2 * n_grades**2 + 8 * n_grades + 16 * 32


def test_cached_tensors_have_no_gradient() -> None:
    cache = queues_of(torch.ones(2) / 2, 4, 3)
    cache.push(torch.randn(6, 3, requires_grad=True), torch.arange(6))
    assert not cache.vectors.requires_grad


def test_restored_state_continues_identically() -> None:
    first, second = (queues_of(torch.ones(3) / 3, 4, 2, [9, 2, 9]) for _ in range(2))
    first.push(*batch(first, 9, 0))
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    for cache in (first, second):
        cache.push(*batch(cache, 5, 1))
    for name, tensor in first.state().items():
        assert torch.equal(tensor, second.state()[name])


def test_a_state_of_other_sizes_is_refused() -> None:
    first, second = (queues_of(torch.ones(2) / 2, size, 3) for size in (4, 40))
    with pytest.raises(UserError, match="other sizes"):
        second.load(first.state())
    with pytest.raises(UserError, match="other sizes"):
        first.load({"vectors": first.vectors, "counts": first.counts})  # as it was before


def test_with_copies_every_grade_is_a_queue() -> None:
    """A grade of three rows fills its seven places with several vectors of each."""
    grades = torch.tensor([0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    cache = CrossBatchCache(grades, torch.ones(2) / 2, 7, 2, copies=True)
    latest = [deque[tuple[float, ...]](maxlen=7) for _ in range(2)]
    for seed in range(6):
        vectors, rows = batch(cache, 5 + 2 * seed, seed)
        cache.push(vectors, rows)
        for vector, row in zip(vectors.tolist(), rows.tolist(), strict=True):
            latest[int(grades[row])].append(tuple(vector))
    for grade in range(2):
        entries = sorted(map(tuple, entries_of(cache, grade).tolist()))
        assert entries == sorted(latest[grade])
        assert len(entries) == 7
