"""A fit that was killed or interrupted resumes as if nothing had happened."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from killed import kill_fit
from planted import groups, split_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.interrupts import interrupt
from rankfold.training import checkpoint
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Step


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


OPTIONS = {"width": 8, "reg": 0.01, "sweeps": 12, "patience": 12}


class Stop(Exception):
    """Raised in place of a kill."""


def stop_after(n: int) -> object:
    def report(_history: History, step: Step) -> None:
        if step.number > n:
            raise Stop

    return report


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("n", [1, 4, 11])
def test_resumed_fit_is_bit_identical(data: Dataset, tmp_path: Path, n: int, refit: bool) -> None:  # noqa: FBT001
    whole = rf.fit("ials", data, refit=refit, **OPTIONS)
    out = tmp_path / "model"
    with pytest.raises(Stop):
        rf.fit(
            "ials",
            data,
            out=out,
            refit=refit,
            checkpoint_seconds=0,
            report=stop_after(n),
            **OPTIONS,
        )
    assert not out.exists()
    assert checkpoint.path_of(out).exists()
    resumed = rf.fit("ials", data, out=out, refit=refit, resume=True, **OPTIONS)
    assert [e["step"] for e in resumed.model.notes["history"]] == [
        e["step"] for e in whole.model.notes["history"]
    ]
    assert resumed.model.notes["chosen"] == whole.model.notes["chosen"]
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)
    assert not checkpoint.path_of(out).exists()


def test_a_refit_is_resumed(data: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "patience": 2, "refit": True}
    whole = rf.fit("ials", data, **options)
    out = tmp_path / "model"

    def report(history: History, step: Step) -> None:
        if history.phase == "refit" and step.number == 2:
            raise Stop

    with pytest.raises(Stop):
        rf.fit("ials", data, out=out, checkpoint_seconds=0, report=report, **options)
    phases = []
    resumed = rf.fit(
        "ials",
        data,
        out=out,
        resume=True,
        report=lambda c, _: phases.append(c.phase),
        **options,
    )
    assert set(phases) == {"refit"}
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


def test_a_checkpoint_of_another_fit_is_refused(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(Stop):
        rf.fit("ials", data, out=out, checkpoint_seconds=0, report=stop_after(2), **OPTIONS)
    for change, message in (({"width": 9}, "width = 8, not 9"), ({"seed": 5}, "seed = 0, not 5")):
        with pytest.raises(UserError, match=message):
            rf.fit("ials", data, out=out, resume=True, **{**OPTIONS, **change})
    with pytest.raises(UserError, match="other data"):
        rf.fit("ials", split_groups(1), out=out, resume=True, **OPTIONS)


def test_killed_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """A process is killed once a checkpoint is on disk."""
    rf.prepare(groups(), out=tmp_path / "data")
    out = tmp_path / "model"
    until = checkpoint.path_of(out).exists
    kill_fit("ials", tmp_path / "data", out, OPTIONS, pause=0.2, until=until)
    resumed = rf.fit("ials", tmp_path / "data", out=out, resume=True, **OPTIONS)
    whole = rf.fit("ials", tmp_path / "data", **OPTIONS)
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("xir", {"schedule": "cosine", "warmup": 1.0, "clip": 1.0}),
        ("bpr", {"optimiser": "sparse-adam"}),
        ("g-tower", {"encoder": "towers", "optimiser": "adamw"}),
    ],
)
def test_killed_inside_an_epoch_and_resumed_gives_the_same_bits(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Killed at any batch, with the state of optimiser, sampler and schedule."""
    rf.prepare(groups(), out=tmp_path / "data")
    out, options = tmp_path / "model", {"epochs": 6, "batch_size": 64, "width": 8, **settings}
    delay = random.Random(method).uniform(0, 0.3)
    until = checkpoint.path_of(out).exists
    kill_fit(method, tmp_path / "data", out, options, pause=0.01, until=until, delay=delay)
    resumed = rf.fit(method, tmp_path / "data", out=out, resume=True, **options)
    whole = rf.fit(method, tmp_path / "data", **options)
    assert resumed.model.notes["chosen"] == whole.model.notes["chosen"]
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


