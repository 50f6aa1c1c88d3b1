"""Row encoders of the user and of timm."""

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rows_to_encode import pictures, prepared, table
from torch import nn

import rankfold as rf
from rankfold.encoders.row_inputs import Inputs
from rankfold.encoders.rows import ROW_ENCODERS
from rankfold.types import Step


def test_a_custom_module(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    class Mine(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.map = nn.Linear(6, width)

        def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> torch.Tensor:
            return self.map(inputs.numbers)

    class Double(Mine):
        def forward(self, inputs: Inputs, rng: torch.Generator | None) -> torch.Tensor:
            return super().forward(inputs, rng).double()

    data = prepared(table())
    with pytest.raises(rf.UserError, match=r"`encoder` must be one of .*, got 'mine'"):
        rf.fit("ce", data, encoder="mine")
    with pytest.raises(rf.UserError, match="`encoder` must be text, got Mine") as caught:
        rf.fit("ce", data, encoder=Mine(3))
    assert "registered" in str(caught.value.hint)
    monkeypatch.setitem(ROW_ENCODERS, "mine", lambda _shape, _width, _drop, _rng: Mine(3))
    with pytest.raises(rf.UserError, match=r"encoder=mine must return shape .*, got \[\d+, 3\]"):
        rf.fit("cba", data, encoder="mine", epochs=1)
    monkeypatch.setitem(ROW_ENCODERS, "mine", lambda _shape, width, _drop, _rng: Double(width))
    with pytest.raises(rf.UserError, match="encoder=mine must return float32, got float64"):
        rf.fit("cba", data, encoder="mine", epochs=1)
    monkeypatch.setitem(ROW_ENCODERS, "mine", lambda _shape, width, _drop, _rng: Mine(width))
    result = rf.fit("ce", data, encoder="mine", epochs=1)
    result.save(f"{tmp_path}/model")
    again = rf.load(f"{tmp_path}/model")
    assert torch.equal(again.score(table()), result.score(table()))
    monkeypatch.delitem(ROW_ENCODERS, "mine")
    with pytest.raises(rf.UserError, match=r"fitted with 'mine' of the module .*, which is not"):
        rf.load(f"{tmp_path}/model")


def test_a_custom_module_with_lazy_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(width)

        def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> torch.Tensor:
            result: torch.Tensor = self.layer(inputs.numbers)
            return result

    monkeypatch.setitem(ROW_ENCODERS, "mine", lambda _shape, width, _drop, _rng: Mine(width))
    result = rf.fit("ce", prepared(table()), encoder="mine", epochs=1)
    assert isinstance(result, rf.Grader)
    assert result.score(table()).isfinite().all()


def test_a_custom_module_with_dropout_and_batch_norm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As usual in torch: with torch's generator in training, in eval mode when rows are scored."""

    class Mine(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.5)
            )

        def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> torch.Tensor:
            return self.layers(inputs.numbers)

    monkeypatch.setitem(ROW_ENCODERS, "mine", lambda _shape, width, _drop, _rng: Mine(width))
    rows = table()
    data, how = prepared(rows), {"encoder": "mine", "epochs": 3, "batch_size": 20}
    state = torch.get_rng_state()
    first = rf.fit("cba", data, **how)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)  # other draws do not matter
    second, other = rf.fit("cba", data, **how), rf.fit("cba", data, seed=1, **how)
    scores = first.score(rows)
    assert torch.equal(scores, first.score(rows))
    assert torch.equal(scores, second.score(rows))
    assert not torch.equal(scores, other.score(rows))
    alone = first.score(rows.select(torch.tensor([3])))
    torch.testing.assert_close(alone, scores[3:4])
    with pytest.raises(KeyboardInterrupt):
        rf.fit("cba", data, out=tmp_path / "m", report=stop_after(2), checkpoint_seconds=0, **how)
    resumed = rf.fit("cba", data, out=tmp_path / "m", resume=True, **how)
    assert torch.equal(scores, resumed.score(rows))


def stop_after(steps: int) -> Callable[[object, Step], None]:
    def report(_history: object, step: Step) -> None:
        if step.number == steps:
            raise KeyboardInterrupt

    return report


def test_dropout_in_later_epochs_follows_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.map, self.calls = nn.Linear(6, width), 0

        def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> torch.Tensor:
            self.calls += self.training
            return nn.functional.dropout(
                self.map(inputs.numbers), 0.5, self.training and self.calls > 2
            )

    monkeypatch.setitem(ROW_ENCODERS, "late", lambda _shape, width, _drop, _rng: Late(width))
    data, how = prepared(table()), {"encoder": "late", "epochs": 2, "batch_size": 10}
    state = torch.get_rng_state()
    first = rf.fit("ce", data, **how)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    again = rf.fit("ce", data, **how)
    assert torch.equal(first.score(table()), again.score(table()))


class StandIn(nn.Module):
    """A stand-in for a timm model: a network with ``num_features`` and a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.num_features = 5
        self.layers = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images).mean(dim=(2, 3))


@pytest.mark.parametrize("channels", [1, 3])
def test_backbones_of_timm(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    calls = []

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        calls.append((name, pretrained, num_classes))
        return StandIn()

    fake = types.ModuleType("timm")
    fake.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", fake)
    data = prepared(pictures(channels=channels))
    first, second = (rf.fit("cba", data, encoder="timm:rexnet_200", epochs=2) for _ in range(2))
    assert calls[0] == ("rexnet_200", False, 0)
    rows = data.graded("test")
    assert torch.equal(first.score(rows), second.score(rows))
    alone = first.score(rows.select(torch.tensor([3])))
    torch.testing.assert_close(alone, first.score(rows)[3:4])  # batch norm as it was learnt


def test_a_backbone_that_timm_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, **_how: object) -> nn.Module:
        raise RuntimeError(f"Unknown model ({name})")

    fake = types.ModuleType("timm")
    fake.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", fake)
    with pytest.raises(rf.UserError, match="timm has no model 'rexnet_2'") as caught:
        rf.fit("ce", prepared(pictures()), encoder="timm:rexnet_2")
    assert "list_models" in str(caught.value.hint)


def test_without_timm_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(rf.UserError, match="timm cannot be imported") as caught:
        rf.fit("ce", prepared(pictures()), encoder="timm:rexnet_200")
    assert "rankfold[timm]" in str(caught.value.hint)
