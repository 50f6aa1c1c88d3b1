import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.decoupled_softmax import Places, shared_decoupled_softmax_loss
from rankfold.losses.decoupled_softmax import decoupled_softmax_loss


@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 1000))
def test_is_the_loss_of_the_pool(n_queries: int, n_candidates: int, seed: int) -> None:
    """With rows that have no positive, no rival, or neither."""
    rng = torch.Generator().manual_seed(seed)
    shape = (n_queries, n_candidates)
    share = torch.rand((), generator=rng)
    hidden = torch.rand(shape, generator=rng) < share
    positive = hidden & (torch.rand(shape, generator=rng) < 0.6)
    scores = torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True)
    log_q = -torch.rand(n_candidates, generator=rng, dtype=torch.float64)
    shifted = torch.where(positive, scores, scores - log_q)
    expected = decoupled_softmax_loss(shifted, positive, positive | ~hidden)
    places = (Places(*mask.nonzero(as_tuple=True)) for mask in (positive, hidden))
    result = shared_decoupled_softmax_loss(scores, log_q, *places)
    torch.testing.assert_close(result, expected)
    upstream = torch.randn(n_queries, generator=rng, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(value, scores, upstream, retain_graph=True)[0]
        for value in (result, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_scores_far_apart_do_not_overflow() -> None:
    scores = torch.tensor([[-200.0, 0.0, -1.0], [200.0, 0.0, -1.0]], requires_grad=True)
    places = Places(torch.tensor([0, 1]), torch.tensor([0, 0]))
    loss = shared_decoupled_softmax_loss(scores, torch.zeros(3), places, places)
    loss.sum().backward()
    torch.testing.assert_close(loss[0], 200 + torch.tensor([0.0, -1.0]).logsumexp(0))
    assert loss[1] == 0
    assert scores.grad is not None
    expected = torch.tensor([0.0, -1.0]).softmax(0).tolist()
    torch.testing.assert_close(scores.grad, torch.tensor([[-1.0, *expected], [0.0] * 3]))
