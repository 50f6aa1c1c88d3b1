"""The one seam at which tests see, refuse and record what is asked of the disk."""

import errno
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

CALLS = ["os.open", "os.write", "os.fsync", "os.replace", "os.rename", "os.mkdir", "os.rmdir"]
CALLS += ["os.unlink", "os.stat", "os.lstat", "os.listdir", "os.scandir", "io.open"]

React = Callable[[str, Path, tuple[Any, ...], Callable[..., Any]], Any]
Fault = int | str
"""The number of an error; ``short``: half of the bytes are written; ``kill``: the call is not made,
and no later one either."""


class Call(NamedTuple):
    """A call on the disk, and the lines of the program that lead to it."""

    name: str
    lines: tuple[tuple[str, int], ...]


class Killed(BaseException):
    """In place of the end of the process."""


@contextmanager
def watched(react: React, under: Path | None = None) -> Iterator[None]:
    """Let ``react(name, path, arguments, call)`` stand for each call on a path or an opened file.

    ``under``: only calls on this folder and what is in it.
    """
    opened: dict[int, Path] = {}

    def path_of(what: Any, folder: int | None) -> Path | None:
        if isinstance(what, int):
            return opened.get(what)
        home = "" if folder is None else opened.get(folder, "/")
        return Path(os.path.abspath(os.path.join(home, os.fspath(what))))  # noqa: PTH100, PTH118

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def reacting(*arguments: Any, **options: Any) -> Any:
            path = path_of(arguments[0] if arguments else ".", options.get("dir_fd"))
            if path is None or not (under is None or path.is_relative_to(under)):
                return call(*arguments, **options)
            done = react(name, path, arguments, lambda *given: call(*given, **options))
            if name == "os.open":
                opened[done] = path
            return done

        return reacting

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            module, _, function = name.partition(".")
            real = getattr(sys.modules[module], function)
            patch.setattr(sys.modules[module], function, wrapped(name, real))
        yield


@contextmanager
def failing_call(
    place: int, fault: Fault = errno.EACCES, under: Path | None = None
) -> Iterator[list[Call]]:
    """Let call number ``place``, from 0, meet a fault; yields the calls made."""
    made: list[Call] = []

    def react(name: str, path: Path, arguments: tuple[Any, ...], call: Callable[..., Any]) -> Any:
        made.append(Call(name, _lines_of(sys._getframe(2))))
        if len(made) <= place or (fault != "kill" and len(made) > place + 1):
            return call(*arguments)
        if fault == "kill":
            raise Killed
        if isinstance(fault, int):
            raise OSError(fault, os.strerror(fault), str(path))
        if name == "os.write":
            handle, data = arguments
            return call(handle, data[: (len(data) + 1) // 2])
        return call(*arguments)

    with watched(react, under):
        yield made


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Simulates a full disk: a write beyond ``size`` bytes of a file fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _lines_of(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    lines = []
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
