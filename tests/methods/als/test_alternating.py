"""The alternating methods: folding in, exact against approximate steps, grades, starts."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
import torch
from planted import groups, split_groups

import rankfold as rf
from rankfold.methods import METHODS
from rankfold.types import Model

NAMES = ["ials", "wrmf", "rg2-weighted", "rgx", "rg2-sampled", "rgx-sampled"]
GRADED = [name for name in NAMES if name != "rgx-sampled"]
OPTIONS: dict[str, Any] = {"width": 6, "sweeps": 8}
each_method = pytest.mark.parametrize("name", NAMES)


def fold_in(model: Model, rows: Any) -> torch.Tensor:
    fold = METHODS[model.method].open(model).histories
    assert fold is not None
    return fold(rows)


def losses(name: str, **options: Any) -> list[float]:
    history = rf.fit(name, groups(), **{**OPTIONS, **options}).model.notes["history"]
    return [entry["loss"] for entry in history]


@pytest.mark.parametrize("inner", ["cg", "cholesky"])
@each_method
def test_fold_in_gives_the_trained_rows(name: str, inner: str) -> None:
    """Also after an early stop: the final query vectors are solved with more steps."""
    data = split_groups()
    model = rf.fit(name, data, **OPTIONS, inner=inner).model
    actual, expected = fold_in(model, data.split("train")), model.tensors["queries"]
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("variant", ["exact", "released"])
@pytest.mark.parametrize("name", ["rg2-weighted", "rgx"])
def test_fold_in_follows_the_variant(name: str, variant: str) -> None:
    data = split_groups()
    model = rf.fit(name, data, **OPTIONS, variant=variant, reg=0.05, alpha=0.05).model
    rows, expected = data.split("train"), model.tensors["queries"]
    tight = {"rtol": 1e-3, "atol": 1e-3 * float(expected.abs().max())}
    torch.testing.assert_close(fold_in(model, rows), expected, **tight)
    other = "exact" if variant == "released" else "released"
    changed = replace(model, config={**model.config, "variant": other})
    assert not torch.allclose(fold_in(changed, rows), expected, **tight)


@each_method
def test_sweeps_descend_and_two_cg_steps_come_close_to_exact_ones(name: str) -> None:
    approximate, exact = losses(name), losses(name, inner="cholesky")
    for history in (approximate, exact):
        assert all(later <= earlier * (1 + 1e-5) for earlier, later in pairwise(history))
    assert approximate[-1] == pytest.approx(exact[-1], rel=0.02)


@each_method
def test_starts_lead_to_similar_values(name: str) -> None:
    from_noise, from_spectrum = (
        losses(name, start=start, sweeps=40) for start in ("random", "spectral")
    )
    assert from_noise[0] != from_spectrum[0]
    assert from_noise[-1] == pytest.approx(from_spectrum[-1], rel=0.1)  # wrmf's minima differ


def test_default_sweeps_of_rgx_come_close_to_long_ones_from_noise() -> None:
    rng = torch.Generator().manual_seed(0)
    pairs = groups(1, 400, 300)
    few = pairs.filter(pl.Series((torch.rand(len(pairs), generator=rng) < 0.12).numpy()))
    options: dict[str, Any] = {"width": 16, "reg": 0.01, "alpha": 0.02}
    ends = [
        rf.fit("rgx", few, **options, **more).model.notes["history"][-1]["loss"]
        for more in ({}, {"start": "random", "sweeps": 100, "steps": 6})
    ]
    assert ends[0] < ends[1] * 1.0004  # 1.0009 without balance and over-relaxation


@pytest.mark.parametrize("name", GRADED)
def test_grades_count_only_with_weights_grade(name: str) -> None:
    data = split_groups(graded=True)
    ones = replace(data, train=replace(data.split("train"), grades=None))
    ignored, counted = (
        rf.fit(name, data, **OPTIONS, weights=how).model for how in ("none", "grade")
    )
    ungraded = rf.fit(name, ones, **OPTIONS).model
    assert torch.equal(ignored.tensors["queries"], ungraded.tensors["queries"])
    expected = counted.tensors["queries"]
    assert not torch.allclose(expected, ignored.tensors["queries"], rtol=0.1)
    tight = {"rtol": 1e-3, "atol": 1e-3 * float(expected.abs().max())}
    torch.testing.assert_close(fold_in(counted, data.split("train")), expected, **tight)
    assert not torch.allclose(fold_in(counted, ones.split("train")), expected, **tight)
