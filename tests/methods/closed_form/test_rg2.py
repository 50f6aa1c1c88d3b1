"""rg2 selects its settings on validation, uses defaults without it, and resumes bit by bit."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
import torch
from planted import RG2_QUICK, RG2_SETTINGS, split_groups
from planted import split_data as split_data

import rankfold as rf
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.methods.closed_form import path_grid
from rankfold.methods.closed_form.path_grid import PathGrid, distance
from rankfold.methods.closed_form.path_scores import PathScores
from rankfold.methods.closed_form.path_search import DEFAULTS, EXPONENTS, PathSearch
from rankfold.methods.closed_form.racing import blend
from rankfold.methods.closed_form.rg2 import Config
from rankfold.solvers.path import PathPoint
from rankfold.training.early_stopping import validation_score
from rankfold.types import Dataset, Model, Run, from_pairs


def point(entry: Any) -> tuple[float, ...]:
    return tuple(entry[name] for name in RG2_SETTINGS)


def without_validation(data: Dataset) -> Dataset:
    return replace(data, validation=None)


def fold_in(model: Model, data: Dataset) -> torch.Tensor:
    fold = METHODS["rg2"].open(model).histories
    assert fold is not None
    return fold(data.split("train"))


# ---------------------------------------------------------------------------- on validation


@pytest.mark.parametrize("seed", range(3))
def test_a_point_as_good_as_the_best_of_the_path_is_chosen(seed: int) -> None:
    """All validation queries score the path here, so no other set of them can decide."""
    data = split_groups(seed)
    model = rf.fit("rg2", data, **RG2_QUICK).model
    path = {point(entry): entry for entry in model.notes["path"]}
    assert model.notes["chosen_by"] == "validation"
    chosen = path[point(model.config)]
    scores = sorted(entry["score"] for entry in path.values())
    assert chosen["score"] == model.notes["score"]
    assert chosen["score"] > scores[-1] - chosen["error"]
    assert chosen["score"] > scores[len(scores) // 2]
    assert len({round(score, 6) for score in scores}) > 10  # there was a choice


def test_the_choice_is_the_mean_of_points_that_cannot_be_told_apart() -> None:
    one, other = PathPoint(1, 16, 0.0, 0.1), PathPoint(1, 16, 0.5, 0.3)
    elsewhere, wider = PathPoint(2, 16, 0.9, 0.3), PathPoint(1, 64, 0.9, 0.3)
    with_tail = PathPoint(1, 16, 0.9, 0.3, 1.0)
    assert blend({one: 1.0}) == one
    others = {elsewhere: 0.9, wider: 0.9, with_tail: 0.9}
    assert blend({one: 1.0, other: 1.0, **others}) == PathPoint(1, 16, 0.25, 0.2)
    assert blend({other: 1.0, one: 0.25}) == PathPoint(1, 16, 0.4, 0.26)
    louder = with_tail._replace(tail_weight=4.0)
    assert blend({with_tail: 1.0, louder: 1.0, one: 0.9}).tail_weight == 2.0
    popular = one._replace(popularity=1.0)
    more = popular._replace(popularity=4.0)
    assert blend({popular: 1.0, more: 1.0, one: 0.9}).popularity == 2.0


def test_scores_of_the_path_are_those_of_the_models_at_its_points(data: Dataset) -> None:
    model = rf.fit("rg2", data, **RG2_QUICK).model
    path = model.notes["path"]
    assert len({entry["candidate_exponent"] for entry in path}) > 1
    for entry in path[:: len(path) // 8]:
        settings = {name: entry[name] for name in RG2_SETTINGS}
        alone = rf.fit("rg2", data, **RG2_QUICK, **settings)
        result = rf.evaluate(alone, data, split="validation", metrics=["ndcg@10"])["ndcg@10"]
        assert result == pytest.approx(entry["score"], abs=2e-3)


def test_no_neighbour_of_the_best_point_of_the_path_is_better(data: Dataset) -> None:
    """All validation queries score the path here. No point is listed twice."""
    path = rf.fit("rg2", data, **RG2_QUICK).model.notes["path"]
    scores = {point(entry): entry["score"] for entry in path}
    assert len(scores) == len(path)
    pairs = {entry[:2] for entry in scores}
    assert {(-0.375, 0.35), (-0.25, 0.35)} <= pairs <= set(EXPONENTS)
    best = max(scores, key=scores.__getitem__)
    grid = PathGrid.of(0, RG2_QUICK["width"], Config())
    top = grid.nearest(PathPoint(0, *best[2:]))  # the best may be a mean of points of the grid
    for other in (*grid.mixes(top), *grid.solutions(top), *grid.priors(top)):
        assert scores[(*best[:2], *other[1:])] <= scores[best]


def test_neighbours_are_one_step_away_and_no_tail_is_always_among_them() -> None:
    grid = PathGrid.of(3, 512, Config())
    at = PathPoint(3, 64, 0.9, 0.1, 8.0)
    assert {one.rank for one in grid.solutions(at)} == {32, 64, 128}
    assert {one.threshold for one in grid.solutions(at)} == {0.5, 0.9}
    assert {one.discount for one in grid.mixes(at)} == {0.0, 0.1, 0.2}
    assert {one.tail_weight for one in grid.mixes(at)} == {0.0, 4.0, 8.0, 16.0}
    assert {one.popularity for one in grid.priors(at)} == set(path_grid.POPULARITIES)
    given = PathGrid.of(3, 512, Config(rank=50, discount=0.15, tail_weight=1.0))
    for start in given.starts():
        assert {one[:2] for one in given.solutions(start)} == {(3, 50)}
        assert given.mixes(start) == [PathPoint(3, 50, 0.5, 0.15, 1.0)]


def test_few_components_are_found_behind_a_valley(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric of noisy pairs is best at a small rank, and falls and rises again beyond it."""
    monkeypatch.setattr(path_grid, "MIN_RANK", 1)
    ranks = PathGrid.of(0, 48, Config()).ranks
    heights = dict(zip(ranks, (0.7, 0.8, 0.6, 0.2, 0.1, 0.4, 0.5), strict=True))

    def measure(scores: PathScores, points: list[PathPoint], stage: int) -> Any:
        n = len(scores.stages[stage].queries)
        return {point: torch.full((n,), heights[point.rank]) for point in points}

    monkeypatch.setattr(PathScores, "measure", measure)
    model = rf.fit("rg2", data, width=48).model
    assert model.config["rank"] == ranks[1]


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ((0.1, 0.2, 0.3, 0.4, 0.5), [2, 3, 4]),
        ((0.1, 0.2, 0.3, 0.5, 0.4), [2, 3, 4]),
        ((0.1, 0.2, 0.4, 0.3, 0.1), [2, 3, 1]),
        ((0.1, 0.4, 0.3, 0.2, 0.1), [2, 3, 1, 0]),
        ((0.4, 0.3, 0.2, 0.1, 0.1), [2, 3, 1, 0]),
        ((0.4, 0.4, 0.4, 0.4, 0.4), [2, 3, 1]),
    ],
)
def test_exponents_are_searched_uphill_from_the_middle(
    data: Dataset, scores: tuple[float, ...], order: list[int]
) -> None:
    run = Run(torch.Generator(), torch.device("cpu"), SingleProcess())
    search = PathSearch(data.split("train"), Config(), run)
    search.exponents = list(EXPONENTS)
    assert len(search.exponents) == len(scores)
    while (place := search.next_place()) is not None:
        search.tried[place] = scores[place]
    assert list(search.tried) == order


