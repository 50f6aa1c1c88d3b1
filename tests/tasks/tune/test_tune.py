"""The search for settings: its proposals, its results, and how it resumes."""

import csv
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from alembic.util import pyfiles
from linear_grades import random_rows
from planted import dense, split_groups
from text_samples import random_data

import rankfold as rf
from rankfold import config, storage
from rankfold.methods import METHODS
from rankfold.tasks.fit.plan import make_plan as make_fit_plan
from rankfold.tasks.tune import TuneResult, tune
from rankfold.tasks.tune.plan import parse_budget, points
from rankfold.training.history import History
from rankfold.types import (
    Choices,
    Columns,
    Dataset,
    Method,
    Model,
    Opened,
    Range,
    Run,
    Step,
    Vocabulary,
    from_pairs,
)

SMALL = {"width": 8, "sweeps": 3}
LEVELS = Range(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Level:
    """Serves a share of the queries perfectly; the first steps are worse."""

    level: float = 0.5
    other: int = 0
    steps: int = 1
    fault: str = "none"


def fit_level(data: Dataset, settings: Level, _run: Run) -> Iterator[Step]:
    if settings.fault == "refused" or (settings.fault == "low" and settings.level < 0.5):
        raise rf.UserError(f"level {settings.level} is too low")
    wanted = dense(data.split("validation")).float()
    for number in range(1, settings.steps + 1):
        if settings.fault == "interrupt" and number == settings.steps:
            signal.raise_signal(signal.SIGINT)
        share = settings.level * number / settings.steps
        served = torch.arange(len(wanted)) < share * len(wanted)
        queries = torch.where(served[:, None], wanted, -wanted)
        tensors = {"queries": queries, "candidates": torch.eye(wanted.shape[1])}
        model = Model("level", asdict(settings), tensors)
        loss = float("nan") if settings.fault == "nan" else 0.0
        yield Step(number, loss, 0.0, model, dict, number == settings.steps)


@pytest.fixture(scope="module", autouse=True)
def level() -> Iterator[None]:
    """A method with known best settings, and searches that learn from the third trial on.

    The modules of database versions, which every new study executes again, are executed once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyfiles, "load_module_py", cache(pyfiles.load_module_py))
        method = Method("known", Level, "interactions", fit_level, lambda _model: Opened())
        patch.setitem(METHODS, "level", method)
        patch.setattr("rankfold.tasks.tune.trial.RANDOM_TRIALS", 2)
        yield


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``reference``."""
    return tmp_path_factory.mktemp("whole") / "t"


@pytest.fixture(scope="module")
def reference(data: Dataset, whole: Path) -> TuneResult:
    """A search without an interrupt."""
    return tune("ials", data, out=whole, trials=5, fixed=SMALL)


def outcomes(tuned: TuneResult) -> list[tuple[object, ...]]:
    """The trials without their times."""
    return [(one.number, one.state, one.score, one.settings, one.steps) for one in tuned.trials]


def same_model(one: TuneResult, other: TuneResult) -> bool:
    ours, theirs = one.model.model.tensors, other.model.model.tensors
    return all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())


# ---------------------------------------------------------------------------------- results


def test_the_best_trial_is_kept_and_can_be_fitted_again(
    data: Dataset, whole: Path, reference: TuneResult
) -> None:
    tuned = reference
    assert [trial.number for trial in tuned.trials] == [1, 2, 3, 4, 5]
    assert tuned.score == max(trial.score or 0 for trial in tuned.trials) == tuned.best.score
    assert tuned.settings == {**SMALL, **tuned.best.settings}
    assert tuned.settings.keys() == {"width", "sweeps", "reg", "background"}
    settings = config.read(whole / "best.toml")
    assert settings == tuned.settings
    again = rf.fit("ials", data, **settings, metric=tuned.metric)
    for name, tensor in again.model.tensors.items():
        assert torch.equal(tensor, tuned.model.model.tensors[name])
    assert max(one["score"] for one in again.model.notes["history"]) == tuned.score
    assert rf.load(whole / "model").model.notes["trial"] == tuned.best.number


