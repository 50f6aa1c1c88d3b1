"""RG2 or RGx on any encoder by Newton's method: few steps, each on all pairs; [rg2]."""

from collections.abc import Iterator
from typing import Literal

from torch import Tensor, nn
from torch.func import functional_call

from rankfold.config import Settings, setting
from rankfold.encoders.tables import Tables
from rankfold.encoders.towers import Towers
from rankfold.methods.gradient.model import make_encoder, model_of, open_model
from rankfold.methods.pair_weights import training_rows
from rankfold.solvers import newton_cg as newton
from rankfold.solvers import ranking_loss
from rankfold.types import Dataset, Interactions, Method, Range, Run, Step

_STATE = ("params", "gradient", "direction", "loss", "damping")


class Config(Settings):
    width: int = setting(64, at_least=1, help="length of the vectors")
    encoder: Literal["tables", "towers"] = setting(
        "tables", help="tables: a vector per row; towers: also features"
    )
    objective: Literal["rg2", "rgx"] = setting("rg2", help="rgx: with the interaction term")
    alpha: float = setting(0.0, at_least=0, help="extra weight of a pair")
    reg: float = setting(0.3, at_least=0, help="regularisation of all parameters, per row")
    steps: int = setting(30, at_least=1, help="most Newton steps; validation stops earlier")
    products: int = setting(50, at_least=1, help="most products with the curvature in a step")


class _AllVectors(nn.Module):
    """An encoder as a function of its parameters: the vectors of all rows."""

    def __init__(self, encoder: Tables | Towers) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.encoder.encode_queries(None), self.encoder.encode_candidates(None)


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """A step per Newton step. At the minimum, a last step that moves nothing.

    Tables use the Hessian, which reaches the minimum sooner. Networks use its positive
    semi-definite part (Gauss-Newton).
    """
    rows = training_rows(data, "none", run.device)
    module = _AllVectors(make_encoder(data, rows, config.encoder, config.width, run))
    state, number, loss = None, 0, 0.0
    if run.resume is not None:
        state = {name: run.resume[name].to(run.device) for name in _STATE}
        number, loss = int(run.resume["number"]), float(state["loss"])
        module.load_state_dict(
            newton.unflatten(state["params"], dict(module.named_parameters())), strict=False
        )
    for iterate in _descent(module, rows, config, config.steps - number, state):
        number, loss, state = number + 1, iterate.loss, iterate.state
        module.load_state_dict(iterate.params, strict=False)
        model = model_of("rg2-newton", config, module.encoder, data, rows)
        final = number == config.steps
        yield Step(number, loss, model, state.copy, final)
    if number < config.steps:
        model = model_of("rg2-newton", config, module.encoder, data, rows)
        yield Step(number + 1, loss, model, dict, final=True)


def _descent(
    module: _AllVectors, rows: Interactions, config: Config, steps: int, state: newton.State | None
) -> Iterator[newton.Iterate]:
    """Newton steps from the module's current parameters."""
    is_table = config.encoder == "tables"

    def encode(values: newton.Params) -> tuple[Tensor, Tensor]:
        vectors: tuple[Tensor, Tensor] = functional_call(module, values, ())
        return vectors

    return newton.newton_cg(
        encode,
        {name: parameter.detach().clone() for name, parameter in module.named_parameters()},
        rows,
        config.reg / (rows.n_queries + rows.n_candidates),
        form=ranking_loss.LossForm(config.objective, config.alpha),
        steps=steps,
        curvature=ranking_loss.hessian_product if is_table else ranking_loss.gauss_newton_product,
        limits=newton.NewtonLimits(steps=config.products),
        state=state,
    )


METHOD = Method(
    summary="rg2 or rgx on vectors from any encoder, by Newton's method with conjugate gradients",
    config=Config,
    data_kind="interactions",
    fit=fit,
    open=open_model,
    answers=("features",),
    paper="rg2",
    space={"reg": Range(0.003, 10.0, log=True)},
)
