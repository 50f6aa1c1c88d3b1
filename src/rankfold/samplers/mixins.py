"""Mixins of samplers that take the whole pool, or that keep no state between steps.

Both classes are only subclassed; a sampler adds ``propose``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from rankfold.types import Batch, Drawn, Pool


class WholePool(ABC):
    """Compares with the whole pool."""

    @abstractmethod
    def propose(self, batch: Batch, rng: torch.Generator) -> Pool: ...

    def resample(
        self,
        scores: Tensor,  # noqa: ARG002
        pool: Pool,  # noqa: ARG002
        valid: Tensor | None,  # noqa: ARG002
        rng: torch.Generator,  # noqa: ARG002
    ) -> Drawn | None:
        return None


class Stateless(ABC):
    """Keeps nothing between steps."""

    @abstractmethod
    def propose(self, batch: Batch, rng: torch.Generator) -> Pool: ...

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:  # noqa: ARG002
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        return None