def test_the_first_trial_has_the_defaults(reference: TuneResult) -> None:
    defaults = METHODS["ials"].config()
    assert reference.trials[0].settings == {"reg": defaults.reg, "background": defaults.background}
    assert len({trial.settings["reg"] for trial in reference.trials}) == 5


def test_earlier_results_guide_the_search(data: Dataset, tmp_path: Path) -> None:
    tuned = tune("level", data, out=tmp_path / "t", trials=16, space={"level": LEVELS})
    later = [float(trial.settings["level"]) for trial in tuned.trials[8:]]
    assert sum(later) / len(later) > 0.75  # at random .5
    assert tuned.score > 0.9


def test_trials_are_written_as_a_table(data: Dataset, tmp_path: Path) -> None:
    space = {"level": Choices((0.25, 0.75))}
    tuned = tune("level", data, out=tmp_path / "t", space=space, fixed={"fault": "low"})
    with (tmp_path / "t" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["level"] for row in rows] == [str(t.settings["level"]) for t in tuned.trials]
    assert {row["level"]: row["state"] for row in rows} == {"0.25": "failed", "0.75": "complete"}
    assert {row["level"]: row["message"] for row in rows}["0.25"] == "level 0.25 is too low"


def test_test_pairs_are_never_read(reference: TuneResult, data: Dataset, tmp_path: Path) -> None:
    test = data.split("test")
    poison = replace(test, candidates=torch.full_like(test.candidates, 10**9))
    other = tune("ials", replace(data, test=poison), out=tmp_path / "p", trials=5, fixed=SMALL)
    assert outcomes(other) == outcomes(reference)
    assert same_model(other, reference)


def test_settings_of_none_and_text_survive_the_file(tmp_path: Path) -> None:
    texts = with_validation(random_data(3))
    fixed = {"label_weight": None, "bigrams": False}
    tuned = tune("text-neighbours", texts, out=tmp_path / "t", trials=2, fixed=fixed)
    settings = config.build(
        METHODS["text-neighbours"].config, config.read(tmp_path / "t" / "best.toml")
    )
    assert settings.label_weight is None
    assert settings.bigrams is False
    assert settings.neighbours == tuned.settings["neighbours"]


# ---------------------------------------------------------------------------------- kinds of data


def with_validation(data: Dataset) -> Dataset:
    """The data with some training pairs held out for validation."""
    train = data.split("train")
    queries, held_out = train.query_of_pair().long(), torch.arange(train.n_pairs) % 4 == 0
    shape = (train.n_queries, train.n_candidates)
    parts = [
        from_pairs(queries[some], train.candidates[some].long(), None, shape)
        for some in (~held_out, held_out)
    ]
    return replace(data, train=parts[0], validation=parts[1])


def test_texts(tmp_path: Path) -> None:
    tuned = tune("text-neighbours", with_validation(random_data(3)), out=tmp_path / "t", trials=3)
    assert tuned.metric == "ndcg@10"
    assert len(tuned.trials) == 3
    assert tuned.model.model.method == "text-neighbours"


def test_graded(tmp_path: Path) -> None:
    parts = [random_rows(seed, 80) for seed in (1, 2)]
    columns = Columns(("age", "dose"), {"site": ("a", "b")})
    grades = Vocabulary.numbered(3, ["low", "mid", "high"])
    graded = Dataset("graded", *parts, None, Vocabulary.numbered(160), grades, columns=columns)
    fixed = {"epochs": 3, "width": 4, "batch_size": 32}
    tuned = tune("ce", graded, out=tmp_path / "t", trials=3, fixed=fixed)
    assert tuned.metric == "pauc@fpr=0.1"
    assert len({str(trial.settings) for trial in tuned.trials}) == 3
    assert isinstance(tuned.model, rf.Grader)


