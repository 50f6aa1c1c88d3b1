"""pauc: the weights of negatives."""

import pytest
import torch
from linear_grades import balanced_rows

from rankfold.methods.ordinal.module import ShardedRows
from rankfold.methods.ordinal.partial_auc import PartialAucConfig, partial_auc_loss
from rankfold.methods.ordinal.training import FitContext, GradedBatch
from rankfold.types import Graded


def test_partial_auc_weighs_negatives_by_their_cost() -> None:
    """The first estimate of a row is that of the batch: a softmax over negatives."""
    rows = balanced_rows(2, 6)
    config = PartialAucConfig(temperature=0.5)
    context = FitContext(None, ShardedRows(rows), 2, config, torch.Generator())  # type: ignore[arg-type]
    outputs = torch.randn(12, 1, generator=torch.Generator().manual_seed(0))
    batch = GradedBatch(torch.arange(12), rows.grades, outputs, outputs)
    result = partial_auc_loss(context).losses(batch)
    up, down = outputs[rows.grades > 0, 0], outputs[rows.grades == 0, 0]
    costs = torch.nn.functional.softplus(down[None] - up[:, None])
    expected = ((costs / 0.5).softmax(dim=1) * costs).sum(dim=1).mean()
    torch.testing.assert_close(result, expected[None])


def test_rows_that_do_not_count_give_no_nan() -> None:
    """Two negatives 100 apart: as a pair their power would overflow."""
    outputs = torch.tensor([[0.0], [100.0], [50.0]], requires_grad=True)
    grades = torch.tensor([0, 0, 1])
    none = torch.zeros(3, 0)
    rows = Graded(none, none.to(torch.int32), None, grades)
    config = PartialAucConfig()
    context = FitContext(None, ShardedRows(rows), 2, config, torch.Generator())  # type: ignore[arg-type]
    losses = partial_auc_loss(context).losses(
        GradedBatch(torch.arange(3), grades, outputs, outputs)
    )
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert losses.item() == pytest.approx(50.0, rel=1e-5)  # the higher negative has all the weight
    assert outputs.grad is not None
    assert outputs.grad.flatten().tolist() == pytest.approx([0.0, 1.0, -1.0], abs=1e-4)
