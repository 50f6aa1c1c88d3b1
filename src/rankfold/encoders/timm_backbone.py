"""Image backbones of timm as row encoders: ``timm:NAME``."""

from typing import Any

import torch
from torch import Tensor, nn

from rankfold.encoders.row_inputs import Inputs, RowEncoder, RowShape
from rankfold.encoders.towers import small_linear
from rankfold.errors import UserError


def backbone(name: str) -> RowEncoder:
    """A backbone by its name in timm, with random weights; for trained ones register your own."""

    def make(_shape: RowShape, width: int, _dropout: float, rng: torch.Generator) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # timm draws from the global generator
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
            module = _create(name)
        return _Backbone(module, int(module.num_features), width, rng)

    return make


class _Backbone(nn.Module):
    """A backbone of timm, and a linear map from its features to the width."""

    def __init__(self, module: nn.Module, features: int, width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.module, self.last = module, small_linear(features, width, rng)

    def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> Tensor:
        images = inputs.images
        assert images is not None
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        vectors: Tensor = self.last(self.module(images))
        return vectors.relu()


def _create(name: str) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision does not match torch
        raise UserError(
            f"timm cannot be imported: {error}",
            hint="pip install 'rankfold[timm]', with a torchvision that matches torch; "
            "or use encoder=convolution",
        ) from error
    try:
        return timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:  # timm's error for an unknown name
        raise UserError(
            f"timm has no model {name!r}: {error}", hint="timm.list_models() lists the names"
        ) from error