def test_a_self_tuning_method_is_fitted_once(data: Dataset, tmp_path: Path) -> None:
    tuned = tune("rg2", data, out=tmp_path / "t", trials=5, fixed={"width": 8})
    assert len(tuned.trials) == 1
    assert tuned.settings == {"width": 8}
    evaluated = rf.evaluate(tuned.model, data, split="validation", metrics=["ndcg@10"])
    assert tuned.score == pytest.approx(evaluated.metrics["ndcg@10"])
    assert tuned.score > 0.3


# ---------------------------------------------------------------------------------- resuming


def test_a_search_in_parts_equals_one_at_once(
    reference: TuneResult, data: Dataset, tmp_path: Path
) -> None:
    for trials in (2, 4, 4, 5):
        parts = tune("ials", data, out=tmp_path / "t", trials=trials, fixed=SMALL)
        assert len(parts.trials) == trials
    assert outcomes(parts) == outcomes(reference)
    assert same_model(parts, reference)


def test_another_seed_proposes_other_settings(data: Dataset, tmp_path: Path) -> None:
    searches = [
        tune("level", data, out=tmp_path / str(seed), trials=3, seed=seed, space={"level": LEVELS})
        for seed in (0, 1)
    ]
    first, second = ([trial.settings["level"] for trial in one.trials] for one in searches)
    assert first[0] == second[0]  # the default
    assert set(first[1:]).isdisjoint(second[1:])


class Stopped(Exception):
    """In place of a kill: nothing is cleaned up."""


@pytest.mark.parametrize("at", [1, 4])
def test_an_unfinished_trial_is_run_again(
    reference: TuneResult, data: Dataset, tmp_path: Path, at: int
) -> None:
    def stop(what: str, _share: float) -> None:
        if f"trial {at} " in what and "step 2" in what:
            raise Stopped

    options: dict[str, Any] = {"trials": 5, "fixed": SMALL}
    for _ in range(2):  # twice in the same place
        with pytest.raises(Stopped):
            tune("ials", data, out=tmp_path / "cut", report=stop, **options)
    messages: list[str] = []
    cut = tune(
        "ials", data, out=tmp_path / "cut", report=lambda w, _: messages.append(w), **options
    )
    assert f"trial {at} of 5" in messages[0]
    assert outcomes(cut) == outcomes(reference)
    assert same_model(cut, reference)


