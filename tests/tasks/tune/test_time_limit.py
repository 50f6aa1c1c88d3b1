"""A fit with a time limit, as trials have."""

from pathlib import Path
from typing import Any

import pytest
import torch
from level_method import SMALL, Stopped

import rankfold as rf
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Step


def test_a_fit_ends_when_its_time_is_up(data: Dataset) -> None:
    steps: list[int] = []

    def report(_history: History, step: Step) -> None:
        steps.append(step.number)

    rf.fit("level", data, steps=9, level=1.0, seconds=0, report=report)
    assert steps == [1]
    ranker = rf.fit("level", data, steps=9, level=1.0, seconds=1e9)
    assert ranker.model.notes["chosen"] == 9
    with pytest.raises(rf.UserError, match="`seconds` must be at least 0, got -1"):
        rf.fit("level", data, seconds=-1)


def test_time_does_not_end_a_fit_without_a_model(data: Dataset) -> None:
    for name in ("rg2", "rg2-plain"):
        cut, reference = (rf.fit(name, data, width=8, seconds=given) for given in (0, None))
        assert torch.equal(cut.model.tensors["queries"], reference.model.tensors["queries"])


def test_a_refit_runs_all_selected_steps(data: Dataset) -> None:
    ranker = rf.fit("ials", data, **SMALL, seconds=0, refit=True)
    phases = [entry["phase"] for entry in ranker.model.notes["history"]]
    assert phases == ["fit", "refit"]


def test_a_checkpoint_may_have_more_time(data: Dataset, tmp_path: Path) -> None:
    """The time limit is not part of the identity of a fit."""

    def stop(_history: History, step: Step) -> None:
        if step.number == 2:
            raise Stopped

    options: dict[str, Any] = {**SMALL, "out": tmp_path / "m", "checkpoint_seconds": 0.0}
    with pytest.raises(Stopped):
        rf.fit("ials", data, **options, seconds=1e9, report=stop)
    resumed = rf.fit("ials", data, **options, resume=True)
    reference = rf.fit("ials", data, **SMALL)
    assert torch.equal(resumed.model.tensors["queries"], reference.model.tensors["queries"])
