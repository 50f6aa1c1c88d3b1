"""RG2 on any encoder by Newton's method: few steps, each with all pairs in view; [rg2]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor, nn
from torch.func import functional_call

from rankfold.encoders.tables import Tables
from rankfold.encoders.towers import Towers
from rankfold.errors import UserError
from rankfold.methods.gradient.model import Kind, make_encoder, model_of, open_model
from rankfold.methods.pair_weights import training_rows
from rankfold.solvers.newton_cg import (
    Iterate,
    Limits,
    Params,
    State,
    gauss_newton_product,
    hessian_product,
    newton_cg,
    unflatten,
)
from rankfold.types import Dataset, Interactions, Method, Run, Step

STATE = ("params", "gradient", "direction", "loss", "damping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is minimised, and how long."""

    width: int = 64
    encoder: Kind = "tables"  # towers: with side features, if there are any
    reg: float = 0.3  # over the number of rows; of all parameters alike
    steps: int = 30  # at most; validation stops earlier
    products: int = 50  # with the curvature in a step, at most

    def __post_init__(self) -> None:
        for name in ("width", "steps", "products"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is at least 1")
        if not 0 <= self.reg < float("inf"):
            raise UserError(f"reg is {self.reg}", hint="it is 0 or more")


class Everybody(nn.Module):
    """An encoder as a function of its parameters: the vectors of all rows."""

    def __init__(self, encoder: Tables | Towers) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.encoder.of_queries(None), self.encoder.of_candidates(None)


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """A step per Newton step; a last one that moves nothing where the minimum is reached.

    Tables take the Hessian, which gets them to the minimum sooner; networks take its part that is
    never negative, Gauss-Newton's.
    """
    rows = training_rows(data, "none", run.device)
    module = Everybody(make_encoder(data, rows, config.encoder, config.width, run))
    state, number, loss = None, 0, 0.0
    if run.resume is not None:
        state = {name: run.resume[name].to(run.device) for name in STATE}
        number, loss = int(run.resume["number"]), float(state["loss"])
        module.load_state_dict(
            unflatten(state["params"], dict(module.named_parameters())), strict=False
        )
    began = perf_counter()
    for iterate in descent(module, rows, config, config.steps - number, state):
        number, loss, state = number + 1, iterate.loss, iterate.state
        module.load_state_dict(iterate.params, strict=False)
        model = model_of("rg2-newton", config, module.encoder, data, rows)
        final = number == config.steps
        yield Step(number, loss, perf_counter() - began, model, state.copy, final)
        began = perf_counter()
    if number < config.steps:
        model = model_of("rg2-newton", config, module.encoder, data, rows)
        yield Step(number + 1, loss, perf_counter() - began, model, dict, final=True)


def descent(
    module: Everybody, rows: Interactions, config: Config, steps: int, state: State | None
) -> Iterator[Iterate]:
    """Newton steps from where the module stands."""

    def encode(values: Params) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = functional_call(module, values, ())
        return found

    return newton_cg(
        encode,
        {name: parameter.detach().clone() for name, parameter in module.named_parameters()},
        rows,
        config.reg / (rows.n_queries + rows.n_candidates),
        steps=steps,
        curvature=hessian_product if config.encoder == "tables" else gauss_newton_product,
        limits=Limits(steps=config.products),
        state=state,
    )


METHOD = Method(
    summary="rg2 on vectors from any encoder, by Newton's method with conjugate gradients",
    config=Config,
    data_kind="interactions",
    fit=fit,
    open=open_model,
    answers=("features",),
    paper="rg2",
)
