"""puresvd has the scores of the dense SVD."""

from dataclasses import replace

import pytest
import torch
from planted import dense, groups

import rankfold as rf
from rankfold.types import Model


def scores(model: Model) -> torch.Tensor:
    return (model.tensors["queries"] @ model.tensors["candidates"].T).double()


@pytest.mark.parametrize("weights", ["none", "grade"])
def test_scores_are_those_of_the_dense_svd(weights: str) -> None:
    """At rank 6 the groups' singular values are well above the noise."""
    frame = groups(graded=True)
    rows = rf.prepare(frame, split=(1, 0, 0)).split("train")
    r = dense(rows if weights == "grade" else replace(rows, grades=None))
    u, sigma, v = torch.linalg.svd(r, full_matrices=False)
    assert sigma[5] > 1.2 * sigma[6]
    expected = (u[:, :6] * sigma[:6]) @ v[:6]
    actual = scores(rf.fit("puresvd", frame, width=6, tolerance=1e-4, weights=weights).model)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)


def test_full_rank_reproduces_the_pairs() -> None:
    frame = groups(m=30, n=20)
    rows = rf.prepare(frame, split=(1, 0, 0)).split("train")
    result = scores(rf.fit("puresvd", frame, width=50).model)
    torch.testing.assert_close(result, dense(rows), rtol=0, atol=1e-4)
