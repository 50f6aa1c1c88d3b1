"""In Python: explicit signatures, cards, progress in notebooks, predictions as tables."""

import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
from planted import split_groups

import rankfold as rf
from rankfold.data.options import Preparation
from rankfold.notebook import card, shown
from rankfold.tasks.options import FitOptions
from rankfold.types import Dataset

SETTINGS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def model(data: Dataset) -> rf.Ranker:
    return rf.fit("ials", data, width=6, sweeps=3)


@pytest.mark.parametrize(("name", "config"), [("prepare", Preparation), ("fit", FitOptions)])
def test_signatures_show_every_option(name: str, config: type[Any]) -> None:
    function = getattr(rf, name)
    shown_ = inspect.signature(function).parameters
    for one in config.__dataclass_fields__.values():
        assert shown_[one.name].default == one.default
        assert shown_[one.name].annotation is not inspect.Parameter.empty
        assert f"    {one.name}" in function.__doc__


@pytest.mark.parametrize("name", [n for n in dir(rf) if n.islower() and n != "load_data"])
def test_public_functions_say_what_they_take(name: str) -> None:
    function = getattr(rf, name)
    if not inspect.isfunction(function):
        return
    parameters = inspect.signature(function).parameters.values()
    assert all(one.annotation is not one.empty for one in parameters)
    hidden = [one.name for one in parameters if one.kind is one.VAR_KEYWORD]
    assert not hidden or name in ("fit", "blend")  # their methods have settings of their own
    assert (function.__doc__ or "").strip()


def test_options_are_still_checked() -> None:
    with pytest.raises(rf.UserError, match="no option 'kcores'"):
        rf.prepare(pl.DataFrame({"user": [1], "item": [2]}), kcores=3)


# ---------------------------------------------------------------------------------- cards


def test_data_and_models_are_one_line_and_a_card(data: Dataset, model: rf.Ranker) -> None:
    for value in (data, model):
        assert len(repr(value)) < 80
        assert "\n" not in repr(value)
    html = data._repr_html_()
    assert f"{len(data.queries):,} queries x {len(data.candidates):,} candidates" in html
    assert f"{data.split('train').n_pairs:,} pairs" in html
    assert html.count("<rect") > 1
    scores = [entry["score"] for entry in model.model.notes["history"]]
    assert f"ndcg@10 {max(scores):.4f}" in model._repr_html_()
    assert model._repr_html_().count("<rect") == len(scores)


def test_a_card_shows_text_as_text() -> None:
    html = card("<b>", {"<script>": "&"}, [0.0, 1.0], '"note"')
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert 'height="36.0"' in html
    assert "<svg" not in card("t", {}, [0.0, 0.0])


# ---------------------------------------------------------------------------------- progress


class Handle:
    def __init__(self) -> None:
        self.updates: list[str] = []

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.updates.append(content["text/html"])


def test_progress_moves_one_bar_per_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    handles: list[Handle] = []

    def display(_content: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        handles.append(Handle())
        return handles[-1]

    python, displays = ModuleType("IPython"), ModuleType("IPython.display")
    python.get_ipython, displays.display = lambda: shell, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    shown("reading <a>", 0.0)
    shown("reading <a>", 0.5)
    assert len(handles) == 1
    assert 'value="0.500"' in handles[0].updates[0]
    assert "&lt;a&gt;" in handles[0].updates[0]
    shell.execution_count = 2
    rf.fit("ials", split_groups(), width=4, sweeps=2)
    assert len(handles) == 2
    assert "ndcg@10" in handles[1].updates[-1]


# ---------------------------------------------------------------------------------- predict


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_predict_takes_a_table_and_writes_any_format(
    suffix: str, model: rf.Ranker, tmp_path: Path
) -> None:
    keys = pl.DataFrame({"query": model.queries.keys.head(3)})
    kept = rf.predict(model, keys, k=2)
    written = rf.predict(model, keys, tmp_path / f"lists{suffix}", k=2)
    assert kept["queries"] == written["queries"] == 3
    ranking = model.search(keys["query"].to_list(), k=2)
    assert kept.to_polars()["candidate"].to_list() == [key for row in ranking.keys for key in row]
    read = {".csv": pl.read_csv, ".jsonl": pl.read_ndjson, ".parquet": pl.read_parquet}[suffix]
    table = read(tmp_path / f"lists{suffix}")
    assert table.columns == ["query", "rank", "candidate", "score"]
    assert table["candidate"].to_list() == kept.to_polars()["candidate"].to_list()
    assert written.to_polars()["score"].to_list() == pytest.approx(table["score"].to_list())


def test_predict_takes_pandas_and_a_folder(model: rf.Ranker, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    frame = pl.DataFrame({"query": model.queries.keys.head(2)}).to_pandas()
    assert rf.predict(tmp_path / "m", frame, k=1).to_pandas().shape == (2, 4)