def test_neighbours_of_the_winner_by_many_queries_are_tried(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first queries prefer the middle pair of exponents, the others those beyond the next."""
    first, later = (0.1, 0.4, 0.6, 0.59, 0.55), (0.1, 0.2, 0.3, 0.5, 0.9)

    def measure(scores: PathScores, points: list[PathPoint], stage: int) -> Any:
        n = len(scores.stages[stage].queries)
        noise = torch.where(torch.arange(n) % 2 == 0, 0.1, -0.1)
        heights = first if stage < 3 else later
        return {one: heights[one.place] + noise * (-1) ** one.place for one in points}

    monkeypatch.setattr(PathScores, "measure", measure)
    model = rf.fit("rg2", data, **RG2_QUICK, path_queries=8).model
    pairs = {entry[:2] for entry in map(point, model.notes["path"])}
    assert pairs == set(EXPONENTS[1:])
    assert point(model.config)[:2] == EXPONENTS[4]


def test_path_is_scored_on_a_sample_of_the_validation_queries(data: Dataset) -> None:
    few = rf.fit("rg2", data, **RG2_QUICK, path_queries=10).model.notes["path"]
    many = rf.fit("rg2", data, **RG2_QUICK).model.notes["path"]
    errors = [max(entry["error"] for entry in path) for path in (few, many)]
    assert errors[0] > 2 * errors[1] > 0


def test_close_points_are_scored_on_further_queries(data: Dataset) -> None:
    few = rf.fit("rg2", data, **RG2_QUICK, path_queries=10).model.notes["path"]
    errors = sorted(entry["error"] for entry in few)
    assert errors[-1] > 1.5 * errors[0]  # of 10 queries and of 80


@pytest.mark.parametrize(
    "given",
    [
        {"query_exponent": -0.5},
        {"candidate_exponent": 0.25},
        {"query_exponent": -0.1, "candidate_exponent": 0.6},
        {"rank": 5},
        {"threshold": 0.25},
        {"discount": 0.05},
        {"rank": 3, "threshold": 0.0, "discount": 0.0},
    ],
    ids=lambda given: ",".join(given),
)
def test_given_settings_stay_and_the_rest_is_selected(data: Dataset, given: dict[str, Any]) -> None:
    model = rf.fit("rg2", data, **RG2_QUICK, **given).model
    for name, value in given.items():
        assert model.config[name] == value
        assert {entry[name] for entry in model.notes["path"]} == {value}
    assert len({point(entry) for entry in model.notes["path"]}) > 1
    assert model.notes["chosen_by"] == "validation"


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"query_exponent": -0.1}, "candidate_exponent"),
        ({"candidate_exponent": 0.6}, "query_exponent"),
    ],
)
def test_exponent_off_the_grid_uses_the_default_of_the_other(
    data: Dataset, given: dict[str, float], other: str
) -> None:
    model = rf.fit("rg2", data, **RG2_QUICK, **given).model
    assert {entry[other] for entry in model.notes["path"]} == {DEFAULTS[other]}


@pytest.mark.parametrize("popularity", [0.0, 2.0])
def test_rank_is_that_of_the_vectors(data: Dataset, popularity: float) -> None:
    """Popularity is one more column."""
    columns = 5 + (popularity > 0)
    tensors = rf.fit("rg2", data, **RG2_QUICK, rank=5, popularity=popularity).model.tensors
    assert tensors["queries"].shape == (120, columns)
    assert tensors["candidates"].shape == (60, columns)


def test_popularity_adds_the_root_of_counts_to_the_scores(data: Dataset) -> None:
    """At weight 1 it has the mean square of the factors' scores."""
    options = {**RG2_QUICK, "rank": 6, "threshold": 0.0, "discount": 0.15, "tail": "none"}
    options |= {"query_exponent": -0.375, "candidate_exponent": 0.35}
    plain, more = (rf.fit("rg2", data, **options, popularity=w).model.tensors for w in (0.0, 1.0))
    scores, mixed = (t["queries"].double() @ t["candidates"].T.double() for t in (plain, more))
    slope = more["queries"][:, -1:].double()
    added = (mixed - scores) / slope
    roots = data.split("train").candidate_counts().double().sqrt()
    ratios = (roots / roots[0]).expand_as(added)
    torch.testing.assert_close(added / added[:1, :1], ratios, rtol=1e-4, atol=0)
    ratio = (scores / slope).square().mean() / added.square().mean()
    assert float(ratio) == pytest.approx(1, rel=1e-3)


# ---------------------------------------------------------------------------- without


def test_without_validation_the_defaults_are_used_and_named(data: Dataset) -> None:
    model = rf.fit("rg2", without_validation(data), width=8).model
    assert {name: model.config[name] for name in DEFAULTS} == DEFAULTS
    assert model.notes["chosen_by"] == "the defaults"
    assert "path" not in model.notes  # there was nothing to choose between


def test_without_validation_components_like_noise_are_dropped(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six groups have five components beside the mean. Random pairs have none."""
    monkeypatch.setattr(path_grid, "MIN_RANK", 1)
    assert rf.fit("rg2", without_validation(data), width=40).model.config["rank"] == 5
    rng = torch.Generator().manual_seed(0)
    pairs = (torch.rand(200, 100, generator=rng) < 0.1).nonzero()
    table = pl.DataFrame({"query": pairs[:, 0].numpy(), "candidate": pairs[:, 1].numpy()})
    noise = without_validation(rf.prepare(table))
    assert rf.fit("rg2", noise, width=40).model.config["rank"] <= 2


def test_without_validation_the_tail_and_popularity_follow_from_the_data(
    data: Dataset,
) -> None:
    model = rf.fit("rg2", without_validation(data), width=8, rank=6, tolerance=1e-4).model
    rows = data.split("train")
    run = Run(torch.Generator().manual_seed(1), torch.device("cpu"), SingleProcess())
    search = PathSearch(rows, Config(width=8, rank=6, tolerance=1e-4), run)
    *_, found = search.passes(search.exponents.index((-0.375, 0.35)), None)
    n_above = max(6, int((found.values > edge(search)).sum()))
    noise = float(found.values[min(n_above, 7)] / found.values[0])
    assert model.config["tail_weight"] == pytest.approx(2 * noise, rel=1e-3)
    assert model.config["popularity"] == pytest.approx(6 * rows.n_queries / rows.n_pairs)
    short = rows.keep(torch.arange(rows.n_pairs) - rows.offsets[rows.query_of_pair().long()] < 2)
    fitted = rf.fit("rg2", replace(without_validation(data), train=short), width=8).model
    assert fitted.config["popularity"] == 2.0


def edge(search: PathSearch) -> float:
    shape = search.rows.n_queries**-0.5 + search.rows.n_candidates**-0.5
    return float(search.objective(0).constant ** 0.5 * shape)


def test_steps_are_those_of_the_grid() -> None:
    at = PathPoint(0, 64, 0.5, 0.1, 1.0, 0.5)
    assert distance(at, at._replace(place=1, threshold=0.9)) == 0
    assert distance(at, at._replace(rank=16)) == pytest.approx(2)
    assert distance(at, at._replace(discount=-0.2)) == pytest.approx(3)
    assert 0.8 < distance(at, at._replace(tail_weight=2.0)) < 1
    assert distance(at._replace(popularity=0.0), at._replace(popularity=0.125)) == pytest.approx(1)


def test_without_validation_given_settings_stay(data: Dataset) -> None:
    given = {"query_exponent": -0.5, "rank": 3, "threshold": 0.0}
    model = rf.fit("rg2", without_validation(data), width=8, **given).model
    assert {name: model.config[name] for name in given} == given
    assert model.config["discount"] == DEFAULTS["discount"]


# ---------------------------------------------------------------------------- grades


def test_grades_count_only_with_weights_grade() -> None:
    data = split_groups(graded=True)
    ignored, counted = (
        rf.fit("rg2", data, **RG2_QUICK, weights=how, rank=6, threshold=0.0, discount=0.0).model
        for how in ("none", "grade")
    )
    scores = [
        model.tensors["queries"] @ model.tensors["candidates"].T for model in (ignored, counted)
    ]
    assert float((scores[0] - scores[1]).norm()) > 0.1 * float(scores[0].norm())
    ones = replace(data, train=replace(data.split("train"), grades=None))
    ungraded = rf.fit("rg2", ones, **RG2_QUICK, rank=6, threshold=0.0, discount=0.0).model
    assert torch.equal(ungraded.tensors["queries"], ignored.tensors["queries"])


@pytest.mark.parametrize(("weights", "popularity"), [("none", 0.0), ("grade", 0.5)])
def test_fold_in_gives_the_trained_rows(weights: str, popularity: float) -> None:
    data = split_groups(graded=True)
    model = rf.fit("rg2", data, **RG2_QUICK, weights=weights, popularity=popularity).model
    torch.testing.assert_close(fold_in(model, data), model.tensors["queries"], rtol=1e-6, atol=1e-6)
    ones = replace(data.split("train"), grades=None)
    equal = torch.allclose(fold_in(model, replace(data, train=ones)), model.tensors["queries"])
    assert equal is (weights == "none")


def test_noted_score_is_that_of_the_selected_point(data: Dataset) -> None:
    """Others may have a higher one, on fewer queries."""
    notes = (model := rf.fit("rg2", data, path_queries=9, **RG2_QUICK).model).notes
    (mine,) = [entry for entry in notes["path"] if point(entry) == point(model.config)]
    assert notes["score"] == mine["score"]
    assert validation_score(notes) == mine["score"]


def test_validation_split_without_pairs_counts_as_none(data: Dataset) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    rows = data.split("train")
    empty = from_pairs(none, none, None, (rows.n_queries, rows.n_candidates))
    model = rf.fit("rg2", replace(data, validation=empty), **RG2_QUICK).model
    without = rf.fit("rg2", without_validation(data), **RG2_QUICK).model
    assert dict(model.config) == dict(without.config)
    assert model.notes["chosen_by"] == "the defaults"
