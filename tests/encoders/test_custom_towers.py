"""Networks of the user in towers."""

from pathlib import Path

import pytest
import torch
from planted import informed_groups
from torch import nn

import rankfold as rf
from rankfold.encoders.towers import NETWORKS


class Mine(nn.Module):
    """A network that draws its parameters, and dropout, from torch's global generator."""

    def __init__(self, width: int, _rng: torch.Generator) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, sums: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(torch.tanh(self.map(sums)), 0.1, training=self.training)


def test_an_own_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, settings = informed_groups(), {"encoder": "towers", "network": "mine", "width": 8}
    with pytest.raises(rf.UserError, match=r"`network` must be one of .*, got 'mine'"):
        rf.fit("bir", data, **settings)
    monkeypatch.setitem(NETWORKS, "mine", Mine)
    first = rf.fit("bir", data, epochs=20, out=tmp_path / "model", **settings)
    again = rf.fit("bir", data, epochs=20, **settings)
    for name, tensor in first.model.tensors.items():
        torch.testing.assert_close(again.model.tensors[name], tensor)
    new = rf.load(tmp_path / "model").search(features={"group": "g4", "age": 20}, k=8)
    assert sum(key % 6 == 4 for key in new.keys[0]) > 5
    monkeypatch.delitem(NETWORKS, "mine")
    with pytest.raises(rf.UserError, match=r"fitted with 'mine' of the module .*, which is not"):
        rf.load(tmp_path / "model")
