"""A whole comparison: its results, its files and its errors."""

import csv
import json
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from compared_methods import NoConfig, fit_broken, fit_refused, method_of, timeless
from linear_grades import data_of

import rankfold as rf
from rankfold.data import folder
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.tasks.compare import runner
from rankfold.tasks.compare.peak_memory import measure_peak
from rankfold.tasks.compare.plan import command_of, make_plan, parse_settings, parse_sweep
from rankfold.tasks.compare.results import quarters
from rankfold.tasks.options import CompareOptions

EXAMPLES = Path(__file__).parents[2] / "report"


def table(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "results.csv").read_text().splitlines()))


def by_name(results: dict[str, Any]) -> dict[str, Any]:
    return {method["name"]: method for method in results["methods"]}


# ---------------------------------------------------------------------------------- results


def test_a_planted_difference_is_found_and_tested_once_per_seed(data: Path, tmp_path: Path) -> None:
    results = rf.compare(data, "rg2-plain,popularity", out=tmp_path / "out", seeds=2)
    methods = by_name(results)
    for name, metric in ((n, m) for n in methods for m in results["metrics"]):
        value = methods[name]["metrics"][metric]
        assert value["mean"] == pytest.approx(np.mean(value["seeds"]))
        assert (value["low"] is None) == (metric == "coverage@10")
        assert value["low"] is None or value["low"] < value["mean"] < value["high"]
    own = rf.evaluate(rf.fit("rg2-plain", data, seed=1, refit=True), data, metrics=["ndcg@10"])
    assert methods["rg2-plain"]["metrics"]["ndcg@10"]["seeds"][1] == pytest.approx(own["ndcg@10"])
    test = results["tests"]["ndcg@10"]
    assert test["best"] == "rg2-plain"
    other = test["others"]["popularity"]
    means = [methods[n]["metrics"]["ndcg@10"]["mean"] for n in ("popularity", "rg2-plain")]
    assert other["difference"] == pytest.approx(means[0] - means[1], abs=1e-6)
    assert not other["tied"]
    assert other["p"] < 0.01
    assert "coverage@10" not in results["tests"]


def test_all_methods_have_the_same_width_and_other_defaults_a_second_row(
    data: Path, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"settings": {"given": {"width": 8}}, "patience": 2}
    methods = "rg2,puresvd,given=puresvd,popularity"
    plan = make_plan(rf.load_data(data), "d", methods, CompareOptions(out=tmp_path, **how))
    assert [(e.name, e.settings.get("width"), e.equal_terms) for e in plan.entries] == [
        ("rg2", 8, True),
        ("rg2 width=512", 512, False),
        ("puresvd", 8, True),
        ("puresvd width=64", 64, False),
        ("given", 8, True),
        ("popularity", None, True),
    ]
    assert "--patience 2" in command_of(plan)
    results = rf.compare(data, "rg2,ease", out=tmp_path / "out", width=2, metrics="ndcg@10")
    assert results["width"] == 2
    widths = {method["name"]: method["settings"].get("width") for method in results["methods"]}
    assert widths == {"rg2": 2, "rg2 width=512": 512, "ease": None}
    assert results["tests"]["ndcg@10"]["best"] in ("rg2", "ease")


def test_a_swept_width_is_kept(data: Path, tmp_path: Path) -> None:
    options = CompareOptions(out=tmp_path, sweep={"width": ["4", "8"]})
    plan = make_plan(rf.load_data(data), "d", "puresvd,rg2", options)
    assert all(entry.equal_terms for entry in plan.entries)
    names = [f"{method} width={width}" for method in ("puresvd", "rg2") for width in (4, 8)]
    assert [entry.name for entry in plan.entries] == names


def test_the_same_method_with_other_seeds_is_tied(data: Path, tmp_path: Path) -> None:
    how = {"seeds": 3, "metrics": "ndcg@10"}
    results = rf.compare(data, ["softmax", "again=softmax@100"], out=tmp_path / "out", **how)
    methods = by_name(results)
    assert [method["seeds"] for method in methods.values()] == [[0, 1, 2], [100, 101, 102]]
    seeds = [method["metrics"]["ndcg@10"]["seeds"] for method in methods.values()]
    assert seeds[0] != seeds[1]
    [other] = results["tests"]["ndcg@10"]["others"].values()
    assert other["p_seeds"] > 0.05
    assert other["tied"]


