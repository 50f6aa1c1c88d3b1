"""Batch norms make a row's vector depend on the other rows of its batch."""

from torch import nn

from rankfold.errors import UserError


def refuse_batch_norm(name: str, module: nn.Module) -> None:
    """Raise a UserError for an encoder with a batch norm: processes cannot share its batches."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"encoder={name} has a batch norm ({type(part).__name__}), "
                "so several processes cannot share a batch",
                hint="start it without torchrun, or use encoder=convolution or mlp",
            )
