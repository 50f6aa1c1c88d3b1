"""Chi-square tests that draws follow the claimed probabilities."""

from collections.abc import Callable

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

LEVEL = 1e-3  # seeds are fixed: a right sampler passes always, a wrong one fails always


def follow(ids: Tensor, probabilities: Tensor) -> bool:
    """Whether ``ids`` look like independent draws by ``probabilities`` [N], which sum to 1."""
    return times_follow(torch.bincount(ids.flatten(), minlength=len(probabilities)), probabilities)


def times_follow(drawn: Tensor, probabilities: Tensor) -> bool:
    """The same from how often each was drawn; both [N]."""
    possible = probabilities > 0
    if bool(drawn[~possible].any()):
        return False
    expected = probabilities[possible].double()
    expected = expected / expected.sum() * float(drawn.sum())
    assert float(expected.min()) > 5, "too few draws for the test"
    return bool(chisquare(drawn[possible].numpy(), expected.numpy()).pvalue > LEVEL)


@pytest.fixture(name="follow")
def _follow() -> Callable[[Tensor, Tensor], bool]:
    return follow


@pytest.fixture(name="times_follow")
def _times_follow() -> Callable[[Tensor, Tensor], bool]:
    return times_follow


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.fixture
def counts() -> Tensor:
    """Of twelve candidates; two were never chosen."""
    return torch.tensor([40, 1, 7, 0, 13, 2, 25, 3, 0, 90, 5, 60])
