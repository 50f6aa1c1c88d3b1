from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.errors import UserError
from rankfold.losses.low_fpr import exact_ranks
from rankfold.samplers.queues import Queues, shares_above, weights_above


def rows(n: int, width: int, n_grades: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=rng), torch.randint(0, n_grades, (n,), generator=rng)


sizes_of_three = st.lists(st.integers(1, 5), min_size=3, max_size=3)


def entries_of(queues: Queues, grade: int) -> torch.Tensor:
    """What has come of a grade and is kept, by the counts."""
    before, size = sum(queues.sizes[:grade].tolist()), int(queues.sizes[grade])
    return queues.vectors[before : before + min(int(queues.counts[grade]), size)]


@settings(deadline=None)
@given(sizes_of_three, st.lists(st.integers(0, 12), max_size=6), st.integers(0, 99))
def test_queues_hold_the_latest_of_each_grade(
    sizes: list[int], batches: list[int], seed: int
) -> None:
    """Also of a batch that is larger than they are, and of one without some grade."""
    queues, expected = Queues(torch.ones(3) / 3, sizes, 2), [deque(maxlen=n) for n in sizes]
    for number, n in enumerate(batches):
        vectors, grades = rows(n, 2, 3, seed + number)
        queues.push(vectors, grades)
        for vector, grade in zip(vectors.tolist(), grades.tolist(), strict=True):
            expected[grade].append(tuple(vector))
    for grade in range(3):
        found = {tuple(v) for v in entries_of(queues, grade).tolist()}
        assert found == set(expected[grade])


def brute(queues: Queues, score: float, head: torch.Tensor, k: int) -> float:
    """The weighted share of the entries of grades up to k above a score."""
    total = higher = 0.0
    for grade in range(k + 1):
        entries = entries_of(queues, grade)
        for vector in entries:
            weight = float(queues.shares[grade]) / len(entries)
            total += weight
            higher += weight * (score < float(vector @ head))
    return higher / total if total else 0.0


@pytest.mark.parametrize("seen", [0, 3, 40])
def test_direct_ranks_are_weighted_shares(seen: int) -> None:
    queues = Queues(torch.tensor([0.6, 0.3, 0.1]), [8, 3, 8], 4)
    if seen:
        queues.push(*rows(seen, 4, 3, 0))
    vectors, _ = rows(5, 4, 3, 1)
    head = torch.randn(4, generator=torch.Generator().manual_seed(2))
    found = queues.ranks(vectors, head, by_likeness=False)
    expected = [[brute(queues, float(v @ head), head, k) for v in vectors] for k in range(2)]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_ranks_by_likeness_are_means_of_the_entries_own() -> None:
    queues = Queues(torch.tensor([0.6, 0.3, 0.1]), [8, 3, 8], 4)
    queues.push(*rows(20, 4, 3, 0))
    vectors, _ = rows(5, 4, 3, 1)
    head = torch.randn(4, generator=torch.Generator().manual_seed(2))
    found = queues.ranks(vectors, head, by_likeness=True)
    for k in range(2):
        entries = torch.cat([entries_of(queues, g) for g in range(k + 1)])
        own = torch.tensor([brute(queues, float(e @ head), head, k) for e in entries])
        cosines = torch.nn.functional.cosine_similarity(vectors[:, None], entries[None], dim=2)
        torch.testing.assert_close(found[k], (40 * cosines).softmax(dim=1) @ own)


def by_definition(queues: Queues, vectors: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Ranks by likeness as the formula has them, in double precision, a threshold at a time."""
    found = []
    for k in range(len(queues.shares) - 1):
        parts, shares = [entries_of(queues, g) for g in range(k + 1)], queues.shares.double()
        entries, lengths = torch.cat(parts).double(), [len(part) for part in parts]
        weights = torch.cat([(shares[g] / max(n, 1)).repeat(n) for g, n in enumerate(lengths)])
        scores = entries @ head.double()
        own = (scores[:, None] < scores).double() @ weights / weights.sum().clamp(min=1e-30)
        cosines = torch.nn.functional.cosine_similarity(
            vectors.double()[:, None], entries[None], dim=2
        )
        found.append((40 * cosines).softmax(dim=1) @ own)
    return torch.stack(found)


def stepped(
    n: int, width: int, n_grades: int, seed: int, step: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of multiples of a step: a head of whole numbers scores them without rounding.

    Of wide steps many scores are equal.
    """
    vectors, grades = rows(n, width, n_grades, seed)
    return (vectors / step).round() * step, grades


def whole_head(width: int, seed: int) -> torch.Tensor:
    return torch.randint(-5, 6, (width,), generator=torch.Generator().manual_seed(seed)).float()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=6),
    st.integers(1, 200),
    st.sampled_from([1 / 64, 0.5]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 10_000),
)
def test_ranks_by_likeness_are_those_of_the_formula(
    sizes: list[int], seen: int, step: float, dtype: torch.dtype, seed: int
) -> None:
    """Of queues that are empty, filled in part, and full; with vectors of 0 and equal scores."""
    rng, n_grades = torch.Generator().manual_seed(seed), len(sizes)
    queues = Queues(torch.rand(n_grades, generator=rng, dtype=dtype), sizes, 7)
    queues.vectors = queues.vectors.to(dtype)
    for number in range(3):  # weights change until all are full
        queues.push(*stepped(seen, 7, n_grades, seed + number, step))
        vectors, grades = stepped(30, 7, n_grades, seed + 10 + number, step)
        vectors[0], head = 0, whole_head(7, seed + number).to(dtype)
        expected = by_definition(queues, vectors, head).to(dtype)
        found = queues.ranks(vectors.to(dtype), head, by_likeness=True)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
        wanted = grades < n_grades - 1
        some = queues.ranks(vectors.to(dtype), head, by_likeness=True, wanted=wanted)
        torch.testing.assert_close(some[:, wanted], expected[:, wanted], atol=2e-5, rtol=0)


