"""The search for settings: its proposals, its results and its limits."""

import csv
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from level_method import LEVELS, SMALL, Stopped, outcomes, same_model
from linear_grades import random_rows
from planted import split_groups
from text_samples import random_data

import rankfold as rf
from rankfold import config
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.tasks.fit.plan import make_plan as make_fit_plan
from rankfold.tasks.options import parse_budget
from rankfold.tasks.tune import TuneResult, tune
from rankfold.tasks.tune.plan import points
from rankfold.types import Choices, Columns, Dataset, Vocabulary, from_pairs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``reference``."""
    return tmp_path_factory.mktemp("whole") / "t"


@pytest.fixture(scope="module")
def reference(data: Dataset, whole: Path) -> TuneResult:
    """A search without an interrupt."""
    return tune("ials", data, out=whole, trials=5, fixed=SMALL)


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


def test_the_first_trial_has_the_defaults(reference: TuneResult, data: Dataset) -> None:
    defaults = METHODS["ials"].config().for_data(data.split("train"), SINGLE_PROCESS)
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


def test_another_seed_proposes_other_settings(data: Dataset, tmp_path: Path) -> None:
    searches = [
        tune("level", data, out=tmp_path / str(seed), trials=3, seed=seed, space={"level": LEVELS})
        for seed in (0, 1)
    ]
    first, second = ([trial.settings["level"] for trial in one.trials] for one in searches)
    assert first[0] == second[0]  # the default
    assert set(first[1:]).isdisjoint(second[1:])


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
    for module in ("", ".plan"):
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
