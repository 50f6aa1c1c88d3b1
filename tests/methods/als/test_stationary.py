"""Converged sweeps end where the gradient of the written objective vanishes, for every setting."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from dense import (
    ALPHA,
    BACKGROUND,
    NEGATIVES,
    REG,
    dense_ials,
    dense_rg2,
    dense_sampled,
    dense_sampled_rgx,
    dense_weighted,
    dense_wrmf,
    random_rows,
)
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.methods.als.alternating import AlsConfig
from rankfold.types import Dataset, Run, Vocabulary

EXACT = {"width": 2, "sweeps": 60, "inner": "cholesky", "start": "random"}
LARGE = 0.3  # plain regularisers: with a small one the lengths of both sides converge slowly
REGULARISERS = {"frequency": REG, "weighted": REG, "plain": LARGE, "matrix": REG}


class Case(NamedTuple):
    method: str
    settings: dict[str, Any]
    objective: Callable[[Tensor, Tensor, Tensor], Tensor]  # r, p, q

    def __str__(self) -> str:
        return "-".join([self.method, *(str(value) for value in self.settings.values())])


CASES = [
    *(
        Case(
            name,
            {"regulariser": kind, "alpha": alpha, "reg": reg},
            dense_weighted(kind, centred=name == "rgx", alpha=alpha, reg=reg),
        )
        for name in ("rg2-weighted", "rgx")
        for kind, reg in REGULARISERS.items()
        for alpha in (0.0, 0.3)
    ),
    *(
        Case(
            name,
            {"regulariser": "frequency", "alpha": 0.3, "nu": 0.5, "reg": LARGE},
            dense_weighted("frequency", centred=name == "rgx", alpha=0.3, nu=0.5, reg=LARGE),
        )
        for name in ("rg2-weighted", "rgx")
    ),
    Case("rg2-sampled", {"negatives": NEGATIVES}, dense_sampled),
    Case("rgx-sampled", {"negatives": NEGATIVES}, dense_sampled_rgx),
    Case("wrmf", {"alpha": ALPHA, "reg": LARGE}, partial(dense_wrmf, reg=LARGE)),
    Case("ials", {"background": BACKGROUND}, dense_ials),
    Case("rg2-plain", {"solver": "als"}, dense_rg2(-0.5, 0.0)),
]


@pytest.fixture
def _double() -> Iterator[None]:
    """Random starts, and so the sweeps, are in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def end(name: str, **settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs, and the vectors of both sides after the last step."""
    rows, r = random_rows(3, m=12, n=8)
    vocabularies = Vocabulary.numbered(12), Vocabulary.numbered(8)
    data = Dataset("interactions", rows, rows, rows, *vocabularies)
    rng = torch.Generator().manual_seed(0)
    run = Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess())
    config = METHODS[name].config(**{"reg": REG, **settings})
    *_, last = METHODS[name].fit(data, config, run)
    assert last.model is not None
    p, q = (last.model.tensors[side].double() for side in ("queries", "candidates"))
    return r, p.requires_grad_(), q.requires_grad_()


def assert_stationary(case: Case, r: Tensor, p: Tensor, q: Tensor, near: float) -> None:
    """The gradient is small relative to that at scores of twice the size."""
    gradients = torch.autograd.grad(case.objective(r, p, q), (p, q))
    twice = [(2 * t).detach().requires_grad_() for t in (p, q)]
    usual = torch.autograd.grad(case.objective(r, *twice), twice)
    assert (p @ q.T).abs().max() > 0.1  # not the saddle point at 0
    for gradient, other in zip(gradients, usual, strict=True):
        assert float(gradient.abs().max()) < near * float(other.abs().max())


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sweeps_end_at_a_stationary_point(case: Case) -> None:
    assert_stationary(case, *end(case.method, **EXACT, **case.settings), near=1e-5)


def test_spectral_solution_is_a_stationary_point() -> None:
    case = Case("rg2-plain", {}, dense_rg2(-0.5, 0.0))
    assert_stationary(case, *end("rg2-plain", width=3), near=1e-4)


def test_every_alternating_method_is_here() -> None:
    alternating = {name for name, one in METHODS.items() if issubclass(one.config, AlsConfig)}
    assert {case.method for case in CASES} == alternating
