"""What a file of a folder can be written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

Content: TypeAlias = "Mapping[str, Tensor] | pl.DataFrame | str | ForeignFile | ReusedFile"


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file in another library's format; ``write`` writes it to the given path."""

    suffix: str
    write: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class ReusedFile:
    """A file of a folder opened before. It is copied, or left in place in the same folder."""

    folder: Path
    entry: Mapping[str, Any]  # of the manifest
