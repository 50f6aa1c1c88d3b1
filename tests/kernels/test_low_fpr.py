import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.low_fpr import shared_low_fpr_loss
from rankfold.losses.low_fpr import above, low_fpr_loss


@given(st.integers(1, 20), st.integers(2, 5), st.integers(0, 1000))
def test_is_the_loss_of_each_threshold(n: int, n_grades: int, seed: int) -> None:
    """Some thresholds have an empty side, or weights that are all 0."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, generator=rng, dtype=torch.float64, requires_grad=True)
    positive = above(torch.randint(0, n_grades, (n,), generator=rng), n_grades)
    weights = torch.rand(positive.shape, generator=rng, dtype=torch.float64)
    weights = weights * (torch.rand(positive.shape, generator=rng) < 0.7)
    pool = scores.expand(len(positive), -1)
    expected = low_fpr_loss(pool, positive, torch.ones_like(positive), weights)
    result = shared_low_fpr_loss(scores, positive, weights)
    torch.testing.assert_close(result, expected)
    gradients = [
        torch.autograd.grad(v.sum(), scores, retain_graph=True)[0] for v in (result, expected)
    ]
    torch.testing.assert_close(*gradients)