def test_the_document_has_the_keys_that_the_report_reads(data: Path, tmp_path: Path) -> None:
    results = rf.compare(data, "ease,popularity", out=tmp_path / "out", metrics="ndcg@5,psp@3")
    example = json.loads((EXAMPLES / "example_results.json").read_text())
    assert example.keys() == results.keys()
    assert example["data"].keys() == results["data"].keys()
    assert example["machine"].keys() == results["machine"].keys()
    for method in results["methods"]:
        assert method.keys() == example["methods"][0].keys()
    test, other = results["tests"]["psp@3"], example["tests"]["ndcg@10"]
    assert test.keys() == other.keys()
    assert next(iter(test["others"].values())).keys() == other["others"]["ease"].keys()
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    rows = table(tmp_path / "out")
    assert [(row["name"], row["metric"]) for row in rows] == [
        (name, metric) for name in ("ease", "popularity") for metric in ("ndcg@5", "psp@3")
    ]
    assert float(rows[1]["mean"]) == by_name(results)["ease"]["metrics"]["psp@3"]["mean"]


def test_cost_and_groups_of_a_method(data: Path, tmp_path: Path) -> None:
    results = rf.compare(
        data, "softmax,rg2", out=tmp_path / "out", settings={"softmax": {"epochs": 4}}
    )
    softmax, rg2, _ = results["methods"]
    assert 1 < len(softmax["steps"]) <= 4
    assert [step["seconds"] for step in softmax["steps"]] == sorted(
        step["seconds"] for step in softmax["steps"]
    )
    assert softmax["steps"][-1]["seconds"] <= softmax["fit_seconds"][0]  # the refit is in these
    assert 1 <= len(rg2["steps"]) <= 4  # it is self-tuning: one for each decomposition
    assert softmax["settings"]["epochs"] == 4
    width = softmax["settings"]["width"]
    assert softmax["parameters"] >= (120 + 60) * width
    assert softmax["model_bytes"] > 4 * softmax["parameters"]
    assert softmax["peak_bytes"] > 50 * 2**20  # torch alone
    assert [part["name"] for part in softmax["popularity"]] == ["head", "torso", "tail"]
    assert sum(part["queries"] for part in softmax["history"]) == results["queries"]
    mean = np.average(
        [part["metrics"]["ndcg@10"] for part in softmax["history"]],
        weights=[part["queries"] for part in softmax["history"]],
    )
    assert mean == pytest.approx(softmax["metrics"]["ndcg@10"]["mean"], abs=1e-6)


def test_quarters_have_similar_sizes_and_keep_equal_counts_together() -> None:
    result = quarters(np.array([1, 1, 1, 2, 3, 4, 5, 9]))
    assert [name for name, _ in result] == ["1", "2", "3 to 4", "5 to 9"]
    assert np.sum([members for _, members in result], axis=0).tolist() == [1] * 8
    assert quarters(np.array([3, 3, 3])) == []


def test_numbers_are_the_same_in_another_run(data: Path, tmp_path: Path) -> None:
    both = [
        rf.compare(data, "bpr,ease", out=tmp_path / name, seeds=2, settings={"bpr": {"epochs": 2}})
        for name in "ab"
    ]
    assert timeless(both[0]) == timeless(both[1])


def test_a_sweep_has_one_entry_per_value(data: Path, tmp_path: Path) -> None:
    how = {"sweep": {"reg": ["1", "500"]}, "metrics": "ndcg@10"}
    results = rf.compare(data, "ease,popularity", out=tmp_path / "out", **how)
    methods = by_name(results)
    assert list(methods) == ["ease reg=1", "ease reg=500", "popularity"]
    assert [method["settings"].get("reg") for method in methods.values()] == [1, 500, None]
    value = methods["ease reg=500"]["metrics"]["ndcg@10"]
    expected = {end: value[end] for end in ("mean", "low", "high")}
    assert results["sweep"]["methods"]["ease"]["500"]["ndcg@10"] == expected
    example = json.loads((EXAMPLES / "example_results_sweep.json").read_text())
    assert results["sweep"].keys() == example["sweep"].keys()
    assert results["sweep"]["values"] == ["1", "500"]


