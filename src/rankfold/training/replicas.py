"""What several processes train together.

Tables with a row per query are divided: each process has the rows of its own queries, and nobody
else has gradients for them; so may be a large table with a row per candidate. All other parameters
are the same on all processes, and so are their gradients, once they are summed. Of a table with a
row per candidate only the rows that a batch meets are sent: all processes know which these are. Of
another table whose gradients are sparse, as of tokens, each knows the rows that it has itself met:
first they tell each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankfold.errors import UserError
from rankfold.types import Comm


class Sides(NamedTuple):
    """Tables in a module of which a process has some rows, or has all and a batch meets some."""

    divided: tuple[nn.Embedding, ...] = ()
    per_candidate: tuple[nn.Embedding, ...] = ()

    def divides(self, parameter: Tensor) -> bool:
        return any(parameter is table.weight for table in self.divided)

    def has_candidate_rows(self, parameter: Tensor) -> bool:
        return any(parameter is table.weight for table in self.per_candidate)


UNDIVIDED = Sides()


def sum_gradients(module: nn.Module, sides: Sides, met: Tensor | None, comm: Comm) -> None:
    """Give all processes the same gradients of all that they share; sparse ones are coalesced.

    Args:
        module: has the gradients of a process's own part of the batch's mean.
        sides: which of its tables are divided or have a row per candidate.
        met: candidates that the batch is compared with, ascending, the same on all; None: all.
        comm: of one process, nothing is done.
    """
    if comm.size == 1:
        return
    shared = list(_shared(module, sides))
    if not shared:
        return
    rows = [_rows(one, sides, met, comm) for one in shared]
    blocks = [_block(one, its) for one, its in zip(shared, rows, strict=True)]
    flat = torch.cat([block.flatten() for block in blocks]) if len(blocks) > 1 else blocks[0]
    summed = comm.sum(flat).flatten().split([block.numel() for block in blocks])
    for one, its, block, values in zip(shared, rows, blocks, summed, strict=True):
        _put(one, its, values.view(block.shape).to(block.dtype))


def norm(values: Iterable[tuple[Tensor, Tensor]], sides: Sides, comm: Comm) -> Tensor:
    """The length of all gradients as one vector, given parameters with the numbers of theirs."""
    lengths = []
    for parameter, value in values:
        length = value.norm()
        if comm.size > 1 and sides.divides(parameter):
            length = comm.sum(length.square()).sqrt()
        lengths.append(length)
    found: Tensor = torch.linalg.vector_norm(torch.stack(lengths))
    return found


def own_rows(kept: Tensor, like: Tensor, comm: Comm) -> Tensor:
    """What was kept for a parameter; of a table that was whole and is now divided, its own rows."""
    if kept.dim() == 0 or like.dim() == 0 or len(kept) == len(like):
        return kept
    if len(kept) < len(like):
        raise UserError(
            "the checkpoint was made with the candidates divided among processes",
            hint="give the --candidate-memory that it was made with",
        )
    start, stop = comm.share(len(kept))
    return kept[start:stop]


def _shared(module: nn.Module, sides: Sides) -> Iterator[Tensor]:
    """All parameters but the divided ones; a process without own rows has gradients of 0."""
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if not sides.divides(parameter):
            yield parameter


def _rows(parameter: Tensor, sides: Sides, met: Tensor | None, comm: Comm) -> Tensor | None:
    """The rows, ascending, that some process has a gradient of; None: any may have one."""
    if sides.has_candidate_rows(parameter):
        return met
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return None
    own: Tensor = parameter.grad.indices()[0]
    every: Tensor = comm.gather(own.int()).unique()
    return every.long()


def _block(parameter: Tensor, rows: Tensor | None) -> Tensor:
    """What is sent of a gradient."""
    grad = parameter.grad
    assert grad is not None
    if rows is None:
        return grad.to_dense() if grad.is_sparse else grad
    if not grad.is_sparse:
        return grad[rows]
    values = grad.values()
    block = values.new_zeros(len(rows), *values.shape[1:])
    return block.index_copy_(0, torch.searchsorted(rows, grad.indices()[0]), values)


def _put(parameter: Tensor, rows: Tensor | None, values: Tensor) -> None:
    """The sum in the gradient's place."""
    grad = parameter.grad
    assert grad is not None
    if rows is None:
        parameter.grad = values
    elif grad.is_sparse:
        parameter.grad = torch.sparse_coo_tensor(
            rows[None], values, parameter.shape, is_coalesced=True, check_invariants=False
        )
    else:
        grad.index_copy_(0, rows, values)
