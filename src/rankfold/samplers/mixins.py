"""Mixins of samplers that take the whole pool, or that keep no state between steps.

Both classes are only subclassed; a sampler adds ``propose``.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankfold.types import Batch, Drawn, Pool


class WholePool:
    """Compares with the whole pool."""

    def resample(
        self, _scores: Tensor, _pool: Pool, _valid: Tensor | None, _rng: torch.Generator
    ) -> Drawn | None:
        return None


class Stateless:
    """Keeps nothing between steps."""

    def observe(self, _batch: Batch, _pool: Pool, _drawn: Drawn | None) -> None:
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, _state: Mapping[str, Tensor]) -> None:
        return None
