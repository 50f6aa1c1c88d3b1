"""A whole comparison: its results, its files, how it resumes, and its errors."""

import csv
import json
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from linear_grades import data_of
from planted import groups, split_groups

import rankfold as rf
from rankfold import storage
from rankfold.data import folder
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.tasks.compare import runner
from rankfold.tasks.compare.memory import measure_peak
from rankfold.tasks.compare.plan import parse_settings, parse_sweep
from rankfold.tasks.compare.results import quarters
from rankfold.types import Dataset, Method, Opened, Run, Step

EXAMPLES = Path(__file__).parents[2] / "report"
TIMES = ("fit_seconds", "peak_bytes", "steps", "trials")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "data"
    rf.prepare(groups(), out=path)
    return path


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """Results without the values that differ between runs: times, memory, the folder."""
    methods = [{k: v for k, v in one.items() if k not in TIMES} for one in results["methods"]]
    return {**results, "methods": methods, "command": ""}


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


def test_the_same_method_with_other_seeds_is_tied(data: Path, tmp_path: Path) -> None:
    how = {"seeds": 2, "metrics": "ndcg@10"}
    results = rf.compare(data, ["bpr", "again=bpr@100"], out=tmp_path / "out", **how)
    methods = by_name(results)
    assert [method["seeds"] for method in methods.values()] == [[0, 1], [100, 101]]
    seeds = [method["metrics"]["ndcg@10"]["seeds"] for method in methods.values()]
    assert seeds[0] != seeds[1]
    [other] = results["tests"]["ndcg@10"]["others"].values()
    assert other["p_seeds"] > 0.05  # though over these few queries it looks significant
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
    softmax, rg2 = results["methods"]
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


# ---------------------------------------------------------------------------------- resuming

KILLED = """
import sys, time
import rankfold as rf
from rankfold.tasks.compare import runner
before = runner._fit
def slow(plan, entry, settings, seed, report):
    if entry.method == "bpr" and seed == 1:
        print("fitting", flush=True)
        time.sleep(60)
    before(plan, entry, settings, seed, report)
runner._fit = slow
rf.compare(sys.argv[1], "ease,bpr", out=sys.argv[2], seeds=2, settings={"bpr": {"epochs": 2}})
"""