def test_at_full_size_ranks_by_likeness_are_those_of_the_formula() -> None:
    shares, sizes = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]), [512, 512, 300, 512, 9]
    queues, head = Queues(shares, sizes, 64), whole_head(64, 2)
    vectors, grades = stepped(5000, 64, 5, 0, 1 / 64)
    queues.push(vectors.relu(), grades)
    asked = stepped(256, 64, 5, 1, 1 / 64)[0].relu()
    found, expected = (
        queues.ranks(asked, head, by_likeness=True),
        by_definition(queues, asked, head),
    )
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=0)


def test_ranks_are_not_halved_by_autocast() -> None:
    """Half of the digits of 40 times a cosine are too few, and make scores equal that are not."""
    queues, head = Queues(torch.ones(3) / 3, [64] * 3, 16), rows(1, 16, 3, 2)[0][0]
    queues.push(*rows(300, 16, 3, 0))
    vectors = rows(50, 16, 3, 1)[0].bfloat16()
    for likeness in (True, False):
        expected = queues.ranks(vectors.float(), head, by_likeness=likeness)
        with torch.autocast("cpu", torch.bfloat16):
            found = queues.ranks(vectors, head, by_likeness=likeness)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_loaded_weights_are_those_of_the_loaded_counts() -> None:
    full, young = (Queues(torch.tensor([0.7, 0.3]), [4, 4], 2) for _ in range(2))
    full.push(*rows(40, 2, 2, 0))
    young.push(torch.ones(1, 2), torch.tensor([0]))
    vectors, head = rows(5, 2, 2, 1)[0], torch.ones(2)
    full.ranks(vectors, head, by_likeness=True)
    full.load(young.state())
    for likeness in (True, False):
        found, expected = (q.ranks(vectors, head, by_likeness=likeness) for q in (full, young))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("levels", [3, 10_000])
def test_weights_above_are_those_of_a_loop(levels: int) -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randint(0, levels, (50,), generator=rng).float()
    weights = torch.rand(2, 50, generator=rng)
    expected = torch.stack([(scores[:, None] < scores).float() @ row for row in weights])
    torch.testing.assert_close(weights_above(scores, weights), expected)


def test_with_all_rows_in_the_cache_ranks_are_exact() -> None:
    vectors, grades = rows(90, 6, 3, 0)
    head = torch.randn(6, generator=torch.Generator().manual_seed(1))
    shares = torch.bincount(grades, minlength=3) / 90
    queues = Queues(shares, [60] * 3, 6)
    queues.push(vectors, grades)
    found = queues.ranks(vectors, head, by_likeness=False)
    expected = torch.stack([exact_ranks(vectors @ head, grades <= k) for k in range(2)])
    torch.testing.assert_close(found, expected)


def test_likeness_is_exact_where_rows_are_unlike() -> None:
    grades = torch.arange(12) % 3
    queues = Queues(torch.ones(3) / 3, [4] * 3, 12)
    queues.push(torch.eye(12), grades)
    head = torch.randn(12, generator=torch.Generator().manual_seed(1))
    both = (queues.ranks(torch.eye(12), head, by_likeness=b) for b in (True, False))
    by_likeness, direct = both
    for k in range(2):  # of negatives: a positive has no entry of its own
        torch.testing.assert_close(by_likeness[k][grades <= k], direct[k][grades <= k])


def test_equal_scores_are_not_above() -> None:
    scores = torch.tensor([1.0, 1.0, 2.0])
    found = shares_above(torch.tensor([1.0, 2.0, 0.0]), scores, torch.ones(1, 3))
    torch.testing.assert_close(found, torch.tensor([[1 / 3, 0.0, 1.0]]))


def test_nothing_that_is_kept_has_a_gradient() -> None:
    queues = Queues(torch.ones(2) / 2, [4, 4], 3)
    queues.push(torch.randn(6, 3, requires_grad=True), torch.tensor([0, 1, 0, 1, 1, 0]))
    assert not queues.vectors.requires_grad


def test_goes_on_from_its_state() -> None:
    first, second = (Queues(torch.ones(3) / 3, [4, 2, 4], 2) for _ in range(2))
    first.push(*rows(9, 2, 3, 0))
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    for queues in (first, second):
        queues.push(*rows(5, 2, 3, 1))
    assert torch.equal(first.vectors, second.vectors)
    assert torch.equal(first.counts, second.counts)


def test_a_state_of_other_sizes_is_refused() -> None:
    first, second = (Queues(torch.ones(2) / 2, sizes, 3) for sizes in ([4, 4], [4, 2]))
    with pytest.raises(UserError, match="other sizes"):
        second.load(first.state())
