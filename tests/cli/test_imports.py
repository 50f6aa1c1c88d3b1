"""``--import``: methods and encoders of modules that rankfold does not know."""

import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from commands import Command

from rankfold.encoders.rows import ROW_ENCODERS
from rankfold.models.imports import imported

MODULE = """
from rankfold.encoders.rows import ROW_ENCODERS, Linear
ROW_ENCODERS["home-made"] = Linear
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of an encoder and prepared rows; the current folder."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(60, generator=rng)
    frame = pl.DataFrame({"x": x.numpy(), "grade": (x > 0).long().numpy()})
    frame.write_csv(tmp_path / "rows.csv")
    (tmp_path / "home_made.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    return tmp_path


def forget() -> None:
    """As in a new process."""
    ROW_ENCODERS.pop("home-made", None)
    sys.modules.pop("home_made", None)
    imported.clear()


@pytest.mark.usefixtures("home")
def test_an_own_encoder_is_fitted_and_loaded(rankfold: Command) -> None:
    words = ("prepare", "rows.csv", "--format", "features", "--grade-column", "grade")
    assert rankfold(*words, "--out", "data").code == 0
    fit = ("fit", "ce", "data", "--out", "m", "--set", "encoder=home-made", "--set", "epochs=1")
    assert "must be one of" in rankfold(*fit).err
    try:
        assert rankfold(*fit, "--import", "home_made").code == 0
        predict = ("predict", "m", "rows.csv", "--out", "graded.parquet")
        assert rankfold(*predict).code == 0
        forget()
        done = rankfold(*predict)
        assert done.code == 2
        assert "'home-made' of the module 'home_made', which is not imported" in done.err
        assert "hint: add --import home_made" in done.err
        assert rankfold("evaluate", "m", "data", "--import", "home_made").code == 0
    finally:
        forget()


def test_a_missing_module_is_named(rankfold: Command, home: Path) -> None:
    (home / "needs_more.py").write_text("import no_such_package_here\n")
    done = rankfold("methods", "--import", "no_such_module")
    assert (done.code, "there is no module 'no_such_module'" in done.err) == (2, True)
    done = rankfold("methods", "--import", "needs_more")
    assert (done.code, "needs 'no_such_package_here'" in done.err) == (2, True)
