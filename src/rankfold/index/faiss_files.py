"""Files of faiss indexes, memory-mapped where faiss can."""

from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.errors import UserError


def faiss() -> Any:
    """The library, imported on first use."""
    import faiss

    return faiss


def write_to(index: Any, put: storage.Put) -> None:
    """Write the bytes of an index."""
    faiss().write_index(index, faiss().PyCallbackIOWriter(put))


def open_mapped(path: Path, flag: str, kind: str, shape: tuple[int, ...]) -> Any:
    """Read an index; a ValueError unless it has this type and shape.

    With the right flag, large parts stay in the file until they are used. ``IO_FLAG_MMAP`` is for
    inverted lists, ``IO_FLAG_MMAP_IFC`` for vectors and graphs; a flag that the installed faiss
    lacks is ignored. Check the file's checksum first: faiss trusts its input.
    """
    library = faiss()
    try:
        index = library.read_index(str(path), getattr(library, flag, 0))
    except RuntimeError as error:
        raise ValueError(f"{path.name} is not a faiss index: {error}") from error
    actual = (type(index).__name__, index.ntotal, index.d, index.metric_type)
    expected = (kind, *shape, library.METRIC_INNER_PRODUCT)
    if actual != expected:
        raise ValueError(f"its index must be {expected}, got {actual}")
    return index


def unreachable_recall(kind: str, recall: float, k: int, target: float) -> UserError:
    return UserError(
        f"a {kind} index reaches a recall of at most {recall:.3f} at {k} results, not {target:g}",
        hint="use --kind inverted, which searches exactly where needed, or lower --recall",
    )
