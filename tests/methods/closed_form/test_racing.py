"""The race returns the best point and spends queries only on points that may be the best."""

import math

import pytest
import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.closed_form.racing import (
    SPREAD,
    STAGES,
    STEP_LOSS,
    choose,
    mean,
    race,
    stages,
)
from rankfold.solvers.progress import finished
from rankfold.types import Interactions, from_pairs

SIZES = [100 * times for times in STAGES]


class Track:
    """Points with given values; records which were measured in which stage."""

    def __init__(self, **values: Tensor) -> None:
        self.all = {name: one.split(SIZES) for name, one in values.items()}
        self.measured: list[tuple[int, list[str]]] = []

    def measure(self, points: list[str], stage: int) -> dict[str, Tensor]:
        self.measured.append((stage, sorted(points)))
        return {point: self.all[point][stage] for point in points}


def noise(seed: int, spread: float) -> Tensor:
    return spread * torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(seed))


def levelled(values: Tensor, level: float) -> Tensor:
    """Moved so that every stage has this mean."""
    return torch.cat([part - part.mean() + level for part in values.split(SIZES)])


def best_of(weights: dict[str, float]) -> str:
    """The first point, which has weight 1; the others have less."""
    first, *others = weights.items()
    assert first[1] == 1.0
    assert all(0 < weight <= 1 for _, weight in others)
    return first[0]


def test_weights_fall_with_the_distance_in_standard_errors() -> None:
    common, error = levelled(noise(0, 1.0), 1.0), noise(1, 0.3)
    lead = 0.5 * float(error.double().std()) / len(error) ** 0.5
    track = Track(one=common, other=common + error - error.mean() - lead)
    weights = finished(race(["other", "one"], {}, track.measure, len(SIZES)))
    assert weights == {"one": 1.0, "other": pytest.approx(math.exp(-0.5), rel=1e-3)}


def test_clearly_worse_point_is_measured_once() -> None:
    common = noise(0, 1.0)
    near = [levelled(common + noise(i, 0.3), 0.5) for i in (1, 2)]
    track = Track(one=near[0], other=near[1], worse=common + 0.1)
    values: dict[str, list[Tensor]] = {}
    weights = finished(race(["one", "other", "worse"], values, track.measure, len(SIZES)))
    assert best_of(weights) in ("one", "other")
    assert track.measured[0] == (0, ["one", "other", "worse"])
    assert track.measured[1:] == [(stage, ["one", "other"]) for stage in range(1, len(SIZES))]
    assert {name: len(result) for name, result in values.items()} == {
        "one": len(SIZES), "other": len(SIZES), "worse": 1,
    }  # fmt: skip


def test_the_best_on_all_queries_wins_despite_a_slow_start() -> None:
    slow, fast = noise(1, 1.0), noise(2, 1.0)
    slow = levelled(slow, 0.5)
    fast = levelled(fast, 0.3)
    fast[: SIZES[0]] += 0.3
    track = Track(slow=slow, fast=fast)
    assert mean(track.all["fast"][0])[0] > mean(track.all["slow"][0])[0]
    assert best_of(finished(race(["slow", "fast"], {}, track.measure, len(SIZES)))) == "slow"
    assert best_of(finished(race(["slow", "fast"], {}, track.measure, 1))) == "fast"


@pytest.mark.parametrize(("spread", "n_measured"), [(0.01, 1), (1.0, len(SIZES))])
def test_irrelevant_difference_is_not_measured_further(spread: float, n_measured: int) -> None:
    """Equal in the mean; the difference is known to a thousandth of the score, or to a tenth."""
    common = levelled(noise(0, 1.0), 1.0)
    track = Track(one=common, other=common + levelled(noise(1, spread), -1e-4))
    assert best_of(finished(race(["one", "other"], {}, track.measure, len(SIZES)))) == "one"
    assert len(track.measured) == n_measured


def test_known_values_are_not_measured_again() -> None:
    track = Track(one=levelled(noise(1, 1.0), 0.5), other=levelled(noise(2, 1.0), 0.5))
    values = {"one": list(track.all["one"][:2])}
    finished(race(["one", "other"], values, track.measure, 3))
    assert track.measured == [(0, ["other"]), (1, ["other"]), (2, ["one", "other"])]


@pytest.mark.parametrize(("n_stages", "first"), [(1, "near"), (len(SIZES), "far")])
def test_few_queries_do_not_lead_far_from_the_defaults(n_stages: int, first: str) -> None:
    """Two steps farther, and better by a twentieth of a standard error, or by a fifth."""
    near = levelled(noise(0, 0.1), 1.0)
    error = levelled(noise(1, 1.0), 0.005)
    track = Track(near=near, far=near + error)
    steps = {"near": 1.0, "far": 3.0}.__getitem__
    weights = finished(race(["far", "near"], {}, track.measure, n_stages, steps))
    lead, e = mean(error[: sum(SIZES[:n_stages])])
    score = mean((near + error)[: sum(SIZES[:n_stages])])[0]
    expected = lead - 2 * STEP_LOSS / (SPREAD**2 * score) * e**2
    assert (expected < 0) is (first == "near")
    assert best_of(weights) == first
    (other,) = (weight for name, weight in weights.items() if name != first)
    assert other == pytest.approx(math.exp(-abs(expected) / e), rel=1e-3)


def test_the_mean_is_taken_unless_the_best_leads_by_more_errors() -> None:
    """Here by one and a half."""
    lead = noise(1, 0.3)
    lead += 1.5 * mean(lead[: SIZES[0]])[1] - lead[: SIZES[0]].mean()
    track = Track(best=1 + lead, mean=torch.ones(sum(SIZES)))
    for most, expected in ((1.0, "best"), (2.0, "mean")):
        work = choose(["best"], {}, track.measure, 1, lambda _: "mean", most_errors=most)
        assert finished(work) == expected


def test_single_point_and_ties() -> None:
    same = noise(0, 1.0)
    track = Track(one=same, other=same)
    assert best_of(finished(race(["other", "one"], {}, track.measure, len(SIZES)))) == "other"
    assert best_of(finished(race(["one"], {}, track.measure, len(SIZES)))) == "one"
    assert [stage for stage, _ in track.measured] == [0, 0]


class Judge:
    """For some queries; the candidate with the same number is hidden."""

    depth = 10

    def __init__(self, n: int) -> None:
        self.queries = torch.arange(n) * 2

    def hidden(self, queries: Tensor) -> Interactions:
        n = len(queries)
        return from_pairs(torch.arange(n), queries, None, (n, 1000))

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        raise NotImplementedError


def test_stages_grow_and_share_no_query() -> None:
    result = list(stages(Judge(400), 10, SINGLE_PROCESS, None))
    assert [len(stage.queries) for stage in result] == [10, 10, 20, 40, 80]
    every = torch.cat([stage.queries for stage in result]).tolist()
    assert len(set(every)) == len(every)
    assert set(every) <= set(Judge(400).queries.tolist())
    for stage in result:
        assert stage.own == slice(0, len(stage.queries))
        assert stage.seen.candidates.tolist() == stage.queries.tolist()
        assert int(stage.queries.diff().min()) > 0.5 * 800 / len(stage.queries) / 2  # evenly


@pytest.mark.parametrize(("n", "sizes"), [(7, [7]), (10, [10]), (25, [12, 13]), (0, [])])
def test_few_queries_give_few_stages(n: int, sizes: list[int]) -> None:
    assert [len(stage.queries) for stage in stages(Judge(n), 10, SINGLE_PROCESS, None)] == sizes
