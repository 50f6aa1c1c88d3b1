"""The mean of a module's latest states: steadier than the one that the last step left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The mean of the floating-point tensors of a module's state over its latest steps.

    After step n, h the horizon in steps, at least 1::

        mean <- mean + (state - mean) / min(n, h)

    So it is the plain mean of the first h steps; from then on a step weighs 1 - 1/h of the next.
    """

    def __init__(self, module: nn.Module, horizon: float) -> None:
        state = module.state_dict()  # its tensors are the module's own
        self.own = {name: value for name, value in state.items() if value.is_floating_point()}
        self.means = {name: value.clone() for name, value in self.own.items()}
        self.horizon = max(1.0, horizon)

    def follow(self, number: int) -> None:
        """Take in the state after a step, the first of which has the number 1."""
        weight = 1 / min(number, self.horizon)
        torch._foreach_lerp_([*self.means.values()], [*self.own.values()], weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module is in the mean state; afterwards in its own again."""
        kept = {name: value.clone() for name, value in self.own.items()}
        _copy(self.means, self.own)
        try:
            yield
        finally:
            _copy(kept, self.own)

    def state(self) -> dict[str, Tensor]:
        return self.means

    def load(self, state: Mapping[str, Tensor]) -> None:
        _copy(state, self.means)


def _copy(values: Mapping[str, Tensor], to: Mapping[str, Tensor]) -> None:
    for name, tensor in to.items():
        tensor.copy_(values[name])
