"""Ranks estimated from the cache: their error, and the part that old vectors explain."""

import pytest
import torch
from linear_grades import data_of
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.losses.low_fpr import exact_ranks
from rankfold.methods.ordinal.cba import CbaConfig, score_weights
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.ranks import TrackedRows
from rankfold.tasks.diagnose.training import DiagnosedTraining, encode, score_all, train_observed
from rankfold.types import Run

STILL = {"rare": 0, "lr": 1e-12, "weight_decay": 0.0, "dropout": 0.0, "width": 8}


def shares_by_loop(scores: Tensor, negative: Tensor) -> list[float]:
    below = scores[negative].tolist()
    return [sum(other > score for other in below) / len(below) for score in scores.tolist()]


def test_exact_ranks_equal_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 12, (60,), generator=rng).double()  # with ties
    negative = torch.rand(60, generator=rng) < 0.6
    ranks = exact_ranks(scores, negative)
    assert ranks.tolist() == pytest.approx(shares_by_loop(scores, negative))
    assert exact_ranks(scores, torch.zeros(60, dtype=torch.bool)).tolist() == [0.0] * 60


def test_a_cache_of_all_rows_and_a_constant_encoder_give_exact_ranks() -> None:
    result = diagnose("ranks", data_of(), {"epochs": 4, "cache": 200, "batch_size": 50, **STILL})
    epochs = result.details["epochs"]
    assert [entry["epoch"] for entry in epochs] == [0, 1, 2, 3, 4]
    assert epochs[-1]["error"]["direct, shares"] < 0.01
    assert epochs[0]["error"]["direct, shares"] < 0.5 * epochs[0]["error"]["direct, equal"]
    assert all(entry["bound_holds"] == 1 for entry in epochs)
    assert max(entry["drift"] for entry in epochs) < 1e-5
    assert max(entry["change"] for entry in epochs) < 1e-3


def test_the_bound_holds_while_the_encoder_moves() -> None:
    options = {"epochs": 4, "lr": 0.02, "batch_size": 16, "cache": 32, "width": 8}
    result = diagnose("ranks", data_of(), options)
    later = result.details["epochs"][1:]
    assert all(entry["bound_holds"] == 1 for entry in later)
    assert all(0 < entry["change"] <= entry["bound"] <= 1 for entry in later)
    assert all(entry["drift"] > 0.1 for entry in later)


def test_the_error_beyond_sampling_is_that_of_old_vectors() -> None:
    """|cached - true| <= |cached - fresh| + |fresh - true|; the last is small with all rows in."""
    options = {"epochs": 1, "lr": 0.05, "warmup": 0.0, "cache": 600, "batch_size": 10}
    result = diagnose("ranks", data_of(), {**STILL, **options})
    first, last = result.details["epochs"]
    sampling = first["error"]["direct, shares"]  # nothing is old yet
    assert sampling < 0.01
    assert first["drift"] < 1e-5  # the cached vectors are those of the recorded rows
    assert last["error"]["direct, shares"] > 0.02
    assert last["error"]["direct, shares"] <= last["change"] + 2 * sampling


