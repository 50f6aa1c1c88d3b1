"""Plain RG2 descends its own objective, and refuses settings that mean nothing."""

from itertools import pairwise

import pytest
import torch

import rankfold as rf
from rankfold.errors import UserError


def random_pairs(seed: int) -> tuple[list[int], list[int]]:
    rng = torch.Generator().manual_seed(seed)
    pairs = (torch.rand(40, 30, generator=rng) < 0.2).nonzero()
    return pairs[:, 0].tolist(), pairs[:, 1].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_objective_never_rises(seed: int) -> None:
    ranker = rf.fit("rg2-plain", random_pairs(seed), solver="als", width=4, reg=0.01, sweeps=12)
    losses = [entry["loss"] for entry in ranker.model.notes["history"]]
    assert len(losses) == 12
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(losses))
    assert losses[-1] < losses[0]


def test_starts_reach_the_same_optimum() -> None:
    """With this objective every local minimum is global: seeds agree once converged."""
    losses = [
        rf.fit(
            "rg2-plain", random_pairs(0), solver="als", width=4, reg=0.05, sweeps=400, seed=seed
        ).model.notes["history"][-1]["loss"]
        for seed in range(3)
    ]
    assert max(losses) - min(losses) < 1e-4 * abs(min(losses))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "`width` must be at least 1, got 0"),
        ({"reg": -1.0}, "`reg` must be at least 0, got -1.0"),
        ({"reg": float("nan")}, "`reg` must be at least 0, got nan"),
        ({"sweeps": 0}, "`sweeps` must be at least 1, got 0"),
        ({"widht": 3}, "no option 'widht'"),
        ({"width": "many"}, "`width` must be a whole number, got 'many'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rf.fit("rg2-plain", random_pairs(0), **settings)


def test_width_beyond_the_matrix_is_harmless() -> None:
    ranker = rf.fit("rg2-plain", random_pairs(1), width=100, sweeps=3)
    assert all(tensor.isfinite().all() for tensor in ranker.model.tensors.values())
