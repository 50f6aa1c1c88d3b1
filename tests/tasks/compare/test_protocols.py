"""A protocol sets defaults, which given options override; published rows join the results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from linear_grades import data_of
from planted import groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.tasks.compare.protocols import PROTOCOLS, with_protocol
from rankfold.tasks.compare.published import PUBLISHED, published
from rankfold.types import Dataset


@pytest.fixture
def gowalla(tmp_path: Path) -> Dataset:
    """Planted groups in the files of LightGCN, by the name of a set with published figures."""
    pairs = groups()
    for name, rest in (("train", (0, 1, 2)), ("test", (3,))):
        part = pairs.filter(((pairs["query"] + pairs["candidate"]) % 4).is_in(rest))
        lists = part.group_by("query", maintain_order=True).agg("candidate").rows()
        text = "".join(f"{query} {' '.join(map(str, own))}\n" for query, own in lists)
        (tmp_path / f"{name}.txt").write_text(text)
    return rf.prepare(tmp_path, source="gowalla")


def test_protocol_sets_defaults(gowalla: Dataset) -> None:
    methods, options = with_protocol(None, gowalla, {"protocol": "lightgcn"})
    assert methods == PROTOCOLS["lightgcn"].methods
    assert options["metrics"] == "ndcg@20,recall@20"
    assert options["trials"] == 16
    assert options["width"] == 64
    assert options["settings"] == {}


def test_given_options_override(gowalla: Dataset) -> None:
    given: dict[str, Any] = {
        "protocol": "lightgcn",
        "budget": "5s",
        "metrics": "mrr@10",
        "width": 32,
        "settings": {"rg2": {"tolerance": 0.1}},
        "sweep": {"reg": [1, 2]},
    }
    methods, options = with_protocol("a=rg2,ials@7", gowalla, given)
    assert methods == "a=rg2,ials@7"
    assert options["trials"] is None
    assert {name: options[name] for name in given} == given


def test_given_settings_override() -> None:
    data = of_source("steam")
    for more, expected in (
        ({"settings": {"bpr": {"negatives": 3, "lr": 0.1}}}, {"negatives": 3, "lr": 0.1}),
        ({"sweep": {"negatives": [1, 2]}}, {}),
    ):
        _, options = with_protocol("x=bpr@4", data, {"protocol": "rg2", **more})
        assert options["settings"] == {"bpr": expected}


def of_source(name: str) -> Dataset:
    data = rf.prepare(groups())
    return replace(data, summary={**data.summary, "source": name})


@pytest.mark.parametrize(("source", "expected"), [("steam", (10, 1)), ("ml-10m", (10, 10))])
def test_negatives_are_those_of_the_data_set(source: str, expected: tuple[int, int]) -> None:
    _, options = with_protocol("bpr,uib", of_source(source), {"protocol": "rg2"})
    assert tuple(options["settings"][name]["negatives"] for name in ("bpr", "uib")) == expected


def test_comparison_has_the_published_rows(gowalla: Dataset, tmp_path: Path) -> None:
    results = rf.compare(
        gowalla, "rg2,popularity", protocol="lightgcn", trials=1, out=tmp_path / "out"
    )
    assert results["protocol"] == "lightgcn"
    assert "--protocol lightgcn" in results["command"]
    assert results["width"] == 64
    widths = {method["name"]: method["settings"].get("width") for method in results["methods"]}
    assert widths == {"rg2": 64, "rg2 width=512": 512, "popularity": None}
    rows = {row["name"]: row for row in results["published"]["rows"]}
    assert rows["LightGCN"]["metrics"] == {"recall@20": 0.183, "ndcg@20": 0.1554}
    assert "SIGIR 2020" in rows["LightGCN"]["origin"]
    ndcg = [row["metrics"]["ndcg@20"] for row in results["published"]["rows"]]
    assert ndcg == sorted(ndcg, reverse=True)
    assert not results["published"]["same"]  # 120 queries are not Gowalla
    steps = results["methods"][0]["steps"]
    assert [step["seconds"] for step in steps] == sorted(step["seconds"] for step in steps)
    assert len(steps) > 1  # the path over time


def test_strong_generalisation_by_its_protocol(tmp_path: Path) -> None:
    data = rf.prepare(groups(m=240), split="queries:20,30", fold_in=0.8)
    results = rf.compare(data, protocol="strong", trials=1, out=tmp_path / "out")
    assert {method["error"] for method in results["methods"]} == {None}
    equal = [method["name"] for method in results["methods"] if method["equal_terms"]]
    assert ",".join(equal) == PROTOCOLS["strong"].methods
    assert (results["queries"], results["published"]) == (30, None)
    means = {m["name"]: m["metrics"]["ndcg@100"]["mean"] for m in results["methods"]}
    assert means["ease"] > means["popularity"]


def test_grid_of_the_paper_is_searched(tmp_path: Path) -> None:
    data = rf.prepare(groups())
    results = rf.compare(
        data, "wrmf,popularity", protocol="rg2", trials=3, out=tmp_path / "out", metrics="ndcg@10"
    )
    assert "--space paper" in results["command"]
    settings = results["methods"][0]["settings"]
    assert settings["reg"] in (0.0, 0.1, 0.01, 0.001)
    assert settings["alpha"] in (0.5, 1.0, 2.0, 4.0, 8.0)
    assert results["methods"][1]["error"] is None  # without a grid, in its usual space


def test_sizes_tell_whether_the_data_is_the_same() -> None:
    table = PUBLISHED["lightgcn"]["gowalla"]
    summary = {"source": "gowalla", "queries": table.queries, "candidates": table.candidates}
    found = published("lightgcn", summary, ["ndcg@20"])
    assert found is not None
    assert found["same"]
    assert all(list(row["metrics"]) == ["ndcg@20"] for row in found["rows"])
    other = published("lightgcn", {**summary, "queries": 70_679}, ["ndcg@20"])
    assert other is not None
    assert not other["same"]
    assert published("lightgcn", {**summary, "source": "steam"}, ["ndcg@20"]) is None
    assert published(None, summary, ["ndcg@20"]) is None


def test_unknown_protocol_has_a_hint(gowalla: Dataset) -> None:
    with pytest.raises(UserError, match="there is no protocol 'ligtgcn'") as error:
        with_protocol(None, gowalla, {"protocol": "ligtgcn"})
    assert error.value.hint == "did you mean lightgcn?"


def test_graded_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is for pairs"):
        rf.compare(data_of(), protocol="strong", out=tmp_path / "out")


def test_graded_rows_have_default_methods() -> None:
    """What the rate in the loss gains, for trees and for a network; all of them are registered."""
    methods, _ = with_protocol(None, data_of(), {})
    assert set(str(methods).split(",")) == {"cba-trees", "trees", "cba", "ce"} <= METHODS.keys()
    assert with_protocol("ce", data_of(), {})[0] == "ce"
