"""Dry runs: what a command would do, once its checks have passed. Nothing is written.

A figure that is not known is None; it is never guessed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from rankfold.errors import format_bytes
from rankfold.storage import free_bytes, free_memory

T = TypeVar("T")


def outline(
    command: str,
    work: Mapping[str, Any],
    reads: Sequence[str | Path],
    writes: Mapping[Any, int | None],
    *,
    memory: int | None = None,
    time: tuple[float | None, str | None] = (None, None),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The plan of a command as one JSON document.

    Args:
        command: its name.
        work: what it does.
        reads: the files and folders that it reads.
        writes: the paths that it writes, each with the number of bytes at least.
        memory: bytes that it needs at least.
        time: the seconds that it takes, and where that figure is from.
        notes: remarks; shortages of memory and disk are added.
    """
    written = [_destination(Path(path), size) for path, size in writes.items()]
    seconds, source = time
    return {
        "dry_run": True,
        "command": command,
        "reads": [{"path": str(path), "bytes": bytes_of(path)} for path in reads],
        "writes": written,
        "work": work,
        "memory_at_least": memory,
        "seconds": seconds,
        "seconds_from": source,
        "notes": [*notes, *_shortages(memory, written)],
    }


def bytes_of(path: str | Path) -> int:
    """The size of a file, or of all files in a folder."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def timed(task: Callable[[], T]) -> tuple[T, float]:
    """The result of a task, and its seconds. It runs twice: the first time also loads modules."""
    task()
    began = perf_counter()
    return task(), perf_counter() - began


def _destination(path: Path, size: int | None) -> dict[str, Any]:
    replaces, free = path.exists(), free_bytes(path)
    return {"path": str(path), "replaces": replaces, "at_least": size, "free": free}


def _shortages(memory: int | None, writes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    free = free_memory()
    if memory is not None and 0 < free < memory:
        yield f"more memory is needed than the {format_bytes(free)} that are free"
    for one in writes:
        if (one["at_least"] or 0) > one["free"]:
            yield f"{one['path']} needs more than the {format_bytes(one['free'])} free on its disk"
