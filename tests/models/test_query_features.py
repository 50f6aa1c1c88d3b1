"""New queries by their features: their towers, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from planted import NEWCOMER, groups, informed_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.types import Columns, Features


def fitted(name: str = "bir", **more: Any) -> Ranker:
    ranker = rf.fit(name, informed_groups(), encoder="towers", width=8, **{"epochs": 20, **more})
    assert isinstance(ranker, Ranker)
    return ranker


@pytest.fixture(scope="module")
def model() -> Ranker:
    return fitted()


@pytest.mark.parametrize("name", ["bir", "xir", "softmax"])
def test_a_new_query_gets_the_candidates_of_its_group(name: str) -> None:
    ranking = fitted(name).search(features=[{"group": "g2"}, {"group": "g5", "age": 30}], k=5)
    assert [{key % 6 for key in keys} for keys in ranking.keys] == [{2}, {5}]


@pytest.mark.parametrize(
    ("name", "more"),
    [("bce", {}), ("bir", {"similarity": "cosine", "temperature": 0.2}), ("sml", {})],
)
def test_a_query_without_pairs_has_the_vector_of_its_features(
    name: str, more: dict[str, Any]
) -> None:
    ranker = fitted(name, epochs=2, **more)
    encode = METHODS[name].open(ranker.model).features
    assert encode is not None
    columns = Columns(("age",), {"group": tuple(f"g{n}" for n in range(6))})
    place = torch.tensor([[NEWCOMER % 6]], dtype=torch.int32)
    vector = encode(Features(torch.tensor([[120.0]]), place, columns), "query")
    row = ranker.queries.find([NEWCOMER])
    torch.testing.assert_close(vector, ranker.model.tensors["queries"][row])


def test_missing_and_unknown_values_add_nothing() -> None:
    """No training row lacks a value, so nothing is learnt about lacking one."""
    ranker = fitted(epochs=2)
    plain = ranker.search(features={"age": 30})
    assert ranker.search(features={"age": 30, "group": "new"}).keys == plain.keys
    level = ranker.model.tensors["query_tower.known.levels.weight"][-1]
    assert torch.equal(level, torch.zeros_like(level))


def test_saved_and_loaded(model: Ranker, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    one = {"group": "g1", "age": 3}
    assert again.search(features=one).keys == model.search(features=one).keys


def test_errors(model: Ranker) -> None:
    with pytest.raises(UserError, match="unknown column 'colour'"):
        model.search(features={"colour": "red"})
    with pytest.raises(UserError, match="'age' must be a number"):
        model.search(features={"age": "old"})
    with pytest.raises(UserError, match="have no explanation"):
        model.search(features={"age": 1}, explain=True)
    with pytest.raises(UserError, match="cannot be queried by history") as caught:
        model.search(history=[1])
    assert "by features" in str(caught.value.hint)
    tables = rf.fit("bpr", groups(), width=4, epochs=1)
    with pytest.raises(UserError, match="without features of queries") as caught:
        tables.search(features={"age": 1})
    assert "--query-features" in str(caught.value.hint)
    with pytest.raises(UserError, match="rg2-plain does not rank by features"):
        rf.fit("rg2-plain", groups(), width=4).search(features={"age": 1})
