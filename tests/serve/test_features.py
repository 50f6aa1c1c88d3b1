"""Searches by the features of a new query, over HTTP."""

from collections.abc import Callable
from pathlib import Path

from planted import informed_groups
from serving import Client

import rankfold as rf


def test_a_new_query_by_its_features(tmp_path: Path, start: Callable[..., Client]) -> None:
    path = tmp_path / "people"
    model = rf.fit("bir", informed_groups(), encoder="towers", width=8, epochs=20, out=path)
    client = start(people=path)
    assert client.get("/card").json()["accepts"] == ["queries", "features", "candidates"]
    one = {"group": "g4", "age": 20}
    expected = model.search(features=one, k=3).keys[0]
    for given in (one, [one]):
        (result,) = client.search("people", features=given, k=3)
        assert result["query"] == one
        assert [entry["candidate"] for entry in result["candidates"]] == expected
    wrong = client.post("/search", {"features": {"colour": 1}})
    assert wrong.status_code == 400
    assert "unknown column" in wrong.json()["error"]
