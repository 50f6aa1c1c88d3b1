"""ddag: scores over the paths of a decision DAG."""

import pytest
import torch

from rankfold.methods.ordinal import decision_dag


def test_decision_dag_scores_by_its_paths() -> None:
    outputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    place = {pair: number for number, pair in enumerate(decision_dag.pairs_of(4))}

    def expected(row: torch.Tensor, low: int, high: int) -> float:
        if low == high:
            return low / 3
        p = float(torch.sigmoid(row[place[low, high]].double()))
        return p * expected(row, low + 1, high) + (1 - p) * expected(row, low, high - 1)

    result = decision_dag.dag_score(outputs, 4).tolist()
    assert result == pytest.approx([expected(row, 0, 3) for row in outputs])
