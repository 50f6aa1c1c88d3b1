"""Regret and bound by loops over the ranking, and Lemma 9 on random scores."""

import math

import pytest
import torch
from scored_models import model_of_scores

from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.consistency import regret_of


def by_loop(f: list[float], r: list[float], counted: list[bool]) -> tuple[float, float, float]:
    kept = [j for j, one in enumerate(counted) if one]
    order = sorted(kept, key=lambda j: (-f[j], j))
    c = [1 / math.log2(place + 2) for place in range(len(kept))]
    reached = sum(one * r[j] for one, j in zip(c, order, strict=True))
    ideal = sum(
        one * v for one, v in zip(c, sorted((r[j] for j in kept), reverse=True), strict=True)
    )
    factor = math.sqrt(2 * sum(one**2 for one in c))
    bound = factor * math.sqrt(sum((f[j] - r[j]) ** 2 for j in kept))
    grid = [  # the best line by a least-squares solver, with a slope of at least 0
        torch.linalg.lstsq(
            torch.tensor([[f[j], 1.0] for j in kept]).double(),
            torch.tensor([[r[j]] for j in kept]).double(),
        ).solution.flatten()
    ]
    a, b = grid[0].tolist()
    if a < 0:
        a, b = 0.0, sum(r[j] for j in kept) / len(kept)
    best = factor * math.sqrt(sum((a * f[j] + b - r[j]) ** 2 for j in kept))
    return ideal - reached, bound, best


def test_regret_and_bounds_equal_loops() -> None:
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(30, 9, generator=rng, dtype=torch.float64)
    f[0] = 1.0  # ties: by candidate
    r = (torch.rand(30, 9, generator=rng) < 0.3).double()
    counted = torch.rand(30, 9, generator=rng) < 0.8
    counted[:, :2] = True
    measured = regret_of(f, r * counted, counted)
    for row in range(1, 30):
        args = f[row].tolist(), r[row].tolist(), counted[row].tolist()
        regret, bound, best = by_loop(*args)
        assert measured.regret[row].item() == pytest.approx(regret, abs=1e-12)
        assert measured.bound[row].item() == pytest.approx(bound)
        assert measured.best[row].item() == pytest.approx(best, abs=1e-9)
    assert measured.regret[0].item() == pytest.approx(
        by_loop([1.0 - 1e-9 * j for j in range(9)], r[0].tolist(), counted[0].tolist())[0]
    )
    assert bool((measured.regret <= measured.bound + 1e-9).all())  # Lemma 9


def test_perfect_scores_have_no_regret_and_no_bound() -> None:
    truth = torch.tensor([[0.0, 1.0, 1.0, 0.0]]).double()
    result = regret_of(truth * 7 - 3, truth, torch.ones(1, 4, dtype=torch.bool))
    assert result.regret.item() == 0
    assert result.best.item() == pytest.approx(0, abs=1e-9)


def test_seen_candidates_do_not_count() -> None:
    data, model = model_of_scores(1.0)
    result = diagnose("consistency", data, {"planted": 10}, model=model)
    seen, test = data.split("train"), data.split("test")
    scores = model.model.tensors["queries"] @ model.model.tensors["candidates"].T
    regrets = []
    for x in range(seen.n_queries):
        chosen = seen.part(x, x + 1).candidates.tolist()
        wanted = test.part(x, x + 1).candidates.tolist()
        if not wanted:
            continue
        rest = sorted((j for j in range(25) if j not in chosen), key=lambda j: -float(scores[x, j]))
        reached = sum(1 / math.log2(2 + rest.index(y)) for y in wanted)
        regrets.append(sum(1 / math.log2(2 + k) for k in range(len(wanted))) - reached)
    figure = result.summary["regret in DCG on test, mean"]
    assert figure == pytest.approx(sum(regrets) / len(regrets), rel=1e-4)
    assert result.summary["share of queries within the bound"] == 1
