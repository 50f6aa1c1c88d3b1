"""pauc: the weights of negatives."""

import torch
from linear_grades import balanced_rows

from rankfold.methods.ordinal.module import ShardedRows
from rankfold.methods.ordinal.partial_auc import PartialAucConfig, partial_auc_loss
from rankfold.methods.ordinal.training import FitContext, GradedBatch


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
