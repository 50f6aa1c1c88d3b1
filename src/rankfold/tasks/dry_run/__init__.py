"""Dry runs: what a command would do, once its checks have passed. Nothing is written.

A figure that is not known is None; it is never guessed.
"""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from rankfold.errors import format_bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """A file or folder that the command reads."""

    path: Path
    bytes: int

    @staticmethod
    def of(path: str | Path) -> "Read":
        """With the size of the file, or of all files in the folder."""
        path = Path(path)
        files = path.rglob("*") if path.is_dir() else (path,)
        return Read(path, sum(file.stat().st_size for file in files if file.is_file()))


@dataclass(frozen=True, slots=True)
class Written:
    """A folder that the command writes."""

    path: Path
    replaces: bool
    free: int  # bytes on its disk
    bytes: int | None = None  # at least

    @staticmethod
    def of(path: str | Path, size: int | None = None) -> "Written":
        path = Path(path)
        home = path if path.is_dir() else path.absolute().parent
        return Written(path, path.exists(), shutil.disk_usage(home).free, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The plan of a command."""

    command: str
    reads: list[Read]
    writes: list[Written]
    work: dict[str, Any]  # plain JSON
    memory: int | None = None  # bytes, at least
    seconds: float | None = None
    seconds_from: str | None = None  # where that figure is from
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """One JSON document."""
        return {
            "dry_run": True,
            "command": self.command,
            "reads": [{"path": str(one.path), "bytes": one.bytes} for one in self.reads],
            "writes": [
                {
                    "path": str(one.path),
                    "replaces": one.replaces,
                    "at_least": one.bytes,
                    "free": one.free,
                }
                for one in self.writes
            ],
            "work": self.work,
            "memory_at_least": self.memory,
            "seconds": self.seconds,
            "seconds_from": self.seconds_from,
            "notes": self.notes,
        }


def timed(task: Callable[[], T]) -> tuple[T, float]:
    """What a task gives, and its seconds. It runs twice: the first time also loads modules."""
    task()
    began = perf_counter()
    return task(), perf_counter() - began


def short_of(memory: int | None, free: int, writes: Iterable[Written]) -> list[str]:
    """What the machine is short of, in words."""
    notes = []
    if memory is not None and 0 < free < memory:
        notes.append(f"more memory is needed than the {format_bytes(free)} that are free")
    for one in writes:
        if one.bytes is not None and one.bytes > one.free:
            notes.append(
                f"{one.path} needs more than the {format_bytes(one.free)} free on its disk"
            )
    return notes