def test_a_sweep_accepts_every_spelling_of_none(tmp_path: Path) -> None:
    data, how = data_of(), {"settings": {"cba": {"epochs": 1}}, "out": tmp_path / "out"}
    for spelling in ("none", "None", "auto", None):
        results = rf.compare(data, "cba", sweep={"sigma": [spelling, "0.5"]}, **how)
        assert list(by_name(results)) == ["cba sigma=none", "cba sigma=0.5"]
        assert results["sweep"]["values"] == ["none", "0.5"]
        assert list(results["sweep"]["methods"]["cba"]) == ["none", "0.5"]
    assert results["methods"][0]["settings"]["sigma"] is None
    assert sorted(path.name for path in (tmp_path / "out" / "runs").iterdir()) == [
        "cba-sigma=0.5",
        "cba-sigma=none",
    ]
    with pytest.raises(UserError, match="listed twice"):
        rf.compare(data, "cba", sweep={"sigma": ["none", "Auto"]}, **how)


# ---------------------------------------------------------------------------------- other data


def test_graded_rows(tmp_path: Path) -> None:
    folder.save(data_of(), tmp_path / "data")
    given = {"settings": {"ce": {"epochs": 4}}, "seeds": 2}
    results = rf.compare(tmp_path / "data", "ce,again=ce@7", out=tmp_path / "out", **given)
    first = results["methods"][0]
    example = json.loads((EXAMPLES / "example_results_graded.json").read_text())
    assert first["thresholds"].keys() == set(results["metrics"]) - {"order"}
    assert len(first["thresholds"]["auc"]) == len(results["data"]["grades"]) - 1
    assert np.mean(first["thresholds"]["auc"]) == pytest.approx(first["metrics"]["auc"]["mean"])
    assert len(first["calibration"]) == 2
    assert first["calibration"][0][0].keys() == example["methods"][0]["calibration"][0][0].keys()
    assert first["metrics"]["auc"]["low"] < first["metrics"]["auc"]["mean"]
    assert set(results["tests"]) == set(results["metrics"])
    assert results["tests"]["auc"]["others"].popitem()[1]["tied"]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_split_of_one_grade_is_refused_before_the_work(split: str, tmp_path: Path) -> None:
    data = data_of()
    rows = data.graded(split)
    same = replace(rows, grades=torch.ones_like(rows.grades))
    with pytest.raises(UserError, match=f"rows of the {split} split all have the same") as caught:
        rf.compare(replace(data, **{split: same}), "ce", out=tmp_path / "out")
    assert "--split" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("extra_methods")
def test_texts_show_examples_of_the_best_two(tmp_path: Path) -> None:
    topics = ["red apples", "blue kites", "green tea", "old maps", "cold noodles"]
    documents = pl.DataFrame(
        {
            "key": [f"d{i:02}" for i in range(60)],
            "text": [f"{topics[i % 5]} number {i % 3}" for i in range(60)],
            "labels": [[f"tag {i % 5}", "tag 1"] for i in range(60)],
        }
    )
    labels = pl.DataFrame({"candidate": [f"tag {i}" for i in range(5)], "text": topics})
    how: dict[str, Any] = {"format": "texts", "candidate_texts": labels, "seed": 1}
    data = rf.prepare(documents, split="queries:0.6,0.2,0.2", **how)
    results = rf.compare(data, "words,overlap,popularity", out=tmp_path / "out", metrics="ndcg@3")
    best = sorted(results["methods"], key=lambda one: -one["metrics"]["ndcg@3"]["mean"])
    assert [one["examples"] is None for one in best] == [False, False, True]
    example = json.loads((EXAMPLES / "example_results_texts.json").read_text())
    shown, expected = best[0]["examples"], example["methods"][0]["examples"][0]
    assert len(shown) == 5
    truth = {row["key"]: set(row["labels"]) for row in documents.iter_rows(named=True)}
    for one in shown:
        assert one.keys() == expected.keys()
        assert one["text"].split() == documents.filter(key=one["query"])["text"][0].split()
        right = {actual["candidate"] for actual in one["candidates"] if actual["right"]}
        assert right | {missed["candidate"] for missed in one["missed"]} == truth[one["query"]]
        assert one["candidates"][0]["text"] in topics


# ---------------------------------------------------------------------------------- memory


