"""Power fails at any moment: the old content or the new one is there, and what is done stays done.

Every call that changes the disk is recorded. Each prefix of the calls is then replayed on an empty
disk as a power cut could have left it: the content of a file counts from its last flush, and a
change of names only from the next flush of its folder. Changes that were not flushed are there or
not, each by itself.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from disk_calls import watched
from folders import version_at, write

from rankfold import storage

DRAWS = 4  # disks per prefix on which each unflushed change survives by chance


@dataclass(slots=True)
class Change:
    """A change of names: a file or folder appears, moves or goes."""

    name: str
    source: Path
    target: Path | None = None
    flushed_at: float = float("inf")  # the number of calls after which it is on disk

    def folders(self) -> set[Path]:
        return {self.source.parent, *([self.target.parent] if self.target else [])}


@dataclass(slots=True)
class Recording:
    """All calls in order; the content of each file is kept by its identity, not by its name."""

    before: dict[Path, bytes | None]  # None: a folder
    calls: int = 0
    changes: list[tuple[int, Change]] = field(default_factory=list)
    contents: list[tuple[int, Path, bytes]] = field(default_factory=list)  # at each flush

    def react(
        self, name: str, path: Path, arguments: tuple[Any, ...], call: Callable[..., Any]
    ) -> Any:
        is_new = name == "os.open" and bool(arguments[1] & os.O_CREAT) and not path.exists()
        done = call(*arguments)
        self.calls += 1
        if is_new or name in ("os.mkdir", "os.unlink", "os.rmdir"):
            self.changes.append((self.calls, Change("new" if is_new else name, path)))
        elif name in ("os.replace", "os.rename"):
            moved = Path(os.path.abspath(arguments[1]))  # noqa: PTH100
            self.changes.append((self.calls, Change("move", path, moved)))
        elif name == "os.fsync" and path.is_dir():
            for _, change in self.changes:
                if path in change.folders():
                    change.flushed_at = min(change.flushed_at, self.calls)
        elif name == "os.fsync":
            self.contents.append((self.calls, path, path.read_bytes()))
        return done

    def disks(self, end: int, rng: random.Random) -> Iterator[dict[Path, bytes | None]]:
        """What may be on disk after the first ``end`` calls."""
        for draw in range(DRAWS + 2):
            chance = [0.0, 1.0, *[0.5] * DRAWS][draw]
            disk = dict(self.before)
            events: list[tuple[int, Change | tuple[Path, bytes]]] = [
                (at, change)
                for at, change in self.changes
                if at <= end and (change.flushed_at <= end or rng.random() < chance)
            ]
            events += [(at, (path, content)) for at, path, content in self.contents if at <= end]
            for _, event in sorted(events, key=lambda one: one[0]):
                apply(event, disk)
            yield disk


def apply(event: Change | tuple[Path, bytes], disk: dict[Path, bytes | None]) -> None:
    if isinstance(event, tuple):
        path, content = event
        if path in disk:
            disk[path] = content
    elif event.name == "new":
        disk[event.source] = b""
    elif event.name == "os.mkdir":
        disk[event.source] = None
    elif event.target is None:
        disk.pop(event.source, None)
    elif event.source in disk:
        inside = [path for path in disk if path.is_relative_to(event.source)]
        for path in inside:
            disk[event.target / path.relative_to(event.source)] = disk.pop(path)


@contextmanager
def recorded(home: Path) -> Iterator[Recording]:
    before = {path: path.read_bytes() if path.is_file() else None for path in home.rglob("*")}
    recording = Recording(before)
    with watched(recording.react, under=home):
        yield recording


def check_every_prefix(recording: Recording, home: Path, check: Callable[[bool], None]) -> None:
    """Call ``check(is the last prefix)`` with each possible disk in place."""
    rng = random.Random(0)
    for end in range(recording.calls + 1):
        for disk in recording.disks(end, rng):
            shutil.rmtree(home)
            home.mkdir()
            for path in sorted(disk):  # folders before what is in them
                if path.parent.is_dir():
                    content = disk[path]
                    path.mkdir() if content is None else path.write_bytes(content)
            check(end == recording.calls)


@pytest.mark.parametrize("before", [None, 1], ids=["a new folder", "over a folder"])
def test_a_folder_is_the_old_or_the_new_one(tmp_path: Path, before: int | None) -> None:
    home, seen = tmp_path / "home", set()
    home.mkdir()
    path = home / "model"
    if before is not None:
        write(path, 0)
        write(path, 1)
    with recorded(home) as recording:
        write(path, 2)

    def check(is_last: bool) -> None:  # noqa: FBT001
        there = version_at(path) if path.exists() else None
        assert there == 2 or (there == before and not is_last)
        seen.add(there)

    check_every_prefix(recording, home, check)
    assert seen == {before, 2}


def test_a_text_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    home, seen = tmp_path / "home", set()
    home.mkdir()
    path = home / "results.json"
    storage.write_text(path, "old")
    with recorded(home) as recording:
        storage.write_text(path, "new")

    def check(is_last: bool) -> None:  # noqa: FBT001
        text = path.read_text()
        assert text == "new" or (text == "old" and not is_last)
        seen.add(text)

    check_every_prefix(recording, home, check)
    assert seen == {"old", "new"}


def test_swept_files_stay_gone(tmp_path: Path) -> None:
    """``rankfold forget`` promises that no file still holds the key."""
    home = tmp_path / "home"
    home.mkdir()
    write(home / "model", 1)
    write(home / "model", 2)
    with recorded(home) as recording:
        storage.sweep(home / "model")

    def check(is_last: bool) -> None:  # noqa: FBT001
        assert version_at(home / "model") == 2
        assert not is_last or storage.leftovers(home / "model") == []

    check_every_prefix(recording, home, check)
