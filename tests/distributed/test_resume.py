"""Any number of processes can resume a checkpoint."""

import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import groups
from ranks import interrupted, run_ranks, send_interrupt

import rankfold as rf
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.training.early_stopping import History
from rankfold.types import Comm, Step

FITS: dict[str, dict[str, Any]] = {
    "rg2": {"width": 8, "path_queries": 20, "tolerance": 1e-4},
    "rg2-sharded": {"width": 5, "path_queries": 20, "tolerance": 1e-6, "candidate_memory": 400},
    "ials": {"width": 6, "sweeps": 6},
    "rgx": {"width": 6, "sweeps": 5, "refit": True},
}


def method(name: str) -> str:
    return name.removesuffix("-sharded")


def stop(history: History, step: Step) -> None:
    """Send Ctrl-C, on the rank that reports."""
    if step.number == 3 and history.phase == "fit":
        send_interrupt()


def begin(comm: Comm, data: Path, out: Path) -> list[str]:
    """Start every fit; each is interrupted and leaves a checkpoint."""

    def fit(name: str) -> None:
        rf.fit(method(name), data, comm=comm, out=out / name, report=stop, **FITS[name])

    return interrupted(FITS, fit)


def resume_fits(comm: Comm, data: Path, *outs: Path) -> list[dict[str, list[float]]]:
    """The losses of every fit, resumed in each of the folders."""
    results = []
    for out in outs:
        losses = {}
        for name, options in FITS.items():
            ranker = rf.fit(method(name), data, comm=comm, out=out / name, resume=True, **options)
            losses[name] = [entry["loss"] for entry in ranker.model.notes["history"]]
        results.append(losses)
    return results


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data"
    rf.prepare(groups(), out=path)
    return path


def test_any_number_of_ranks_resumes(data: Path, tmp_path: Path) -> None:
    three, copied, one, whole = (tmp_path / name for name in ("three", "copied", "one", "whole"))
    for path in (three, one, whole):
        path.mkdir()
    assert run_ranks(3, begin, data, three) == [list(FITS)] * 3  # all ranks stop
    assert begin(SINGLE_PROCESS, data, one) == list(FITS)
    assert (three / "ials.checkpoint").exists()
    assert not (three / "ials").exists()
    shutil.copytree(three, copied)
    (expected,) = resume_fits(SINGLE_PROCESS, data, whole)  # without a checkpoint
    (alone,) = resume_fits(SINGLE_PROCESS, data, copied)
    for resumed in (alone, *chain(*run_ranks(2, resume_fits, data, three, one))):
        for name, losses in expected.items():
            assert resumed[name] == pytest.approx(losses, rel=1e-5, abs=1e-6), name
    for name in FITS:
        points = [scores(path / name) for path in (whole, three, one, copied)]
        scale = float(points[0].abs().max())
        for other in points[1:]:
            torch.testing.assert_close(other, points[0], rtol=0, atol=1e-4 * scale)
        assert not (three / f"{name}.checkpoint").exists()


def scores(path: Path) -> torch.Tensor:
    tensors = rf.load(path).model.tensors
    return tensors["queries"] @ tensors["candidates"].T