def test_models_of_earlier_fits_are_released(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of a fit is released before the next one begins."""
    alive: list[weakref.ref[torch.Tensor]] = []
    counts: list[int] = []
    fit, load = runner.fit, runner.load

    def count_then_fit(*arguments: Any, **options: Any) -> Any:
        counts.append(sum(one() is not None for one in alive))
        made = fit(*arguments, **options)
        alive.extend(weakref.ref(tensor) for tensor in made.model.tensors.values())
        return made

    def load_and_watch(path: Path) -> Any:
        ranker = load(path)
        alive.extend(weakref.ref(tensor) for tensor in ranker.model.tensors.values())
        return ranker

    monkeypatch.setattr(runner, "fit", count_then_fit)
    monkeypatch.setattr(runner, "load", load_and_watch)
    rf.compare(data, "ease,rg2-plain,popularity", out=tmp_path / "out", seeds=2)
    assert len(alive) > 6
    assert counts == [0] * 6


def test_peak_memory_is_that_of_the_context() -> None:
    with measure_peak() as large:
        torch.ones(60_000_000)
    with measure_peak() as small:
        time.sleep(0.05)
    assert large.bytes is not None
    assert small.bytes is not None
    assert large.bytes > small.bytes + 100 * 2**20


# ---------------------------------------------------------------------------------- failures


def test_a_failed_method_is_reported_as_a_row(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "refused", method_of(NoConfig, fit_refused))
    monkeypatch.setitem(METHODS, "broken", method_of(NoConfig, fit_broken))
    results = rf.compare(data, "refused,broken,popularity", out=tmp_path / "out")
    refused, broken, popularity = results["methods"]
    assert refused["error"] == {"message": "it cannot be", "hint": "do not try"}
    assert broken["error"]["message"] == "ZeroDivisionError: by zero"
    assert "fit_broken" in (tmp_path / "out/runs/broken/error.txt").read_text()
    assert popularity["error"] is None
    assert results["tests"]["ndcg@10"] == {"best": "popularity", "others": {}}
    assert refused.keys() == popularity.keys()
    failed = [row for row in table(tmp_path / "out") if row["error"]]
    assert [row["error"] for row in failed] == ["it cannot be", "ZeroDivisionError: by zero"]
    monkeypatch.setitem(METHODS, "refused", METHODS["popularity"])
    monkeypatch.setitem(METHODS, "broken", METHODS["popularity"])
    again = rf.compare(data, "refused,broken,popularity", out=tmp_path / "out")
    assert [method["error"] for method in again["methods"]] == [
        None
    ] * 3  # failures are tried again
    assert not (tmp_path / "out/runs/broken/error.txt").exists()


@pytest.mark.parametrize(
    ("methods", "how", "message"),
    [
        ("ease,bqr", {}, "there is no method 'bqr'"),
        ("ease,ce", {}, "ce takes graded rows, but the data is interactions"),
        ("ease,siamesexml", {}, "ranks by the texts"),
        ("ease,ease", {}, "ease is listed twice"),
        ("", {}, "no method was named"),
        ("a=b=c", {}, "cannot read the method"),
        ("../x=ease", {}, "is not a valid name"),
        ("ease", {"settings": {"ease": {"rag": 1}}}, "there is no option 'rag'"),
        ("ease", {"settings": {"ease": {"seed": 1}}}, "there is no option 'seed'"),
        ("ease", {"settings": {"bpr": {"lr": 1}}}, "for 'bpr', which is not compared"),
        ("ease", {"settings": {"ease": {"reg": "x"}}}, "`reg` must be a number, got 'x'"),
        ("ease", {"sweep": {"batch_size": [1]}}, "no compared method has"),
        ("ease", {"sweep": {"reg": [1]}, "settings": {"ease": {"reg": 2}}}, "both set and swept"),
        ("ease", {"seeds": 0}, "`seeds` must be at least 1, got 0"),
        ("ease", {"trials": 2, "budget": "10s"}, "both trials and a budget"),
        ("ease", {"metrics": "auc"}, "there is no metric 'auc'"),
        ("ease", {"metric": "coverage@5"}, "cannot validate by"),
        ("ease", {"device": "tpu"}, "`device` must be one of auto, cpu, cuda, got 'tpu'"),
    ],
)
def test_invalid_input_is_refused_before_the_work(
    data: Path, tmp_path: Path, methods: str, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        rf.compare(data, methods, out=tmp_path / "out", **how)
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_settings_and_sweeps_are_parsed() -> None:
    assert parse_settings(["rg2-plain.reg=.5", "a.batch-size=8", "a.x=b.c=d"]) == {
        "rg2-plain": {"reg": ".5"},
        "a": {"batch_size": "8", "x": "b.c=d"},
    }
    assert parse_sweep("batch-size=256, 1024") == {"batch_size": ["256", "1024"]}
    assert parse_sweep(None) == {}
    for wrong in ("reg=.5", "ease.=1", "ease.reg", ".reg=1"):
        with pytest.raises(UserError, match="--set"):
            parse_settings([wrong])
    with pytest.raises(UserError, match="--sweep"):
        parse_sweep("batch_size")