def test_a_killed_comparison_is_resumed(data: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(data), str(tmp_path / "killed")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fitting\n"
        process.send_signal(signal.SIGKILL)
    runs = tmp_path / "killed" / "runs"
    done = {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-*/manifest.json")}
    assert {path.parent.name for path in done} == {"seed-0", "seed-1"}
    assert len(done) == 3
    assert not (tmp_path / "killed" / "results.json").exists()
    how = {"seeds": 2, "settings": {"bpr": {"epochs": 2}}}
    killed = rf.compare(data, "ease,bpr", out=tmp_path / "killed", **how)
    assert {path: path.stat().st_mtime_ns for path in done} == done  # nothing is run twice
    assert timeless(killed) == timeless(rf.compare(data, "ease,bpr", out=tmp_path / "other", **how))
    assert not list(runs.glob("*/model-*"))


def method_of(config: type[Any], fit: Callable[[Dataset, Any, Run], Iterator[Step]]) -> Method:
    return Method("", config, "interactions", fit, lambda _model: Opened())


def fit_interrupted(data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    for step in METHODS["popularity"].fit(data, config, run):
        assert step.final
        signal.raise_signal(signal.SIGINT)
        yield step


def test_an_interrupt_of_the_last_step_stops_all_and_keeps_the_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, out = METHODS["popularity"].config, tmp_path / "out"
    monkeypatch.setitem(METHODS, "halted", method_of(kind, fit_interrupted))
    with pytest.raises(KeyboardInterrupt):
        rf.compare(data, "halted,ease", out=out, refit=False)
    assert (out / "runs/halted/model-0").exists()
    assert not (out / "runs/ease").exists()
    monkeypatch.setitem(METHODS, "halted", method_of(kind, fit_broken))
    again = rf.compare(data, "halted,ease", out=out, refit=False)
    assert [method["error"] for method in again["methods"]] == [None, None]  # not fitted again


def test_methods_may_join_and_finished_ones_stay(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rf.compare(data, "ease", out=tmp_path / "out")
    fits: list[str] = []
    fit = runner.fit
    monkeypatch.setattr(
        runner, "fit", lambda name, *a, **k: (fits.append(name), fit(name, *a, **k))
    )
    both = rf.compare(data, "ease,popularity", out=tmp_path / "out")
    assert fits == ["popularity"]
    assert both["methods"][0] == first["methods"][0]


def test_a_finished_model_is_tested_after_an_interrupt(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr(runner, "_test_ranker", cut_off)
        with pytest.raises(KeyboardInterrupt):
            rf.compare(data, "ease", out=tmp_path / "out")
    assert (tmp_path / "out/runs/ease/model-0/manifest.json").exists()
    monkeypatch.setattr(runner, "fit", None)  # is not called again
    results = rf.compare(data, "ease", out=tmp_path / "out")
    assert results["methods"][0]["error"] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seeds": 2}, "with seeds = 1, not 2"),
        ({"metrics": ["mrr@5"]}, r"with metrics = \['ndcg@10'\], not \['mrr@5'\]"),
        ({"metric": "mrr@5"}, "with metric = ndcg@10, not mrr@5"),
        ({"refit": False}, "with refit = True, not False"),
        ({"settings": {"ease": {"reg": 3}}}, "with settings: reg = 2, not 3"),
        ({"settings": {}}, "with settings: reg = 2, not None"),
    ],
)
def test_the_folder_of_another_comparison_is_refused(
    data: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    how: dict[str, Any] = {"metrics": ["ndcg@10"], "settings": {"ease": {"reg": 2}}}
    rf.compare(data, "ease", out=tmp_path / "out", **how)
    before = (tmp_path / "out" / "results.json").read_bytes()
    with pytest.raises(UserError, match=message) as caught:
        rf.compare(data, "ease", out=tmp_path / "out", **{**how, **changed})
    assert "--out" in caught.value.hint
    assert (tmp_path / "out" / "results.json").read_bytes() == before


def test_two_comparisons_in_one_folder_are_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = rf.compare(data, "popularity", out=out)
    left = out / "runs/ease/model-0"  # as if another process had not finished it
    left.mkdir(parents=True)
    with (
        storage.locked(out),
        pytest.raises(UserError, match=f"another process is writing {out}") as caught,
    ):
        rf.compare(data, "popularity,ease", out=out)
    assert "--out" in str(caught.value.hint)
    assert left.exists()
    again = rf.compare(data, "popularity", out=out)
    assert timeless(again) == timeless(results)


def test_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    rf.compare(data, "popularity", out=tmp_path / "out")
    with pytest.raises(UserError, match="with other data"):
        rf.compare(rf.prepare(groups(7)), "popularity", out=tmp_path / "out")


def test_no_model_of_an_earlier_fit_is_held(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of a fit is released before the next one begins."""
    alive: list[weakref.ref[torch.Tensor]] = []
    held: list[int] = []
    fit, load = runner.fit, runner.load

    def watching(*arguments: Any, **options: Any) -> Any:
        held.append(sum(one() is not None for one in alive))
        made = fit(*arguments, **options)
        alive.extend(weakref.ref(tensor) for tensor in made.model.tensors.values())
        return made

    def loading(path: Path) -> Any:
        ranker = load(path)
        alive.extend(weakref.ref(tensor) for tensor in ranker.model.tensors.values())
        return ranker

    monkeypatch.setattr(runner, "fit", watching)
    monkeypatch.setattr(runner, "load", loading)
    rf.compare(data, "ease,rg2-plain,popularity", out=tmp_path / "out", seeds=2)
    assert len(alive) > 6
    assert held == [0] * 6


def test_peak_memory_is_that_of_the_context() -> None:
    with measure_peak() as large:
        torch.ones(60_000_000)
    with measure_peak() as small:
        time.sleep(0.05)
    assert large.bytes is not None
    assert small.bytes is not None
    assert large.bytes > small.bytes + 100 * 2**20


# ---------------------------------------------------------------------------------- failures


@dataclass(frozen=True, slots=True)
class NoConfig:
    """No settings."""


def fit_refused(_data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    raise UserError("it cannot be", hint="do not try")


def fit_broken(_data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    raise ZeroDivisionError("by zero")


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


# ---------------------------------------------------------------------------------- tuning


def test_each_method_is_tuned_with_the_same_budget_and_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def tune(method: str, _data: Dataset, **how: Any) -> Any:
        calls.append({"method": method, **how})
        states = ("complete", "pruned", "failed", "complete")
        trials = [SimpleNamespace(state=state, seconds=0.5) for state in states]
        settings = {**how["fixed"], **({"reg": 7.0} if method == "ease" else {})}
        return SimpleNamespace(settings=settings, score=0.5, trials=trials, model=None)

    monkeypatch.setattr(runner, "tune", tune)
    monkeypatch.setattr("rankfold.tasks.compare.plan.find_spec", lambda _name: object())
    how: dict[str, Any] = {"trials": 4, "settings": {"wrmf": {"width": 4, "sweeps": 2}}}
    results = rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **how)
    assert [(c["method"], c["trials"], c["budget"], c["seed"]) for c in calls] == [
        ("ease", 4, None, 0),
        ("wrmf", 4, None, 3),
    ]
    assert calls[1]["fixed"] == {"width": 4, "sweeps": 2}
    assert all(call["metric"] == "ndcg@10" for call in calls)
    ease, wrmf = results["methods"]
    assert ease["settings"]["reg"] == 7.0
    assert wrmf["settings"]["width"] == 4
    assert ease["trials"] == {"done": 2, "pruned": 1, "failed": 1, "seconds": 2.0}
    assert results["budget"] == {"trials": 4, "seconds": None}
    again = rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **how)
    assert len(calls) == 2
    assert again == results
    with pytest.raises(UserError, match="with trials = 4, not 5"):
        rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **{**how, "trials": 5})


def test_a_missing_tuning_library_is_refused_before_the_work(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.tasks.compare.plan.find_spec", lambda _name: None)
    with pytest.raises(UserError, match="optuna") as caught:
        rf.compare(data, "ease", out=tmp_path / "out", budget="10s")
    assert "rankfold[tune]" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_search_of_real_trials(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    both = [rf.compare(data, "ease,popularity", out=tmp_path / n, trials=3) for n in "ab"]
    assert timeless(both[0]) == timeless(both[1])
    assert both[0]["methods"][0]["trials"]["done"] == 3
    assert not (tmp_path / "a/runs/ease/tuning/model").exists()


def test_a_model_left_by_another_entry_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between fit and test, then started again with another method under the name."""
    data = split_groups()
    test = runner._test_ranker

    def cut_off(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_test_ranker", cut_off)
    with pytest.raises(KeyboardInterrupt):
        rf.compare(data, "a=puresvd", settings={"a": {"width": 2}}, out=tmp_path / "c")
    monkeypatch.setattr(runner, "_test_ranker", test)
    results = rf.compare(data, "a=ials", settings={"a": {"width": 3}}, out=tmp_path / "c")
    (row,) = results["methods"]
    assert row["error"] is None
    assert row["settings"]["width"] == 3
    assert "sweeps" in row["settings"]
