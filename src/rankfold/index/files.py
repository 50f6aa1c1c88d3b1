"""Indexes of faiss's in files, which it maps into memory where it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankfold.errors import UserError


def faiss() -> Any:
    """The library, imported when it is first needed."""
    import faiss

    return faiss


def write_to(index: Any, path: Path) -> None:
    """Write a whole index as one file."""
    faiss().write_index(index, str(path))


def open_mapped(path: Path, *flags: str) -> Any:
    """Read an index; with the right flags, what is large stays in the file until it is looked at.

    ``IO_FLAG_MMAP`` is for inverted lists, ``IO_FLAG_MMAP_IFC`` for vectors and graphs; one that
    this faiss does not have is left out. A file comes here after it was compared with its checksum:
    faiss trusts what it reads.
    """
    library, combined = faiss(), 0
    for flag in flags:
        combined |= getattr(library, flag, 0)
    try:
        return library.read_index(str(path), combined)
    except RuntimeError as error:
        raise ValueError(f"{path.name} is no index of faiss's: {error}") from error


def checked(index: Any, kind: str, shape: tuple[int, ...]) -> Any:
    """The index, if it is of this kind and of so many vectors; a ValueError otherwise."""
    found = (type(index).__name__, index.ntotal, index.d, index.metric_type)
    wanted = (kind, *shape, faiss().METRIC_INNER_PRODUCT)
    if found != wanted:
        raise ValueError(f"its index is {found}, expected {wanted}")
    return index


def cannot_reach(kind: str, recall: float, k: int, target: float) -> UserError:
    return UserError(
        f"a {kind} index finds {recall:.3f} of the best {k} at most, and {target:g} are wanted",
        hint="use --kind inverted, which searches exactly where it must, or want less",
    )
