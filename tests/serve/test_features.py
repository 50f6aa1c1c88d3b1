"""Searches by the features of a new query, over HTTP."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from planted import informed_groups
from serving import Client

import rankfold as rf


def test_a_new_query_by_its_features(tmp_path: Path, start: Callable[..., Client]) -> None:
    path = tmp_path / "people"
    model = rf.fit("bir", informed_groups(), encoder="towers", width=8, epochs=20, out=path)
    client = start(people=path)
    card = client.get("/card").json()
    assert card["accepts"] == ["queries", "features", "candidates"]
    assert [one["name"] for one in card["features"]] == ["age", "group"]
    one = {"group": "g4", "age": 20}
    expected = model.search(features=one, k=3).keys[0]
    for given in (one, [one]):
        (result,) = client.search("people", features=given, k=3)
        assert result["query"] == one
        assert [entry["candidate"] for entry in result["candidates"]] == expected
    wrong = client.post("/search", {"features": {"colour": 1}})
    assert wrong.status_code == 400
    assert "unknown column" in wrong.json()["error"]


def test_a_history_in_order(tmp_path: Path, start: Callable[..., Client]) -> None:
    """What a query chose is listed in order of time, and ranked for in the given order."""
    rows = [(q, (7 * q - step) % 30, step) for q in range(30) for step in range(4)]
    table = pl.DataFrame(rows, schema=["query", "candidate", "time"], orient="row")
    path = tmp_path / "walks"
    more = {"encoder": "history", "pooling": "recent", "width": 4, "epochs": 1}
    data = rf.prepare(table, split=(1, 0, 0), time_column="time")
    model = rf.fit("bpr", data, out=path, **more)
    client = start(walks=path)
    assert client.get("/card").json()["accepts"] == ["queries", "history", "candidates"]
    listed = client.get("/history", params={"query": "3"}).json()["candidates"]
    assert [entry["candidate"] for entry in listed] == [21, 20, 19, 18]
    for history in ([1, 2, 3], [3, 2, 1]):
        (result,) = client.search("walks", history=history, k=5)
        got = [entry["score"] for entry in result["candidates"]]
        assert got == pytest.approx(model.search(history=history, k=5).scores[0].tolist())


def test_results_with_their_features(tmp_path: Path, start: Callable[..., Client]) -> None:
    pairs = pl.DataFrame({"query": [0, 0, 1, 1, 2], "candidate": ["a", "b", "b", "c", "c"]})
    about = pl.DataFrame({"candidate": ["a", "b"], "price": [1.5, None], "kind": ["x", "y"]})
    data = rf.prepare(pairs, candidate_features=about, split=(1, 0, 0))
    rf.fit("popularity", data, out=tmp_path / "shop")
    rf.fit("popularity", rf.prepare(pairs, split=(1, 0, 0)), out=tmp_path / "plain")
    client = start(shop=tmp_path / "shop", plain=tmp_path / "plain")
    given = {"queries": [0], "k": 3, "include_seen": True, "with_features": True}
    (result,) = client.search("shop", **given)
    assert {one["candidate"]: one["features"] for one in result["candidates"]} == {
        "a": {"price": 1.5, "kind": "x"},
        "b": {"price": None, "kind": "y"},
        "c": {"price": None, "kind": None},
    }
    refused = client.post("/models/plain/search", given)
    assert refused.status_code == 400
    assert "no features" in refused.json()["error"]
