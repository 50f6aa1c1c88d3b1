"""Synchronised gradients: their sums over processes.

Tables with a row per query are divided: each process has the rows of its own queries, and no other
process has gradients for them. A large table with a row per candidate may be divided, too. All
other parameters are the same on all processes, and so are their gradients once summed. Of a table
with a row per candidate only the rows in the batch are sent; all processes know which these are. Of
another table with sparse gradients, such as tokens, each process knows only its own rows, so the
processes exchange the row numbers first.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankfold.errors import UserError
from rankfold.types import Comm


class Sides(NamedTuple):
    """The tables of a module that are divided, and those with a row per candidate."""

    divided: tuple[nn.Embedding, ...] = ()
    per_candidate: tuple[nn.Embedding, ...] = ()

    def is_divided(self, parameter: Tensor) -> bool:
        return any(parameter is table.weight for table in self.divided)


UNDIVIDED = Sides()


def sum_gradients(module: nn.Module, sides: Sides, candidates: Tensor | None, comm: Comm) -> None:
    """Sum the gradients of shared parameters over all processes; sparse ones are coalesced.

    Args:
        module: with the gradients of this process's part of the batch's mean.
        sides: the tables that are divided or have a row per candidate.
        candidates: candidates in the batch, ascending, the same on all processes; None: all.
        comm: with one process, nothing is done.
    """
    shared = [] if comm.size == 1 else list(_shared(module, sides))
    if not shared:
        return
    rows = [_rows(one, sides, candidates, comm) for one in shared]
    blocks = [_block(one, some) for one, some in zip(shared, rows, strict=True)]
    flat = torch.cat([block.flatten() for block in blocks]) if len(blocks) > 1 else blocks[0]
    summed = comm.sum(flat).flatten().split([block.numel() for block in blocks])
    for one, some, block, values in zip(shared, rows, blocks, summed, strict=True):
        _put(one, some, values.view(block.shape).to(block.dtype))


def norm(values: Iterable[tuple[Tensor, Tensor]], sides: Sides, comm: Comm) -> Tensor:
    """The norm of all gradients as one vector, given parameters with their gradients' values."""
    lengths = []
    for parameter, value in values:
        length = value.norm()
        if comm.size > 1 and sides.is_divided(parameter):
            length = comm.sum(length.square()).sqrt()
        lengths.append(length)
    total: Tensor = torch.linalg.vector_norm(torch.stack(lengths))
    return total


def refuse_batch_norm(name: str, module: nn.Module) -> None:
    """Raise a UserError for an encoder with a batch norm: processes cannot share its batches.

    A batch norm makes a row's vector depend on the other rows of its batch.
    """
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"encoder={name} has a batch norm ({type(part).__name__}), "
                "so several processes cannot share a batch",
                hint="start it without torchrun, or use encoder=convolution or mlp",
            )


def own_rows(saved: Tensor, like: Tensor, comm: Comm) -> Tensor:
    """The saved state of a parameter; if its table is now divided, this process's rows."""
    if saved.dim() == 0 or like.dim() == 0 or len(saved) == len(like):
        return saved
    if len(saved) < len(like):
        raise UserError(
            "the checkpoint was made with the candidates divided among processes",
            hint="use the --candidate-memory that it was made with",
        )
    start, stop = comm.share(len(saved))
    return saved[start:stop]


def _shared(module: nn.Module, sides: Sides) -> Iterator[Tensor]:
    """All parameters but the divided ones. Missing gradients become 0."""
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if not sides.is_divided(parameter):
            yield parameter


def _rows(parameter: Tensor, sides: Sides, candidates: Tensor | None, comm: Comm) -> Tensor | None:
    """The rows with a gradient on some process, ascending; None: all rows."""
    if any(parameter is table.weight for table in sides.per_candidate):
        return candidates
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return None
    own: Tensor = parameter.grad.indices()[0]
    every: Tensor = comm.gather(own.int()).unique()
    return every.long()


def _block(parameter: Tensor, rows: Tensor | None) -> Tensor:
    """The part of a gradient that is sent."""
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
    """Replace the gradient by the sum."""
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
