"""A kind of index: how it is built, and how it is opened from a folder."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from rankfold import storage
from rankfold.types import Index


class SavableIndex(Index, Protocol):
    """An index that can be saved in a folder."""

    @property
    def kind(self) -> str:
        """Its name in ``INDEXES``."""

    def files(self, name: str) -> dict[str, storage.Content]:
        """All that ``open`` needs besides the candidates: files named ``name`` or ``name_...``."""

    def about(self) -> dict[str, Any]:
        """How it was built, as plain JSON values."""


class Build(Protocol):
    """Builds an index whose search reaches the recall ``target`` on queries like ``queries``."""

    def __call__(
        self, candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
    ) -> SavableIndex: ...


class Saved(NamedTuple):
    """A saved index: its files in a folder, under ``name``, and its description."""

    folder: storage.Folder
    name: str
    about: Mapping[str, Any]


class Open(Protocol):
    """Opens a saved index of the same candidates."""

    def __call__(self, saved: Saved, candidates: Tensor, memory_budget: int) -> SavableIndex: ...


class Kind(NamedTuple):
    """How an index is built and opened; ``open`` is None if it is saved as another kind."""

    build: Build
    open: Open | None
