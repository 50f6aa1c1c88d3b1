"""A mistake in Python gives one UserError that speaks Python; results are also tables."""

import traceback
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from planted import groups, split_groups

import rankfold as rf
from rankfold.errors import UserError, in_python
from rankfold.types import Dataset


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def model(data: Dataset) -> rf.Ranker:
    return rf.fit("puresvd", data, width=6)


MISTAKES: dict[str, tuple[Callable[[rf.Ranker, Dataset], object], str, str]] = {
    "arguments swapped": (lambda _, d: rf.fit(d, "rg2"), "a name, got Dataset", "comes first"),
    "capitals": (lambda _, d: rf.fit("RG2", d), "no method 'RG2'", "did you mean rg2"),
    "a real number of results": (lambda m, _: m.search(0, k=3.0), "`k` must be a whole", "10"),
    "no folder": (lambda _, d: rf.compare(d, ["rg2"]), "`out` is required", "folder"),
    "no model": (lambda _, d: rf.evaluate(d, d), "model or its path, got Dataset", "comes before"),
    "one share": (lambda *_: rf.prepare(groups(), split=0.8), "the split 0.8", "0.8,0.1,0.1"),
    "a table without names": (
        lambda m, _: rf.predict(m, groups().rename({"query": "a", "candidate": "b"}), k=2),
        "^table.parquet has no column",
        "it has a",
    ),
    "no path": (lambda *_: rf.load(3), "expected a model or its path, got int", ""),
    "no data": (lambda m, _: rf.evaluate(m, 3), "cannot read a table from int", "polars"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_error(name: str, model: rf.Ranker, data: Dataset) -> None:
    act, message, hint = MISTAKES[name]
    with pytest.raises(UserError, match=message) as error:
        act(model, data)
    assert hint in error.value.hint


def test_a_traceback_shows_the_hint_in_python_words() -> None:
    error = UserError("no column", hint="use --query-column NAME, or leave --strict out")
    shown = "".join(traceback.format_exception_only(error))
    assert "hint: use query_column=NAME, or leave strict out" in shown
    assert error.hint.startswith("use --query-column")


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        ("--split queries", "split queries"),
        ("prepare it with --kcore 5", "prepare it with kcore=5"),
        ("use --out DIR", "use out=DIR"),
        ("a--b and -k stay", "a--b and -k stay"),
    ],
)
def test_options_become_keyword_arguments(flags: str, keywords: str) -> None:
    assert in_python(flags) == keywords


def test_a_table_of_pairs_is_evaluated_as_test_pairs(data: Dataset) -> None:
    model = rf.fit("puresvd", data, width=6, refit=True)
    test = data.split("test")
    rows, columns = test.query_of_pair().numpy(), test.candidates.numpy()
    pairs = pl.DataFrame(
        {
            "query": data.queries.keys.gather(rows),
            "candidate": data.candidates.keys.gather(columns),
        }
    )
    assert rf.evaluate(model, pairs)["ndcg@10"] == pytest.approx(
        rf.evaluate(model, data)["ndcg@10"]
    )
    more = pl.concat(
        [pairs, groups().head(1).with_columns(candidate=pl.lit(10_000))], how="vertical_relaxed"
    )
    assert rf.evaluate(model, more).metrics.keys() == rf.evaluate(model, pairs).metrics.keys()


def test_evaluations_and_comparisons_are_tables(
    model: rf.Ranker, data: Dataset, tmp_path: Path
) -> None:
    found = rf.evaluate(model, data, metrics=["ndcg@10", "recall@20"])
    assert found.to_polars().rows() == list(found.metrics.items())
    assert "per_query" not in repr(found)
    results = rf.compare(data, ["popularity", "ease"], out=tmp_path, metrics=["ndcg@5"])
    table = results.to_polars()
    assert table["name"].to_list() == ["popularity", "ease"]
    assert pl.read_csv(tmp_path / "results.csv")["mean"].to_list() == pytest.approx(
        table["mean"].to_list()
    )
