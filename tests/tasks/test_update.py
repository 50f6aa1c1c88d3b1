"""Models on disk and their evaluation after pairs are added or queries removed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from added_pairs import MORE, PAIRS, same

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import fit_and_add, forget
from rankfold.types import Dataset, Interactions

pytestmark = pytest.mark.usefixtures("extra_methods")


# ---------------------------------------------------------------------------------- leaks


def pairs_in(data: Dataset, part: Interactions) -> set[tuple[Any, Any]]:
    queries = data.queries.take(part.query_of_pair().long()).to_list()
    return set(zip(queries, data.candidates.take(part.candidates).to_list(), strict=True))


@pytest.mark.parametrize("method", ["sums", "neighbours"])
def test_pairs_added_after_the_fit_are_counted(method: str) -> None:
    """Validation: pairs of folded-in queries; test: added pairs."""
    pairs = [(q, (q * c * c + c) % 19) for q in range(15) for c in range(10)]
    data = rf.prepare(pl.DataFrame(pairs, schema=["query", "candidate"], orient="row"))
    ranker = rf.fit(method, data)
    test = sorted(pairs_in(data, data.split("test")))
    known = sorted(pairs_in(data, data.split("train")))
    more = [*test[-3:], *known[:9], (99, 1), (99, 2)]
    grown = ranker.add(_columns(more))
    touched = {query for query, _ in test[-3:]}
    validation = pairs_in(data, data.split("validation"))
    expected = sum(query in touched for query, _ in validation)
    assert 0 < expected < len(validation)

    def leaks(model: Ranker, split: Any, data: Dataset = data) -> int:
        return rf.evaluate(model, data, split=split, metrics="ndcg@3").trained_on

    assert leaks(ranker, "test") == leaks(ranker, "validation") == 0
    assert leaks(grown, "test") == 3
    assert leaks(grown, "validation") == expected
    for moved in (grown.forget([0]), grown.add(([-1], [2]))):  # the rows of those counted move
        assert (leaks(moved, "test"), leaks(moved, "validation")) == (3, expected)
    last = test[-1][0]
    assert leaks(grown.forget([last]), "test") == sum(query != last for query, _ in test[-3:])
    assert leaks(ranker.forget([0]), "test") == leaks(ranker.forget([0]), "validation") == 0
    other = rf.prepare(pl.DataFrame(more, schema=["query", "candidate"], orient="row"), seed=3)
    tested = pairs_in(other, other.split("test"))
    assert leaks(grown, "test", other) == len(tested) > 0


def test_a_refit_still_counts_validation_after_a_removal() -> None:
    pairs = [(q, (q * c * c + c) % 19) for q in range(15) for c in range(10)]
    data = rf.prepare(pl.DataFrame(pairs, schema=["query", "candidate"], orient="row"))
    ranker = rf.fit("sums", data, refit=True).forget([3])
    left = [pair for pair in pairs_in(data, data.split("validation")) if pair[0] != 3]
    result = rf.evaluate(ranker, data, split="validation", metrics="ndcg@3")
    assert result.trained_on == len(left)
    assert result.unknown == 1
    assert rf.evaluate(ranker, data, metrics="ndcg@3").trained_on == 0


def _columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [query for query, _ in pairs], [candidate for _, candidate in pairs]


# ---------------------------------------------------------------------------------- on disk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Prepared ``data`` and ``more``."""
    whole = {"split": (1.0, 0.0, 0.0)}
    rf.prepare(PAIRS, out=tmp_path / "data", **whole)
    rf.prepare(MORE, out=tmp_path / "more", **whole)
    return tmp_path


def test_a_model_is_fitted_once_and_then_added_to(home: Path) -> None:
    out = home / "model"
    first = fit_and_add("sums", home / "data", home / "more", out)
    assert same(first, rf.fit("sums", PAIRS).add(MORE))
    assert same(rf.load(out), first)
    fitted = []
    again = fit_and_add(
        "sums", home / "data", home / "more", out, report=lambda *_: fitted.append(1)
    )
    assert fitted == []
    assert same(again, first)
    assert len(rf.load(out).model.notes["added"]) == 2


def test_a_model_of_another_fit_is_not_changed(home: Path) -> None:
    out = home / "model"
    rf.fit("sums", home / "data", out=out)
    before = storage.read(out).manifest
    for method, data, message in (
        ("popularity", "data", "was fitted by sums, not by popularity"),
        ("sums", "more", "was fitted on other data than .*more"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            fit_and_add(method, home / data, home / "more", out)
        assert "nothing was changed" in caught.value.hint
    with pytest.raises(UserError, match="is a data folder"):
        fit_and_add("sums", home / "data", home / "more", home / "more")
    assert storage.read(out).manifest == before


def test_invalid_pairs_are_refused_before_the_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        fit_and_add("sums", home / "data", home / "nowhere", home / "model")
    monkeypatch.setitem(METHODS, "sums", replace(METHODS["sums"], answers=()))
    with pytest.raises(UserError, match="cannot add pairs"):
        fit_and_add("sums", home / "data", home / "more", home / "model")
    assert not (home / "model").exists()


def test_no_file_of_the_folder_holds_a_forgotten_query(home: Path) -> None:
    out = home / "model"
    keys = ["someone-in-particular", "bob"]
    rf.fit("sums", (keys, ["tea", "ink"])).save(out)

    def files_with_the_key() -> list[Path]:
        return [path for path in out.iterdir() if keys[0].encode() in path.read_bytes()]

    assert files_with_the_key() != []
    assert forget(out, keys[:1]).queries.keys.to_list() == ["bob"]
    assert rf.load(out).queries.keys.to_list() == ["bob"]
    assert files_with_the_key() == []
    assert len(list(out.iterdir())) == 5  # the manifest and its files
