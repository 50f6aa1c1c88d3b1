"""Which kind of index is chosen."""

import pytest
import torch

from rankfold.index import auto, inverted
from rankfold.index.auto import build_chosen, choose_kind


def test_by_number_recall_size_and_device() -> None:
    def kind(n: int, width: int = 4, target: float = 0.98, **more: object) -> str:
        return choose_kind(torch.empty(1, **more).expand(n, width), target)  # type: ignore[call-overload]

    assert kind(inverted.MIN_CANDIDATES - 1) == "exact"
    assert kind(inverted.MIN_CANDIDATES) == "inverted"
    assert kind(inverted.MIN_CANDIDATES, target=1.0) == "exact"
    assert kind(inverted.MIN_CANDIDATES, device="meta") == "exact"
    for dtype in (torch.float16, torch.float32, torch.float64):  # the copy is in half precision
        assert kind(2**24, 128, dtype=dtype) == "inverted"
        assert kind(2**24, 129, dtype=dtype) == "compressed"


def test_codes_that_miss_the_target_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inverted, "MIN_CANDIDATES", 0)
    monkeypatch.setattr(auto, "MAX_COPY_BYTES", 0)
    rng = torch.Generator().manual_seed(0)
    candidates = torch.randn(2000, 16, generator=rng)
    how = {"queries": candidates[:64], "seed": 0}
    assert build_chosen(candidates, 2**30, target=0.5, **how).kind == "compressed"
    monkeypatch.setattr("rankfold.index.compressed.RESCORE_FACTORS", (1,))
    assert build_chosen(candidates, 2**30, target=0.999, **how).kind == "inverted"
