"""Tables of vectors in half precision, with an optimiser state per row."""

from pathlib import Path
from typing import Any

import pytest
import torch
from planted import groups
from torch import nn

import rankfold as rf
from rankfold.encoders.tables import GRADIENT_SCALE, look_up, table
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.training import optimisers

HALF = {"table": "float16", "width": 8, "epochs": 12, "lr": 0.03}


def fitted(name: str, **more: Any) -> Ranker:
    ranker = rf.fit(name, rf.prepare(groups()), **{**HALF, **more})
    assert isinstance(ranker, Ranker)
    return ranker


@pytest.mark.parametrize("name", ["bpr", "bce", "uib", "xir"])
def test_it_learns_as_float32_does(name: str, tmp_path: Path) -> None:
    data = rf.prepare(groups())
    half = fitted(name)
    full = rf.fit(name, data, **{**HALF, "table": "float32", "optimiser": "row-adam"})
    values = [rf.evaluate(one, data, metrics=["recall@10"])["recall@10"] for one in (half, full)]
    assert values[0] == pytest.approx(values[1], abs=0.05)
    assert values[0] > 0.5  # at random: .17
    assert {half.model.tensors[side].dtype for side in ("queries", "candidates")} == {torch.half}
    half.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert again.search(3, k=5).keys == half.search(3, k=5).keys


def test_small_gradients_and_decay_are_kept() -> None:
    """A gradient of 1e-9 would be 0 as a half; the decay has the scale of the gradient."""
    rng = torch.Generator().manual_seed(0)
    rows = torch.tensor([2, 5])
    found = []
    for half in (False, True):
        own = table(9, 4, rng.manual_seed(0), sparse=True, half=half)
        module = nn.ModuleList([own])
        (look_up(own, rows).sum() * 1e-9).backward()
        optimisers.coalesce(module)
        optimisers.decay_rows(module, 1e-3, GRADIENT_SCALE if half else 1.0)
        assert own.weight.grad is not None
        found.append(own.weight.grad.values().float() / (GRADIENT_SCALE if half else 1.0))
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=1e-8)


def test_the_state_of_a_row_is_its_vector_and_two_numbers() -> None:
    own = table(10, 64, torch.Generator(), sparse=True, half=True)
    (optimiser,) = optimisers.make("row-adam", nn.ModuleList([own]), 0.01, 0.0)
    look_up(own, torch.tensor([1])).sum().backward()
    optimiser.step()
    kept = optimiser.state[own.weight].values()
    assert own.weight.nbytes + sum(one.nbytes for one in kept) == 10 * (2 * 64 + 2 * 64 + 8)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"optimiser": "adam"}, "needs optimiser=row-adam, got adam"),
        ({"encoder": "towers"}, "needs encoder=tables, got towers"),
        ({"clip": 1.0}, "needs clip=none, got 1.0"),
    ],
)
def test_what_it_cannot_do_is_one_error(more: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        fitted("bpr", **more)
    with pytest.raises(UserError, match="takes no table=float16"):
        fitted("sml")
