"""Optimisers by name, as ``torch.optim`` has them, and their state as plain tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, SparseAdam

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.training.replicas import UNDIVIDED, Sides, norm, own_rows
from rankfold.training.row_adam import RowAdam
from rankfold.types import Comm

LARGE = 2**27  # numbers in the tables beyond which gradients are sparse
MOMENTUM = 0.9


def is_sparse(name: str, numbers: int) -> bool:
    """True if a table's gradient should hold the batch's rows alone."""
    return name in ("sparse-adam", "row-adam") or (name == "auto" and numbers > LARGE)


def make(name: str, module: nn.Module, lr: float, weight_decay: float) -> list[Optimizer]:
    """What trains a module; tables with sparse gradients get an optimiser of their own."""
    kinds = nn.Embedding | nn.EmbeddingBag
    tables = [m.weight for m in module.modules() if isinstance(m, kinds) and m.sparse]
    rest = [p for p in module.parameters() if all(p is not table for table in tables)]
    kind = RowAdam if name == "row-adam" else SparseAdam
    found: list[Optimizer] = [kind(tables, lr=lr)] if tables else []
    if rest:
        found.append(_dense(name, rest, lr, weight_decay))
    return found


def _dense(name: str, parameters: list[nn.Parameter], lr: float, decay: float) -> Optimizer:
    if name == "sgd":
        return SGD(parameters, lr=lr, weight_decay=decay, momentum=MOMENTUM)
    kind = AdamW if name == "adamw" else Adam
    return kind(parameters, lr=lr, weight_decay=decay, fused=True)


def coalesce(module: nn.Module) -> None:
    """Each row once in sparse gradients."""
    for parameter in module.parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = _coalesced(parameter.grad)


def _coalesced(grad: Tensor) -> Tensor:
    """The same, without a copy where rows ascend already, as those of one look-up of each do."""
    ascend = bool((grad._indices().diff() > 0).all())
    return grad._coalesced_(True) if ascend else grad.coalesce()


def decay_rows(module: nn.Module, weight_decay: float) -> None:
    """Weight decay where ``SparseAdam`` has none: of the rows in the batch alone."""
    if weight_decay == 0:
        return
    for table in module.parameters():
        if table.grad is not None and table.grad.is_sparse:
            rows = table.grad.indices()[0]
            table.grad.values().add_(table.detach()[rows], alpha=weight_decay)


def clip(
    module: nn.Module, largest: float, sides: Sides = UNDIVIDED, comm: Comm = SINGLE_PROCESS
) -> None:
    """Gradients no longer than that, all as one; torch's own does not know sparse ones."""
    both = [(one, one.grad) for one in module.parameters() if one.grad is not None]
    values = [(one, grad.values() if grad.is_sparse else grad) for one, grad in both]
    length = norm(values, sides, comm)
    for _, value in values:
        value.mul_((largest / length).clamp(max=1))


def set_rate(optimisers: Iterable[Optimizer], lr: float) -> None:
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = lr


def state(optimisers: Iterable[Optimizer]) -> dict[str, Tensor]:
    """The state of all, as tensors by name."""
    return {
        f"{number}.{place}.{key}": torch.as_tensor(value)
        for number, optimiser in enumerate(optimisers)
        for place, kept in optimiser.state_dict()["state"].items()
        for key, value in kept.items()
        if value is not None
    }


def names_of(optimisers: Iterable[Optimizer], tables: Collection[nn.Embedding]) -> list[str]:
    """Names in ``state`` of what has a row for each row of one of the tables."""
    found = []
    for number, optimiser in enumerate(optimisers):
        parameters = [one for group in optimiser.param_groups for one in group["params"]]
        for place, parameter in enumerate(parameters):
            if any(parameter is table.weight for table in tables):
                kept = optimiser.state[parameter].items()
                keys = [key for key, value in kept if isinstance(value, Tensor) and value.dim()]
                found += [f"{number}.{place}.{key}" for key in keys]
    return found


def load(
    optimisers: Iterable[Optimizer], found: Mapping[str, Tensor], comm: Comm = SINGLE_PROCESS
) -> None:
    """Put back what ``state`` gave."""
    for number, optimiser in enumerate(optimisers):
        parameters = [one for group in optimiser.param_groups for one in group["params"]]
        kept: dict[int, dict[str, Tensor | int]] = {}
        for name, value in found.items():
            owner, place, key = name.split(".", 2)
            if int(owner) == number:
                value = own_rows(value, parameters[int(place)], comm)
                counted = isinstance(optimiser, SparseAdam) and key == "step"  # there, not a tensor
                kept.setdefault(int(place), {})[key] = int(value) if counted else value.clone()
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": kept, "param_groups": groups})
