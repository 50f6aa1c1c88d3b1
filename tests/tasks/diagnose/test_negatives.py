"""The sampled objective's weights by drawing negatives, and its limit."""

import itertools

import pytest
import torch
from scored_models import model_of_scores, random_pairs

from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.negatives import common, minimise, starting_vectors


def test_few_negatives_weigh_pairs_more_and_many_give_the_full_model() -> None:
    data, _ = model_of_scores(1.0)
    options = {"negatives": "1,100000", "width": 3, "sweeps": 30}
    result = diagnose("negatives", data, options)
    lost, shared = result.details["lost"], result.details["common"]
    assert lost[1] < 1e-3 < lost[0]
    assert shared[1] > 0.95
    assert shared[0] < shared[1]
    median = data.split("train").counts().double().median().item()
    assert result.details["weight_of_a_pair"][0] == pytest.approx(1 + 25 / median, rel=1e-5)


def test_the_ratio_of_weights_is_that_of_drawn_negatives() -> None:
    """Second derivatives of the drawn losses, whose mean is the sampled objective's weight.

    A positive's pool is itself and n uniform candidates: each occurrence of a candidate in it has
    the square (o + 1)^2 / (n + 1).
    """
    n, n_candidates, size = 5, 8, 3
    rng = torch.Generator().manual_seed(0)
    occurrences = torch.zeros(n_candidates, dtype=torch.float64)
    repeats = 40_000
    for positive in range(size):  # the query's pairs are candidates 0, 1, 2
        drawn = torch.randint(n_candidates, (repeats * n,), generator=rng)
        occurrences += torch.bincount(drawn, minlength=n_candidates) / repeats
        occurrences[positive] += 1
    ratio = float(occurrences[:size].mean() / occurrences[size:].mean())
    assert ratio == pytest.approx(1 + n_candidates / (size * n), rel=0.02)


def test_lists_in_common_equal_sets() -> None:
    rng = torch.Generator().manual_seed(0)
    left, right = (
        (torch.randn(6, 2, generator=rng), torch.randn(9, 2, generator=rng)) for _ in range(2)
    )
    expected = []
    for x in range(6):
        best = [set((p[x] @ q.T).topk(4).indices.tolist()) for p, q in (left, right)]
        expected.append(len(best[0] & best[1]) / 4)
    assert common(left, right, 4).tolist() == pytest.approx(expected)


def test_sweeps_descend() -> None:
    from rankfold.objectives.quadratic import value
    from rankfold.objectives.rg import rg2_sampled

    rows = random_pairs(20, 10)
    objective, values = rg2_sampled(rows, 0.1, 7), []
    start = starting_vectors(rows, 3, 0)
    minimise(objective, start, 6, lambda vectors: values.append(value(objective, *vectors)))
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values))
