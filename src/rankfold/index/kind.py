"""What a kind of index is: how it is built, and how it comes back from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from rankfold import storage
from rankfold.types import Index


class Saveable(Index, Protocol):
    """An index that can be kept in a folder."""

    @property
    def kind(self) -> str:
        """Its name in ``INDEXES``."""
        ...

    def files(self, name: str) -> dict[str, storage.Content]:
        """All that ``open`` needs besides the candidates: a file of that name, or more."""
        ...

    def about(self) -> dict[str, Any]:
        """How it was built, as plain JSON values."""
        ...


class Build(Protocol):
    """Builds an index, whose search reaches a recall of ``target`` on queries like ``queries``."""

    def __call__(
        self,
        candidates: Tensor,
        memory_budget: int,
        *,
        queries: Tensor,
        target: float,
        seed: int,
    ) -> Saveable: ...


class Open(Protocol):
    """Opens what ``files`` wrote by that name; ``about`` is what the index said of itself."""

    def __call__(
        self,
        folder: storage.Folder,
        name: str,
        about: Mapping[str, Any],
        candidates: Tensor,
        memory_budget: int,
    ) -> Saveable: ...


class Kind(NamedTuple):
    """How an index is built, and opened; None: it is saved as another kind."""

    build: Build
    open: Open | None
