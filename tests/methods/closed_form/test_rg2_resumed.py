"""A fit of ``rg2`` that is resumed or fitted again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import RG2_QUICK, RG2_SETTINGS
from planted import split_data as split_data

import rankfold as rf
from rankfold.training import checkpoint
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Model, Step, Vocabulary, from_pairs

# ---------------------------------------------------------------------------- refit


def test_a_fit_with_the_chosen_settings_is_the_same_model(data: Dataset) -> None:
    chosen = rf.fit("rg2", data, width=6).model
    again = rf.fit("rg2", data, **chosen.config).model
    assert again.config == chosen.config
    for name, tensor in chosen.tensors.items():
        torch.testing.assert_close(again.tensors[name], tensor)


def test_refit_uses_the_chosen_settings_on_all_pairs(data: Dataset) -> None:
    chosen = rf.fit("rg2", data, **RG2_QUICK).model.config
    refitted = rf.fit("rg2", data, refit=True, **RG2_QUICK).model
    assert refitted.config == chosen
    whole = data.split("train").union(data.split("validation"))
    settings = {name: chosen[name] for name in RG2_SETTINGS}
    expected = rf.fit("rg2", replace(data, train=whole, validation=None), **RG2_QUICK, **settings)
    for name, tensor in expected.model.tensors.items():
        assert torch.equal(refitted.tensors[name], tensor)


def test_refit_keeps_the_note_that_validation_selected(data: Dataset) -> None:
    notes = rf.fit("rg2", data, refit=True, **RG2_QUICK).model.notes
    assert notes["chosen_by"] == "validation"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rg2", {"query_exponent": -0.5, "candidate_exponent": 0.0}),
        ("rg2-plain", {"reg": 0.001}),
        ("puresvd", {}),
    ],
)
def test_refit_may_need_more_passes_than_the_fit(name: str, given: dict[str, float]) -> None:
    """Training pairs of rank four, then noise beside them: the refit converges later."""
    m, n = 200, 150
    same = (torch.arange(m)[:, None] % 4) == (torch.arange(n)[None] % 4)
    noise = (torch.rand(m, n, generator=torch.Generator().manual_seed(0)) < 0.3) & ~same
    train, validation = (
        from_pairs(*part.nonzero().unbind(dim=1), None, (m, n)) for part in (same, noise)
    )
    names = Vocabulary.numbered(m), Vocabulary.numbered(n)
    data = Dataset("interactions", train, validation, None, *names)
    options: dict[str, Any] = {"width": 12, "tolerance": 1e-4, **given}
    whole = replace(data, train=train.union(validation), validation=None)
    expected = passes_of(rf.fit(name, whole, **options).model)
    assert len(expected) > len(passes_of(rf.fit(name, data, **options).model))
    history = rf.fit(name, data, refit=True, **options).model.notes["history"]
    assert [entry["step"] for entry in history if entry["phase"] == "refit"] == expected


# ---------------------------------------------------------------------------- resume


class Stop(Exception):
    """Stops a fit as a kill would."""


def resumed(data: Dataset, out: Path, n: int, options: dict[str, Any]) -> Model:
    """Fitted with a stop after n steps."""

    def report(_history: History, step: Step) -> None:
        if step.number > n:
            raise Stop

    with pytest.raises(Stop):
        rf.fit("rg2", data, out=out, checkpoint_seconds=0, report=report, **options)
    assert checkpoint.path_of(out).exists()
    return rf.fit("rg2", data, out=out, resume=True, **options).model


def passes_of(model: Model) -> list[int]:
    return [entry["step"] for entry in model.notes["history"]]


@pytest.mark.parametrize("refit", [False, True])
def test_resumed_after_any_step_is_bit_identical(
    data: Dataset, tmp_path: Path, *, refit: bool
) -> None:
    options = {**RG2_QUICK, "refit": refit}
    whole = rf.fit("rg2", data, **options).model
    last = max(passes_of(whole))
    assert last > 8  # a few passes for each of the exponents
    for n in range(1, last - 1, 2):
        model = resumed(data, tmp_path / f"after-{n}", n, options)
        assert passes_of(model) == passes_of(whole)
        assert model.config == whole.config
        for name, tensor in whole.tensors.items():
            assert torch.equal(model.tensors[name], tensor)


def test_resumed_fit_selects_the_same_of_tied_exponents(tmp_path: Path) -> None:
    """Every choice of exponents ranks the only candidate left of a query's colour first."""
    size = 40
    board = torch.tensor([[(q + c) % 2 == 0 for c in range(size)] for q in range(size)])
    own = torch.eye(size, dtype=torch.bool)
    train, validation = (
        from_pairs(*part.nonzero().unbind(dim=1), None, (size, size))
        for part in (board & ~own, own)
    )
    names = Vocabulary.numbered(size)
    data = Dataset("interactions", train, validation, None, names, names)
    options = {"width": 2, "tolerance": 1e-6}
    whole = rf.fit("rg2", data, **options).model
    scores = {
        (entry["query_exponent"], entry["candidate_exponent"]): entry["score"]
        for entry in whole.notes["path"]
    }
    assert list(scores.values()) == [1.0] * 3  # the middle and its neighbours
    for n in range(1, max(passes_of(whole)) - 1):
        model = resumed(data, tmp_path / f"after-{n}", n, options)
        assert model.config == whole.config
        for name, tensor in whole.tensors.items():
            assert torch.equal(model.tensors[name], tensor)