def test_a_killed_search_is_resumed(tmp_path: Path) -> None:
    pairs = pl.DataFrame({"query": [1, 1, 2, 2, 3, 3] * 9, "candidate": list(range(54))})
    rf.prepare(pairs, out=tmp_path / "data", split=(0.6, 0.2, 0.2))
    code = f"""
import os, rankfold as rf
def die(what, share):
    if "trial 3 " in what and "step" in what: os._exit(9)
rf.tune("ials", {str(tmp_path / "data")!r}, out={str(tmp_path / "t")!r}, trials=4, report=die,
        fixed={{"width": 2, "sweeps": 2}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    options: dict[str, Any] = {"trials": 4, "fixed": {"width": 2, "sweeps": 2}}
    tuned = tune("ials", tmp_path / "data", out=tmp_path / "t", **options)
    assert outcomes(tuned) == outcomes(
        tune("ials", tmp_path / "data", out=tmp_path / "whole", **options)
    )


def test_interrupts_wait_for_the_trial(data: Dataset, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    options: dict[str, Any] = {"space": {"level": LEVELS}, "fixed": {"fault": "interrupt"}}
    for done in (1, 2):  # the fit has one step and ends with it
        with pytest.raises(KeyboardInterrupt):
            tune("level", data, out=tmp_path / "t", trials=3, **options)
        with (tmp_path / "t" / "trials.csv").open() as file:
            assert len(list(csv.DictReader(file))) == done
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_model_is_fitted_again(data: Dataset, tmp_path: Path) -> None:
    first = tune("ials", data, out=tmp_path / "t", trials=3, fixed=SMALL)
    for path in sorted((tmp_path / "t" / "model").iterdir()):
        path.unlink()
    again = tune("ials", data, out=tmp_path / "t", trials=3, fixed=SMALL)
    assert outcomes(again) == outcomes(first)
    assert same_model(again, first)


SEARCH: dict[str, Any] = {"trials": 1, "space": {"level": LEVELS}, "fixed": {"other": 1}}


@pytest.fixture(scope="module")
def searched(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("searched") / "t"
    tune("level", data, out=path, **SEARCH)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "with seed = 0, not 1"),
        ({"metric": "mrr@10"}, "with metric = ndcg@10, not mrr@10"),
        ({"space": {"level": Range(0.1, 1.0)}}, "with space: level: low = 0.0, not 0.1"),
        ({"fixed": {"other": 2}}, "with fixed: other = 1, not 2"),
    ],
)
def test_another_search_is_refused(
    data: Dataset, searched: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(rf.UserError, match="t is a search") as caught:
        tune("level", data, out=searched, **{**SEARCH, **change})
    assert message in str(caught.value)
    assert "another --out" in str(caught.value.hint)


def test_a_search_of_another_method_or_data_is_refused(data: Dataset, tmp_path: Path) -> None:
    tune("level", data, out=tmp_path / "t", trials=1, space={})
    with pytest.raises(rf.UserError, match="with method = level, not popularity"):
        tune("popularity", data, out=tmp_path / "t", trials=1)
    with pytest.raises(rf.UserError, match="with other data"):
        tune("level", split_groups(1), out=tmp_path / "t", trials=1, space={})


# ---------------------------------------------------------------------------------- limits


def test_a_grid_is_tried_point_by_point(data: Dataset, tmp_path: Path) -> None:
    space = {"level": Choices((0.2, 0.5, 0.8)), "other": Choices((0, 1))}
    tuned = tune("level", data, out=tmp_path / "t", trials=50, space=space)
    tried = [(one.settings["level"], one.settings["other"]) for one in tuned.trials]
    assert sorted(tried) == sorted(product((0.2, 0.5, 0.8), (0, 1)))
    assert tried[0] == (0.5, 0)  # the defaults
    assert tuned.settings["level"] == 0.8


def test_the_papers_grid(data: Dataset, tmp_path: Path) -> None:
    tuned = tune("ials", data, out=tmp_path / "t", trials=3, space="paper", fixed=SMALL)
    assert {trial.settings["reg"] for trial in tuned.trials} <= {0.0003, 0.001, 0.003, 0.01}
    with pytest.raises(rf.UserError, match="no paper states a grid for ease"):
        tune("ease", data, out=tmp_path / "e", space="paper")


def test_nothing_to_search_is_one_trial(data: Dataset, tmp_path: Path) -> None:
    tuned = tune("popularity", data, out=tmp_path / "t", trials=9)
    assert outcomes(tuned) == [(1, "complete", tuned.score, {}, 1)]
    both = {"reg": 0.01, "background": 0.1, **SMALL}
    assert len(tune("ials", data, out=tmp_path / "i", trials=9, fixed=both).trials) == 1


def test_bad_trials_are_pruned(data: Dataset, tmp_path: Path) -> None:
    levels = (0.9, 1.0, 0.8, 0.95, 0.1, 0.2)
    options: dict[str, Any] = {"fixed": {"steps": 6}, "space": {"level": Choices(levels)}}
    tuned = tune("level", data, out=tmp_path / "t", seed=order_with_low_last(levels), **options)
    *first, fifth, sixth = tuned.trials
    assert [trial.state for trial in first] == ["complete"] * 4
    for trial in (fifth, sixth):
        assert trial.state == "pruned"
        assert trial.steps < 6
        assert trial.score is not None
        assert trial.score < tuned.score


def order_with_low_last(levels: tuple[float, ...]) -> int:
    """A seed whose order of the grid has the two lowest levels last."""
    grid, plan = {"level": Choices(levels)}, make_fit_plan("level", split_groups(), {})
    for seed in range(1000):
        order = [point["level"] for point in points(plan, grid, seed)]
        if set(order[-2:]) == {0.1, 0.2}:
            return seed
    raise AssertionError


def test_a_budget_of_time(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0)
    for module in ("", ".plan", ".trial"):
        monkeypatch.setattr(f"rankfold.tasks.tune{module}.monotonic", clock)
    options: dict[str, Any] = {"space": {"level": LEVELS}, "budget": "16s"}
    tuned = tune("level", data, out=tmp_path / "t", **options)
    n = len(tuned.trials)
    assert 2 <= n <= 8  # each call of the clock takes a second
    again = tune("level", data, out=tmp_path / "t", **{**options, "budget": 5})
    assert outcomes(again) == outcomes(tuned)  # the budget was already used up
    more = tune("level", data, out=tmp_path / "t", **{**options, "budget": "24s"})
    assert len(more.trials) > n
    assert outcomes(more)[:n] == outcomes(tuned)
    both = tune("level", data, out=tmp_path / "b", trials=1, **options)
    assert len(both.trials) == 1


class Clock:
    """Advances by ``tick`` at each call."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_budgets() -> None:
    assert [parse_budget(given) for given in ("120s", "2m", "1.5h", 7, "7")] == [
        120,
        120,
        5400,
        7,
        7,
    ]
    for wrong in ("0s", "-1", "2d", "soon", "1e9h", "", "m"):
        with pytest.raises(rf.UserError, match="`budget` must be a time, got") as caught:
            parse_budget(wrong)
        assert caught.value.hint == "write 120s, 2m or 1h"


