"""Sparsemax by blocks is the one by sorting, whether few scores are above the threshold or all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import sparsemax_threshold
from torch import Tensor

from rankfold.kernels import softmax, sparsemax
from rankfold.kernels.sparsemax import TOP_SCORES, sparsemax_value, sparsemax_value_plain


def vectors(seed: int, b: int, n: int, scale: float = 1.0) -> list[Tensor]:
    """Four wide; scores are about ``scale`` in size."""
    rng = torch.Generator().manual_seed(seed)
    made = (torch.randn(m, 4, generator=rng, dtype=torch.float64) for m in (b, n))
    return [(m * (scale / 2) ** 0.5).requires_grad_() for m in made]


def with_gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(1.0, len(value) + 1, dtype=value.dtype)
    return [value, *torch.autograd.grad(value, inputs, weights)]


def by_bisection(scores: list[float]) -> float:
    """The threshold by halving, the value by its formula."""
    tau = sparsemax_threshold(scores)
    return sum(s**2 - tau**2 for s in scores if s > tau) / 2 + 0.5


def test_the_reference_is_its_formula() -> None:
    p, q = (t.detach() for t in vectors(0, 5, 30))
    result = sparsemax_value_plain(p, q).tolist()
    assert result == pytest.approx([by_bisection(row) for row in (p @ q.T).tolist()])


@given(
    seed=st.integers(0, 10**6),
    b=st.integers(1, 7),
    n=st.integers(1, 4 * TOP_SCORES),
    scale=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 1e4]),
    block_bytes=st.sampled_from([1, 60, 500, None]),
)
def test_equals_the_reference(
    seed: int, b: int, n: int, scale: float, block_bytes: int | None
) -> None:
    inputs = vectors(seed, b, n, scale)
    result = with_gradients(sparsemax_value(*inputs, block_bytes), inputs)
    expected = with_gradients(sparsemax_value_plain(*inputs), inputs)
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 1e4])
def test_float32_is_exact_to_its_digits(scale: float) -> None:
    """By Newton steps, by kept scores and at huge ones; squares of those would lose all digits."""
    exact = vectors(1, 6, 20_000, scale)
    single = [t.detach().float().requires_grad_() for t in exact]
    exact = [t.detach().double().requires_grad_() for t in single]
    result = sparsemax_value(*single)
    expected = sparsemax_value_plain(*exact)
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=2e-6)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.03, 1.0]))
def test_gradients_are_those_of_finite_differences(seed: int, scale: float) -> None:
    inputs = vectors(seed, 2, TOP_SCORES + 4, scale)
    assert torch.autograd.gradcheck(lambda p, q: sparsemax_value(p, q, 64), inputs, atol=1e-4)


@pytest.mark.parametrize("n", [TOP_SCORES, TOP_SCORES + 1, 1000])
def test_equal_scores_have_equal_shares_after_two_passes(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    once = sparsemax._above
    monkeypatch.setattr(sparsemax, "_above", lambda *given: passes.append(1) or once(*given))
    p, q = torch.ones(3, 2), torch.ones(n, 2, requires_grad=True)
    value = sparsemax_value(p, q)
    value.sum().backward()
    torch.testing.assert_close(value, torch.full((3,), 2 - 1 / (2 * n) + 0.5))
    torch.testing.assert_close(q.grad, torch.full((n, 2), 3 / n))
    assert len(passes) == (0 if n == TOP_SCORES else 2)


def test_huge_scores_share_as_exactly_as_small_ones() -> None:
    """In float32, 10000 less a threshold of 1/20 is off by a percent of that."""
    p, q = torch.full((1, 1), 100.0), torch.full((20, 1), 100.0, requires_grad=True)
    sparsemax_value(p, q).sum().backward()
    torch.testing.assert_close(q.grad, torch.full((20, 1), 100.0 / 20))


def test_memory_is_bounded_when_every_score_is_above_the_threshold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores are computed only in blocks of the requested size."""
    sizes = []
    once = softmax.score_blocks

    def watched(queries, candidates, block_bytes):
        for rows, columns, scores in once(queries, candidates, block_bytes):
            sizes.append(scores.nbytes)
            yield rows, columns, scores

    monkeypatch.setattr(softmax, "score_blocks", watched)
    monkeypatch.setattr(sparsemax, "score_blocks", watched)
    p, q = torch.zeros(4, 2, requires_grad=True), torch.zeros(5000, 2, requires_grad=True)
    sparsemax_value(p, q, 2**12).sum().backward()
    assert max(sizes) <= 2**12
    assert len(sizes) >= 4 * 4 * 5000 * 4 // 2**12  # kept, two steps, gradients