def test_an_interrupt_waits_for_the_step_and_saves_it(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"

    def interrupt(_history: History, step: Step) -> None:
        if step.number == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        rf.fit("ials", data, out=out, report=interrupt, **OPTIONS)
    kept = checkpoint.load(checkpoint.path_of(out))
    assert int(kept.state["number"]) == 3
    whole = rf.fit("ials", data, **OPTIONS)
    resumed = rf.fit("ials", data, out=out, resume=True, **OPTIONS)
    assert torch.equal(resumed.model.tensors["queries"], whole.model.tensors["queries"])


@pytest.mark.parametrize("handler", [signal.default_int_handler, interrupt])
def test_an_interrupt_of_the_last_step_is_ignored(data: Dataset, handler: Any) -> None:
    def report(_history: History, step: Step) -> None:
        if step.final:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, handler)
    try:
        assert rf.fit("rg2-plain", data, width=4, report=report).model.notes["history"]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("method", ["ials", "rg2", "rg2-plain", "puresvd"])
def test_after_an_interrupt_of_the_last_step_the_refit_follows(
    data: Dataset, tmp_path: Path, method: str
) -> None:
    """Spectral methods have no state to resume from in their last step."""
    out, phases = tmp_path / "model", []

    def interrupt(_history: History, step: Step) -> None:
        if step.final:
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"width": 8, "refit": True}
    with pytest.raises(KeyboardInterrupt):
        rf.fit(method, data, out=out, report=interrupt, patience=99, **options)
    watching = {"report": lambda history, _: phases.append(history.phase)}
    resumed = rf.fit(method, data, out=out, resume=True, patience=99, **options, **watching)
    assert set(phases) == {"refit"}
    whole = rf.fit(method, data, patience=99, **options)
    assert torch.equal(resumed.model.tensors["candidates"], whole.model.tensors["candidates"])


def test_a_finished_model_is_not_fitted_again(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"
    options: dict[str, Any] = {"epochs": 2, "batch_size": 64, "width": 4}
    made = rf.fit("bpr", data, out=out, **options)
    before = (out / "manifest.json").read_bytes()
    steps: list[int] = []
    again = rf.fit(
        "bpr", data, out=out, resume=True, report=lambda _, s: steps.append(s.number), **options
    )
    assert steps == []
    assert torch.equal(again.model.tensors["queries"], made.model.tensors["queries"])
    for method, change, message in (
        ("softmax", {}, "method = bpr"),
        ("bpr", {"epochs": 3}, "epochs = 2"),
        ("bpr", {"seed": 4}, "seed = 0"),
        ("bpr", {"refit": True}, "refit = False"),
    ):
        with pytest.raises(UserError, match=f"was finished with {message}"):
            rf.fit(method, data, out=out, resume=True, **{**options, **change})
    with pytest.raises(UserError, match="was finished with other data"):
        rf.fit("bpr", split_groups(1), out=out, resume=True, **options)
    assert (out / "manifest.json").read_bytes() == before


def test_the_second_of_two_fits_is_refused(data: Dataset, tmp_path: Path) -> None:
    """Both would write one checkpoint, and the last to finish would win."""
    out, refused = tmp_path / "model", []

    def fit_too(_history: History, _step: Step) -> None:
        with pytest.raises(UserError) as caught:
            rf.fit("ials", data, out=out, **OPTIONS)
        refused.append(str(caught.value))

    rf.fit("ials", data, out=out, report=fit_too, **OPTIONS)
    assert set(refused) == {f"process {os.getpid()} is writing {out}"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_fit_that_was_killed_at_once_is_in_nobodys_way(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "model.checkpoint").mkdir()
    rf.fit("ials", data, out=tmp_path / "model", resume=True, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_kill_while_the_checkpoint_is_removed_spoils_nothing(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its state but with its manifest, the checkpoint would be damaged."""
    options = {**OPTIONS, "checkpoint_seconds": 0}
    out = tmp_path / "model"

    def stop(path: Path, **_options: object) -> None:
        for file in path.glob("state-*"):
            file.unlink()
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("rankfold.training.checkpoint.shutil.rmtree", stop)
        with pytest.raises(Stop):
            rf.fit("ials", data, out=out, **options)
    assert not checkpoint.exists(checkpoint.path_of(out))
    rf.fit("ials", data, out=out, resume=True, **options)
    assert rf.load(out).model.method == "ials"
