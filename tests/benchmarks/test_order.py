"""Fits that take their steps together equal those of the method, one by one."""

import pytest
import torch

from benchmarks.quality.order.stack import Point, Stack
from benchmarks.quality.quadratic import DEVICE, start
from rankfold.methods import METHODS
from rankfold.types import Dataset, Interactions, Vocabulary

POINTS = (Point(0.01, 1e-5, 0), Point(0.03, 1e-3, 0), Point(0.01, 1e-5, 1))
WIDTH, BATCH, EPOCHS = 8, 64, 7  # the rate falls after five epochs


@pytest.mark.parametrize("method", ["ssl-pop", "bir", "xir"])
def test_a_stack_equals_its_fits(method: str) -> None:
    data = some_data()
    stack = Stack(data, method, BATCH, WIDTH, POINTS)
    for _ in range(EPOCHS - 1):
        stack.learn()
    stack.keep([1, 2])
    again = Stack(data, method, BATCH, WIDTH, POINTS)  # as after a pause
    again.keep([1, 2])
    again.load({name: one.clone() for name, one in stack.state().items()})
    again.learn()
    for place, point in enumerate(POINTS[1:]):
        expected = fitted(data, method, point)
        found = again.model(place).tensors
        for side in ("queries", "candidates"):
            # a pick may fall on the other side of a rounded bound: compare all, not each
            gap = (found[side] - expected[side]).norm() / expected[side].norm()
            assert float(gap) < 0.01


def some_data() -> Dataset:
    rng = torch.Generator().manual_seed(5)
    marks = torch.rand(40, 30, generator=rng) < torch.linspace(0.1, 0.6, 30)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), marks.sum(dim=1).cumsum(0)])
    rows = Interactions(offsets, marks.nonzero()[:, 1].int(), None, 30)
    names = Vocabulary.numbered(40), Vocabulary.numbered(30)
    return Dataset("interactions", rows, None, None, *names)


def fitted(data: Dataset, method: str, point: Point) -> dict[str, torch.Tensor]:
    recipe = METHODS[method]
    config = recipe.config(
        width=WIDTH, batch_size=BATCH, epochs=EPOCHS, lr=point.lr, weight_decay=point.decay
    )
    *_, last = (step for step in recipe.fit(data, config, start(data, point.seed)) if step.whole)
    assert last.model is not None
    return {name: one.to(DEVICE) for name, one in last.model.tensors.items()}
