"""Settings left open: chosen on validation around those that the noise suggests."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from planted import split_groups

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.methods.als.settings_search import WARM_UP, choose
from rankfold.methods.noise_defaults import Noise
from rankfold.types import Model, Run, Step

FIRST = Noise(0.5, 0.5, 1000.0, 100.0, 100.0)
Score = Callable[[Model], float]


def run(score: Score | None, resume: dict[str, torch.Tensor] | None = None) -> Run:
    rng = torch.Generator().manual_seed(0)
    return Run(rng, torch.device("cpu"), SINGLE_PROCESS, resume=resume, validate=score)


def fit(name: str, score: Score | None, **options: Any) -> list[Step]:
    method, resume = METHODS[name], options.pop("resume", None)
    config = method.config(width=6, sweeps=7, **options)
    return list(method.fit(split_groups(), config, run(score, resume)))


def config_of(step: Step) -> dict[str, Any]:
    assert step.model is not None
    return dict(step.model.config)


@pytest.mark.parametrize(
    ("reg", "ratio"),
    [(1, 1), (3, 1), (1 / 9, 3), (9, 1 / 9), (1 / 3, 9), (3**0.5, 1), (3**-1.5, 3)],
)
def test_the_best_of_the_points_within_reach_is_chosen(reg: float, ratio: float) -> None:
    tried = []

    def score(noise: Noise) -> float:
        tried.append(noise)
        goal = FIRST.moved(reg, ratio)
        far = abs(torch.tensor([noise.reg / goal.reg, noise.ratio / goal.ratio]).log()).sum()
        return -float(far)

    chosen = choose(FIRST, score)
    assert chosen.reg == pytest.approx(FIRST.reg * reg)
    assert chosen.ratio == pytest.approx(FIRST.ratio * ratio)
    assert len(tried) <= 9


@pytest.mark.parametrize("name", ["ials", "wrmf", "rg2-weighted", "rgx"])
def test_open_settings_are_chosen_on_validation(name: str) -> None:
    steps = fit(name, lambda model: model.config["reg"])
    (of_rule,) = {config_of(step)["reg"] for step in fit(name, None)}
    assert all(config_of(step)["reg"] == of_rule for step in steps[:WARM_UP])
    assert all(config_of(step)["reg"] > 8 * of_rule for step in steps[WARM_UP:])


def test_given_settings_are_kept() -> None:
    seen = []

    def score(model: Model) -> float:
        seen.append((model.config["reg"], model.config["background"]))
        return -model.config["background"]

    steps = fit("ials", score, reg=0.02)
    assert {reg for reg, _ in seen} == {0.02}
    assert config_of(steps[-1])["background"] < seen[0][1]
    assert len(set(seen)) == len(seen)  # no point twice
    n_seen = len(seen)
    fit("ials", score, reg=0.02, background=0.1)
    assert len(seen) == n_seen  # nothing to choose


@pytest.mark.parametrize("number", [1, WARM_UP, WARM_UP + 1])
def test_a_resumed_fit_makes_or_keeps_the_choice(number: int) -> None:
    steps = fit("rgx", lambda model: -model.config["reg"])
    middle = steps[number - 1]
    state = {**middle.state(), "number": torch.tensor(middle.number)}
    (*_, again) = fit("rgx", lambda model: -model.config["reg"], resume=state)
    assert config_of(again) == config_of(steps[-1])
    assert again.model is not None
    assert steps[-1].model is not None
    for name, tensor in steps[-1].model.tensors.items():
        assert torch.equal(again.model.tensors[name], tensor)


def test_without_validation_queries_the_first_point_stays() -> None:
    assert choose(FIRST, lambda _: float("nan")) == FIRST