@pytest.mark.parametrize("cache", [24, 150])
def test_measurements_match_loops(cache: int) -> None:
    run = Run(torch.Generator().manual_seed(3), torch.device("cpu"), SingleProcess())
    training = DiagnosedTraining(
        data_of(), CbaConfig(epochs=2, width=6, cache=cache, batch_size=20, lr=0.01, fpr=0.25), run
    )
    tracked: list[TrackedRows] = []

    def begin(parts, queues, first):
        tracked.append(
            TrackedRows(parts, queues, first, training.sample(30 if cache == 24 else 200, "rows"))
        )
        return tracked[0].push

    list(train_observed(training, begin))
    (rows_now,) = tracked
    parts, queues, result = rows_now.parts, rows_now.queues, rows_now.measure()
    grades, scores = parts.rows.grades, score_all(parts)
    head = score_weights(parts).double()
    sizes = torch.bincount(grades).clamp(max=cache)
    rows = rows_now.numbers.vectors[: sizes.sum(), 0]
    assert torch.equal(grades[rows], torch.arange(3).repeat_interleave(sizes))  # the right queue
    fresh, cached = encode(parts, rows), queues.vectors[: len(rows)].double()
    drift = (fresh - cached).norm(dim=1)[: sizes[:2].sum()].max().item()  # of possible negatives
    assert result["drift"] == pytest.approx(drift, rel=1e-5)
    errors, near, changes, bounds = ([list[float](), list[float]()] for _ in range(4))
    frequent = torch.bincount(grades) / len(grades)
    for k in range(2):
        truth = shares_by_loop(scores, grades <= k)
        weights = [
            (frequent[g] / n).item() if g <= k else 0.0
            for g, n in enumerate(sizes.tolist())
            for _ in range(n)
        ]
        total = sum(weights)
        for x in rows_now.sample.tolist():
            score = scores[x].item()
            by_cached, by_fresh, close = 0.0, 0.0, 0.0
            for weight, old, new in zip(weights, cached @ head, fresh @ head, strict=True):
                by_cached += weight / total * (old.item() > score)
                by_fresh += weight / total * (new.item() > score)
                gap = abs(score - new.item()) / head.norm().item()
                close += weight / total * (2 * drift > gap)
            if grades[x] <= k:
                errors[k].append(abs(by_cached - truth[x]))
                changes[k].append(abs(by_cached - by_fresh))
                bounds[k].append(close)
        for x, (truth_x, score) in enumerate(zip(truth, scores.tolist(), strict=True)):
            if grades[x] <= k and truth_x <= 0.5:  # twice the rate
                higher = (cached @ head > score).double() @ torch.tensor(weights).double() / total
                near[k].append(abs(higher.item() - truth_x))
    means, change, bound = (
        [sum(values) / len(values) for values in each] for each in (errors, changes, bounds)
    )
    negatives = [x for x in rows_now.sample.tolist() if grades[x] <= 1]
    highest = shares_by_loop(scores, grades <= 1)
    drawn = rows_now.estimates()
    for points in drawn.values():
        assert [x for x, _ in points] == pytest.approx([highest[row] for row in negatives])
    gaps = [abs(x - y) for x, y in drawn["direct"]]
    assert sum(gaps) / len(gaps) == pytest.approx(means[1], abs=1e-5)
    assert result["thresholds"]["direct, shares"] == pytest.approx(means, abs=1e-5)
    assert result["error"]["direct, shares"] == pytest.approx(sum(means) / 2, abs=1e-5)
    if cache == 150:  # a sample of all rows
        close_means = [sum(values) / len(values) for values in near]
        assert result["error_near_rate"]["direct, shares"] == pytest.approx(
            sum(close_means) / 2, abs=1e-5
        )
    assert result["change"] == pytest.approx(sum(change) / 2, abs=1e-5)
    assert result["bound"] == pytest.approx(sum(bound) / 2, abs=1e-5)


def test_the_same_seed_gives_the_same_result() -> None:
    options = {"epochs": 1, "width": 4, "rows": 50}
    first, again, other = (diagnose("ranks", data_of(), options, seed=s) for s in (5, 5, 6))
    assert first == again
    assert first.details["epochs"] != other.details["epochs"]


def test_observing_does_not_change_the_training() -> None:
    """The losses are those of ``fit``."""
    import rankfold as rf
    from rankfold.methods import METHODS

    assert "cba" in METHODS
    model = rf.fit("cba", data_of(), epochs=2, width=4, seed=1, device="cpu", patience=9)
    run = Run(torch.Generator().manual_seed(1), torch.device("cpu"), SingleProcess())
    training = DiagnosedTraining(data_of(), CbaConfig(epochs=2, width=4), run)
    steps = train_observed(training, lambda _p, _q, _f: lambda _seen: None)
    losses = [step.loss for step in steps if step.whole]
    assert losses == [entry["loss"] for entry in model.model.notes["history"]]
