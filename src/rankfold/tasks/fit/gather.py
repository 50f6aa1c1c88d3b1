"""Gather the rows of a model from the processes that fitted them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankfold.kernels.sparse import in_file
from rankfold.types import Model

if TYPE_CHECKING:
    from rankfold.tasks.fit.plan import FitPlan

_OF_PAIRS = ("candidates_of_queries", "grades_of_queries")  # tensors with a row per pair


def with_all_candidates(model: Model, plan: FitPlan) -> Model:
    """The model with all candidates, where each rank has the vectors of some."""
    gathered = {
        name: _all_rows(tensor, plan, on_all=True)
        for name, tensor in model.tensors.items()  # in the same order on all ranks
        if _is_divided(name, tensor, plan)
    }
    tensors = {**model.tensors, **gathered}
    if any(table.device != model.tensors[name].device for name, table in gathered.items()):
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}  # beside the file
    return replace(model, tensors=tensors)


def gather_model(model: Model, plan: FitPlan) -> Model:
    """The model on the CPU: rank 0 has the rows of all queries, other ranks their own.

    Divided candidate tables become complete on all ranks, as files private to each process.
    """
    tensors = {name: tensor.cpu() for name, tensor in model.tensors.items()}
    if "offsets" in tensors:  # those of each rank count from 0
        sizes = _all_rows(tensors["offsets"].diff(), plan, on_all=False)
        own = (
            tensors["offsets"]
            if plan.comm.rank
            else torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        )
        tensors["offsets"] = own
    for name, tensor in tensors.items():
        divided = _is_divided(name, tensor, plan)
        if name in (*plan.method.per_query, *_OF_PAIRS) or divided:
            table = _all_rows(tensor, plan, on_all=divided)
            tensors[name] = table if divided or plan.comm.rank == 0 else tensor
    return replace(model, tensors=tensors)


def _is_divided(name: str, tensor: Tensor, plan: FitPlan) -> bool:
    """Whether each rank has the rows of some candidates."""
    return name in plan.method.per_candidate and len(tensor) < len(plan.data.candidates)


def _all_rows(own: Tensor, plan: FitPlan, *, on_all: bool) -> Tensor:
    """The rows of all processes, on rank 0 or on all; in blocks, on disk if they are too large."""
    comm, budget = plan.comm, plan.options.memory_budget
    receives = on_all or comm.rank == 0
    exchange = comm.gather if on_all else comm.collect
    if comm.size == 1:
        return own
    lengths = comm.gather(torch.tensor([len(own)])).tolist()
    shape, row = (sum(lengths), *own.shape[1:]), own[:1].nbytes
    table = own[:0]
    if receives:
        in_memory = shape[0] * row <= budget
        table = own.new_empty(shape) if in_memory else in_file(shape, own.dtype)
    step = max(1, budget // 4 // max(1, row * comm.size))
    for start in range(0, max(lengths), step):
        block = exchange(own[start : start + step])
        sizes = [min(max(0, length - start), step) for length in lengths]
        parts = block.split(sizes) if receives else []
        for rank, part in enumerate(parts):
            first = sum(lengths[:rank]) + start
            table[first : first + len(part)] = part
    return table
