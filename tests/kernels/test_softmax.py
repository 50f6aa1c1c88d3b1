"""The log-sum-exp by blocks equals the plain one, with gradients, and never stores all scores."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rankfold.kernels import softmax
from rankfold.kernels.softmax import block_shape, log_sum_exp, log_sum_exp_plain, score_blocks

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def vectors(seed: int, b: int, n: int, scale: float = 1.0, dtype: torch.dtype = torch.float64):
    """Four wide; scores are about ``scale`` in size."""
    rng = torch.Generator().manual_seed(seed)
    made = [torch.randn(m, 4, generator=rng, dtype=dtype) * (scale / 2) ** 0.5 for m in (b, n)]
    return [m.requires_grad_() for m in made]


def with_gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(1.0, len(value) + 1, dtype=value.dtype, device=value.device)
    return [value, *torch.autograd.grad(value, inputs, weights)]


@given(
    seed=st.integers(0, 10**6),
    b=st.integers(1, 7),
    n=st.integers(1, 40),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e4]),
    block_bytes=st.sampled_from([1, 60, 500, None]),
)
def test_equals_the_plain_form(
    seed: int, b: int, n: int, scale: float, block_bytes: int | None
) -> None:
    inputs = vectors(seed, b, n, scale)
    result = with_gradients(log_sum_exp(*inputs, block_bytes), inputs)
    expected = with_gradients(log_sum_exp_plain(*inputs), inputs)
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), b=st.integers(1, 3), n=st.integers(1, 9))
def test_gradients_are_those_of_finite_differences(seed: int, b: int, n: int) -> None:
    assert torch.autograd.gradcheck(lambda p, q: log_sum_exp(p, q, 64), vectors(seed, b, n))


def test_more_queries_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "MAX_ROWS", 3)
    inputs = vectors(0, 8, 11)
    result = with_gradients(log_sum_exp(*inputs, 100), inputs)
    expected = with_gradients(log_sum_exp_plain(*inputs), inputs)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_float32_is_as_exact_as_the_plain_form(scale: float) -> None:
    """Also when summed over hundreds of blocks: a naive float32 sum of them is not."""
    single = vectors(0, 5, 50_000, scale, torch.float32)
    double = [t.detach().double().requires_grad_() for t in single]
    exact = with_gradients(log_sum_exp_plain(*double), double)
    plain = with_gradients(log_sum_exp_plain(*single), single)
    result = with_gradients(log_sum_exp(*single, 2000), single)
    for ours, theirs, right in zip(result, plain, exact, strict=True):
        assert ours.dtype == torch.float32
        error, usual = ((t.double() - right).norm() for t in (ours, theirs))
        assert error <= 2 * usual + 5e-7 * right.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    half = [t.detach().to(dtype).requires_grad_() for t in vectors(0, 5, 3000)]
    single = [t.detach().float().requires_grad_() for t in half]
    result = with_gradients(log_sum_exp(*half, 1000), half)
    expected = with_gradients(log_sum_exp_plain(*single), single)
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other.to(dtype), rtol=1e-2, atol=1e-4)


def test_only_required_gradients_are_computed() -> None:
    p, q = vectors(0, 3, 9)
    log_sum_exp(p.detach(), q).sum().backward()
    assert p.grad is None
    assert q.grad is not None
    log_sum_exp(p, q.detach()).sum().backward()
    assert p.grad is not None


def test_nothing_to_sum() -> None:
    assert log_sum_exp(torch.ones(2, 3), torch.ones(0, 3)).tolist() == [-torch.inf] * 2
    assert log_sum_exp(torch.ones(0, 3), torch.ones(4, 3)).shape == (0,)


@pytest.mark.parametrize(("b", "n"), [(1, 10**6), (4096, 10**6), (10**5, 10), (7, 1)])
def test_a_block_fits_into_its_bytes(b: int, n: int) -> None:
    p, q = torch.empty(1, 1).expand(b, 1), torch.empty(1, 1).expand(n, 1)
    height, width = block_shape(p, q, None)
    assert 4 * height * width <= softmax.CPU_BLOCK_BYTES
    assert height <= b
    assert width <= n


def test_blocks_are_all_scores_once_in_the_same_memory() -> None:
    p, q = (t.detach() for t in vectors(0, 5, 13))
    result, places = torch.zeros(5, 13, dtype=p.dtype), set()
    for rows, columns, scores in score_blocks(p, q, 5 * 8 * 4):
        result[rows, columns] += scores
        places.add(scores.data_ptr())
    torch.testing.assert_close(result, p @ q.T)
    assert len(places) == 1


def test_no_temporary_is_as_large_as_all_scores() -> None:
    """Forward and back, the gradient of the candidates is the largest."""
    inputs = vectors(0, 64, 8192, dtype=torch.float32)
    with Largest() as blocked:
        log_sum_exp(*inputs, 2**14).sum().backward()
    with Largest() as plain:
        log_sum_exp_plain(*inputs).sum().backward()
    assert blocked.size == inputs[1].nbytes
    assert plain.size == 64 * 8192 * 4


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that any operation returns."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [t.untyped_storage().nbytes() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.size = max([self.size, *sizes])
        return result


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("b", "n", "d"), [(1, 1, 1), (5, 130, 16), (300, 5000, 64), (129, 700, 100), (70, 300, 256)]
)
def test_fused_kernels_equal_the_plain_form(dtype: torch.dtype, b: int, n: int, d: int) -> None:
    pytest.importorskip("triton")
    from rankfold.kernels import softmax_triton

    made = [torch.randn(m, d, device="cuda") / d**0.25 for m in (b, n)]
    inputs = [t.to(dtype).requires_grad_() for t in made]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    assert softmax_triton.takes(*inputs)
    result = with_gradients(softmax_triton.log_sum_exp(*inputs), inputs)
    expected = with_gradients(log_sum_exp_plain(*exact), exact)
    limit = 1e-5 if dtype == torch.float32 else 1e-2
    for ours, right in zip(result, expected, strict=True):
        assert (ours.double() - right).norm() <= limit * right.norm()


@pytest.mark.parametrize("problem", ["does not compile", "is wrong", ""])
def test_kernels_that_fail_their_trial_are_not_used(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.kernels import softmax_triton

    def stand_in(p: Tensor, q: Tensor) -> Tensor:
        if problem == "does not compile":
            raise RuntimeError("no such instruction")
        return log_sum_exp_plain(p, q) * (1.1 if problem else 1.0)

    monkeypatch.setattr(softmax_triton, "log_sum_exp", stand_in)
    if not problem:
        assert softmax_triton._passes_trial_on(torch.device("cpu"))
        return
    with pytest.warns(UserWarning, match="softmax uses blocks of scores"):
        assert not softmax_triton._passes_trial_on(torch.device("cpu"))
