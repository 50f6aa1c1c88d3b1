"""What Ctrl-C does to a command, from its first moment to its last."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # the exit code, as shells have it
SAID = "interrupted\n"
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end what is inside, and what follows, with one line and no traceback.

    Where somebody else handles it, as ``nohup`` and shells do for work in the background, they
    still do.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, _leave)  # the interpreter would tell where it was


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait until the current step is done; the second one is immediate.

    Yields a function that says whether Ctrl-C was pressed. An outer context is notified as well.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            signal.default_int_handler(number, frame)
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
        immediate = before in (signal.default_int_handler, interrupt)  # too late after the last
        if pressed and callable(before) and not immediate:
            before(signal.SIGINT, None)


def interrupt(_number: int, frame: FrameType | None) -> None:
    """A KeyboardInterrupt; while a module is imported, the end of the process.

    Modules catch whatever is raised in their imports, try another one instead, or are left half
    made. And there is nothing to clean up that a kill would not leave too.
    """
    if _is_importing(frame):
        _leave()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """Say so and end, without a way for anybody to go on."""
    with suppress(OSError):  # nobody listens any more
        os.write(2, ((SHOW_CURSOR if os.isatty(2) else "") + SAID).encode())
    os._exit(INTERRUPTED)
