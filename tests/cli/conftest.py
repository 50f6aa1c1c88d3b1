"""A prepared and fitted folder for the tests of commands."""

import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
from commands import rankfold as rankfold
from linear_grades import LINEAR, data_of, grader_of

import rankfold as rf
from rankfold.data import folder
from rankfold.methods import METHODS


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ratings.csv, the data prepared from it, and a model fitted on that.

    60 users and 30 items in three groups, with grades and times.
    """
    home = tmp_path_factory.mktemp("fitted")
    rng = torch.Generator().manual_seed(0)
    same = (torch.arange(60)[:, None] % 3) == (torch.arange(30)[None, :] % 3)
    pairs = (torch.rand(60, 30, generator=rng) < torch.where(same, 0.7, 0.05)).nonzero()
    pl.DataFrame(
        {
            "user": [f"user-{q}" for q in pairs[:, 0].tolist()],
            "item": [f"item-{c}" for c in pairs[:, 1].tolist()],
            "rating": torch.randint(1, 6, (len(pairs),), generator=rng).numpy(),
            "timestamp": torch.randint(10**9, 2 * 10**9, (len(pairs),), generator=rng).numpy(),
        }
    ).write_csv(home / "ratings.csv")
    data = rf.prepare(home / "ratings.csv", out=home / "data")
    rf.fit("rg2-plain", data, width=8, out=home / "model")
    return home


@pytest.fixture
def home(fitted: Path, tmp_path: Path) -> Path:
    """A writable copy of ``fitted``."""
    return Path(shutil.copytree(fitted, tmp_path / "home"))


@pytest.fixture
def ratings(home: Path) -> Path:
    return home / "ratings.csv"


@pytest.fixture
def model(home: Path) -> Path:
    return home / "model"


@pytest.fixture
def graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, a model of it, and new rows."""
    monkeypatch.setitem(METHODS, "linear", LINEAR)
    data = data_of()
    folder.save(data, tmp_path / "data")
    grader_of(data).save(tmp_path / "model")
    rows = data.graded("test")
    pl.DataFrame(
        {
            "id": [f"p{number}" for number in range(200)],
            "dose": rows.numbers[:, 1].numpy(),
            "age": rows.numbers[:, 0].numpy(),
            "site": [("a", "b", "")[c] for c in rows.categories[:, 0].tolist()],
        }
    ).write_csv(tmp_path / "new.csv")
    return tmp_path
