"""Optimisers by name, and their state as plain tensors."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from math import inf
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, SparseAdam

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.training.gradient_sync import UNDIVIDED, Sides, norm, own_rows
from rankfold.training.row_adam import RowAdam
from rankfold.types import Comm

MAX_DENSE_NUMBERS = 2**27  # numbers in the tables beyond which ``auto`` has sparse gradients
_MOMENTUM = 0.9
FACTOR = "factor"  # of a group of parameters: its rate is this times the others'


class Optimiser(NamedTuple):
    """The optimisers of dense parameters and of tables with sparse gradients."""

    dense: Callable[..., Optimizer]  # of parameters, lr and weight_decay
    sparse: type[SparseAdam | RowAdam] = SparseAdam
    sparse_beyond: float = inf  # numbers in the tables beyond which their gradients are sparse


_adam = partial(Adam, fused=True)

OPTIMISERS: dict[str, Optimiser] = {
    "auto": Optimiser(_adam, sparse_beyond=MAX_DENSE_NUMBERS),
    "adam": Optimiser(_adam),
    "adamw": Optimiser(partial(AdamW, fused=True)),
    "sparse-adam": Optimiser(_adam, sparse_beyond=-1),
    "row-adam": Optimiser(_adam, RowAdam, sparse_beyond=-1),
    "sgd": Optimiser(partial(SGD, momentum=_MOMENTUM)),
}


def is_sparse(name: str, numbers: int) -> bool:
    """Whether the gradient of a table should hold only the rows of the batch."""
    return numbers > OPTIMISERS[name].sparse_beyond


def make(
    name: str,
    module: nn.Module,
    lr: float,
    weight_decay: float,
    factors: Mapping[nn.Parameter, float] = MappingProxyType({}),
) -> list[Optimizer]:
    """The optimisers of a module. Tables with sparse gradients get their own.

    The rates of some dense parameters are ``factors`` times those of the others.
    """
    kinds = nn.Embedding | nn.EmbeddingBag
    tables = [m.weight for m in module.modules() if isinstance(m, kinds) and m.sparse]
    rest = [p for p in module.parameters() if all(p is not table for table in tables)]
    kind = OPTIMISERS[name]
    optimisers: list[Optimizer] = [kind.sparse(tables, lr=lr)] if tables else []
    if rest:
        by_factor: dict[float, list[nn.Parameter]] = {}
        for parameter in rest:
            by_factor.setdefault(factors.get(parameter, 1.0), []).append(parameter)
        groups = [{"params": own, FACTOR: factor} for factor, own in by_factor.items()]
        optimisers.append(kind.dense(groups, lr=lr, weight_decay=weight_decay))
    return optimisers


def coalesce(module: nn.Module) -> None:
    """Merge repeated rows in sparse gradients."""
    for parameter in module.parameters():
        if (grad := parameter.grad) is not None and grad.is_sparse:
            ascend = bool((grad._indices().diff() > 0).all())  # then without a copy
            parameter.grad = grad._coalesced_(True) if ascend else grad.coalesce()


def decay_rows(module: nn.Module, weight_decay: float, scale: float = 1.0) -> None:
    """Weight decay for sparse gradients, which have the factor ``scale``: of the batch's rows."""
    if weight_decay == 0:
        return
    for table in module.parameters():
        if table.grad is not None and table.grad.is_sparse:
            rows = table.grad.indices()[0]
            table.grad.values().add_(table.detach()[rows], alpha=weight_decay * scale)


def clip(
    module: nn.Module, largest: float, sides: Sides = UNDIVIDED, comm: Comm = SINGLE_PROCESS
) -> None:
    """Scale all gradients to a joint norm of at most ``largest``; sparse ones included."""
    both = [(one, one.grad) for one in module.parameters() if one.grad is not None]
    values = [(one, grad.values() if grad.is_sparse else grad) for one, grad in both]
    length = norm(values, sides, comm)
    for _, value in values:
        value.mul_((largest / length).clamp(max=1))


def set_rate(optimisers: Iterable[Optimizer], lr: float) -> None:
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = lr * group.get(FACTOR, 1.0)


def state(optimisers: Iterable[Optimizer]) -> dict[str, Tensor]:
    """The state of all optimisers, as tensors by name."""
    return {
        f"{number}.{place}.{key}": torch.as_tensor(value)
        for number, optimiser in enumerate(optimisers)
        for place, kept in optimiser.state_dict()["state"].items()
        for key, value in kept.items()
        if value is not None
    }


def names_of(optimisers: Iterable[Optimizer], tables: Collection[nn.Embedding]) -> list[str]:
    """Names in ``state`` of tensors with a row for each row of one of the tables."""
    names = []
    for number, optimiser in enumerate(optimisers):
        parameters = [one for group in optimiser.param_groups for one in group["params"]]
        for place, parameter in enumerate(parameters):
            if any(parameter is table.weight for table in tables):
                kept = optimiser.state[parameter].items()
                keys = [key for key, value in kept if isinstance(value, Tensor) and value.dim()]
                names += [f"{number}.{place}.{key}" for key in keys]
    return names


def load(
    optimisers: Iterable[Optimizer], saved: Mapping[str, Tensor], comm: Comm = SINGLE_PROCESS
) -> None:
    """Restore the state that ``state`` returned."""
    for number, optimiser in enumerate(optimisers):
        parameters = [one for group in optimiser.param_groups for one in group["params"]]
        kept: dict[int, dict[str, Tensor | int]] = {}
        for name, value in saved.items():
            owner, place, key = name.split(".", 2)
            if int(owner) == number:
                value = own_rows(value, parameters[int(place)], comm)
                counted = isinstance(optimiser, SparseAdam) and key == "step"  # not a tensor there
                kept.setdefault(int(place), {})[key] = int(value) if counted else value.clone()
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": kept, "param_groups": groups})
