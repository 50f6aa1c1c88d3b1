"""Both libraries give the same products, whatever the layout of their arguments."""

import pytest
import torch

from rankfold.kernels import matmul
from rankfold.kernels.matmul import multiply


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 50), (40, 33, 5000), (64, 700, 64), (0, 40, 40)])
def test_the_product_is_that_of_float64(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], *, onednn: bool
) -> None:
    if onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("torch has no oneDNN")
    monkeypatch.setattr(matmul, "_onednn_is_faster", lambda: onednn)
    n, inner, m = shape
    left, right = torch.randn(n, 2 * inner)[:, :inner], torch.randn(m, inner).T
    expected = (left.double() @ right.double()).float()
    out = torch.full((n, m + 3), torch.nan)
    multiply(left, right, out[:, :m])
    for result in (out[:, :m], multiply(left, right), multiply(left.contiguous(), right)):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
    transposed = multiply(left.T.contiguous().T, right.contiguous())
    torch.testing.assert_close(transposed, expected, rtol=1e-4, atol=1e-3)
