"""Proposition 1: the variance of a lazy random walk, exactly and from paths."""

import itertools

import pytest
import torch
from linear_grades import data_of

from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.proposition import slope, variances


def test_the_variance_is_p_beta_t_and_not_half_of_it() -> None:
    """The distribution after T steps, by convolution: moves of -1, 0, 1."""
    p, steps = 0.3, 12
    place = torch.tensor([1.0], dtype=torch.float64)
    for _ in range(steps):
        wide = torch.nn.functional.pad(place, (1, 1))
        place = (1 - p) * wide
        place[:-1] += p / 2 * wide[1:]
        place[1:] += p / 2 * wide[:-1]
    where = torch.arange(-steps, steps + 1, dtype=torch.float64)
    assert float(place.sum()) == pytest.approx(1)
    assert float(place @ where**2) == pytest.approx(p * 1.0 * steps)


def test_a_random_walk_has_exponent_one_and_others_have_not() -> None:
    rng = torch.Generator().manual_seed(0)
    moves = 0.01 * torch.randn(4000, 30, generator=rng, dtype=torch.float64)
    spans = [1, 2, 4, 8, 16]
    times = torch.tensor(spans)
    measured, walk = variances(moves.cumsum(dim=0), spans)
    assert float(slope(times, measured.mean(dim=0))) == pytest.approx(1, abs=0.05)
    assert (measured.mean(dim=0) / walk.mean(dim=0)).tolist() == pytest.approx([1] * 5, abs=0.1)
    returning, _ = variances(moves, spans)  # noise around a fixed place
    assert float(slope(times, returning.mean(dim=0))) == pytest.approx(0, abs=0.1)
    line = torch.arange(100, dtype=torch.float64)[:, None].expand(100, 3)
    assert float(slope(times, variances(line, spans)[0].mean(dim=0))) == pytest.approx(2)


def test_variances_equal_loops() -> None:
    paths = torch.rand(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    measured, walk = variances(paths, [1, 3])
    for row in range(2):
        x = paths[:, row].tolist()
        single = sum((b - a) ** 2 for a, b in itertools.pairwise(x)) / 8
        three = sum((b - a) ** 2 for a, b in zip(x, x[3:], strict=False)) / 6
        assert measured[row].tolist() == pytest.approx([single, three])
        assert walk[row].tolist() == pytest.approx([single, 3 * single])


def test_every_step_of_a_training_is_followed() -> None:
    options = {"epochs": 4, "batch_size": 16, "width": 4, "rows": 20, "others": 50}
    result = diagnose("proposition", data_of(), options)
    assert result.details["spans"] == [1, 2]
    assert result.details["variance"][0] == pytest.approx(result.details["random_walk"][0])