def test_two_at_once_in_one_folder_are_refused(data: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": {"level": LEVELS}, "trials": 1}
    (tmp_path / "t").mkdir()
    with (
        storage.locked(tmp_path / "t"),
        pytest.raises(rf.UserError, match="another process") as caught,
    ):
        tune("level", data, out=tmp_path / "t", **options)
    assert "--out" in str(caught.value.hint)
    assert not list((tmp_path / "t").iterdir())
    assert len(tune("level", data, out=tmp_path / "t", **options).trials) == 1


# ---------------------------------------------------------------------------------- failures


def test_a_failed_trial_does_not_end_the_search(data: Dataset, tmp_path: Path) -> None:
    space = {"level": LEVELS}
    tuned = tune("level", data, out=tmp_path / "t", trials=6, space=space, fixed={"fault": "low"})
    assert len(tuned.trials) == 6
    for trial in tuned.trials:
        failed = trial.settings["level"] < 0.5
        assert trial.state == ("failed" if failed else "complete")
        assert trial.message == (f"level {trial.settings['level']} is too low" if failed else None)
    assert any(trial.state == "failed" for trial in tuned.trials)
    again = tune("level", data, out=tmp_path / "t", trials=6, space=space, fixed={"fault": "low"})
    assert outcomes(again) == outcomes(tuned)  # they are not run again


@pytest.mark.parametrize(
    ("fault", "message"),
    [("refused", "level 0.5 is too low"), ("nan", "the loss became nan at step 1")],
)
def test_all_fail(data: Dataset, tmp_path: Path, fault: str, message: str) -> None:
    options: dict[str, Any] = {"trials": 3, "space": {"level": LEVELS}, "fixed": {"fault": fault}}
    with pytest.raises(rf.UserError, match=message) as caught:
        tune("level", data, out=tmp_path / "t", **options)
    assert "3 of 3 trials failed" in str(caught.value.hint)


@pytest.mark.parametrize(("fault", "made"), [("nan", 10), ("refused", 14)])
def test_equal_failures_end_the_search_early(
    data: Dataset, tmp_path: Path, fault: str, made: int
) -> None:
    """Refused trials name their level, so their messages differ."""
    space = {"level": Range(0.0, 1.0)}
    with pytest.raises(rf.UserError) as caught:
        tune("level", data, out=tmp_path / "t", trials=14, space=space, fixed={"fault": fault})
    assert f"{made} of {made} trials failed" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "`trials` must be at least 1, got 0"),
        ({"space": "wide"}, "there is no space 'wide'"),
        ({"space": {"depth": LEVELS}}, "there is no option 'depth'"),
        ({"fixed": {"depth": 3}}, "there is no option 'depth'"),
        ({"fixed": {"patience": 3}}, "there is no option 'patience'"),
        ({"fixed": {"level": "high"}}, "`level` must be a number, got 'high'"),
        ({"metric": "accuracy"}, "accuracy"),
        ({"tries": 3}, "there is no option 'tries'"),
    ],
)
def test_wrong_options_are_refused_at_once(
    data: Dataset, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(rf.UserError, match=message):
        tune("level", data, out=tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_data_without_validation_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(rf.UserError, match="needs a validation split") as caught:
        tune("ials", replace(data, validation=None), out=tmp_path / "t")
    assert "--validation-share" in str(caught.value.hint)
    with pytest.raises(rf.UserError, match="takes graded rows, but the data is interactions"):
        tune("ce", data, out=tmp_path / "t")


def test_a_folder_with_other_files_is_refused(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(rf.UserError, match="holds files that are not of a search"):
        tune("level", data, out=tmp_path, trials=1)
    with pytest.raises(rf.UserError, match="cannot write into"):
        tune("level", data, out=tmp_path / "notes.txt", trials=1)
    with pytest.raises(rf.UserError, match="there is no folder"):
        tune("level", data, out=tmp_path / "a" / "b", trials=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_a_damaged_study_is_named(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(rf.UserError, match=r"cannot open .*study\.db"):
        tune("level", data, out=tmp_path, trials=1)


def test_without_optuna(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(rf.UserError, match="needs optuna") as caught:
        tune("level", data, out=tmp_path / "t", trials=1)
    assert caught.value.hint == "pip install 'rankfold[tune]'"


# ---------------------------------------------------------------------------------- fit, seconds


def test_a_fit_ends_when_its_time_is_up(data: Dataset) -> None:
    steps: list[int] = []

    def report(_history: History, step: Step) -> None:
        steps.append(step.number)

    rf.fit("level", data, steps=9, level=1.0, seconds=0, report=report)
    assert steps == [1]
    ranker = rf.fit("level", data, steps=9, level=1.0, seconds=1e9)
    assert ranker.model.notes["chosen"] == 9
    with pytest.raises(rf.UserError, match="`seconds` must be at least 0, got -1"):
        rf.fit("level", data, seconds=-1)


def test_time_does_not_end_a_fit_without_a_model(data: Dataset) -> None:
    for name in ("rg2", "rg2-plain"):
        cut, reference = (rf.fit(name, data, width=8, seconds=given) for given in (0, None))
        assert torch.equal(cut.model.tensors["queries"], reference.model.tensors["queries"])


def test_a_refit_runs_all_selected_steps(data: Dataset) -> None:
    ranker = rf.fit("ials", data, **SMALL, seconds=0, refit=True)
    phases = [entry["phase"] for entry in ranker.model.notes["history"]]
    assert phases == ["fit", "refit"]


def test_a_checkpoint_may_have_more_time(data: Dataset, tmp_path: Path) -> None:
    """The time limit is not part of the identity of a fit."""

    def stop(_history: History, step: Step) -> None:
        if step.number == 2:
            raise Stopped

    options: dict[str, Any] = {**SMALL, "out": tmp_path / "m", "checkpoint_seconds": 0.0}
    with pytest.raises(Stopped):
        rf.fit("ials", data, **options, seconds=1e9, report=stop)
    resumed = rf.fit("ials", data, **options, resume=True)
    reference = rf.fit("ials", data, **SMALL)
    assert torch.equal(resumed.model.tensors["queries"], reference.model.tensors["queries"])
