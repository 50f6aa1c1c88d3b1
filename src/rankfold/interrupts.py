"""The start of a command, and Ctrl-C until its end."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # the exit code, as shells have it
MESSAGE = "interrupted\n"
_SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it


def import_torch() -> None:
    """Import torch without searches for garbage, which imports do not leave: a third faster.

    Later searches leave out what is imported here.
    """
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import_module("torch")
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the body, and what follows it, with one line and no traceback.

    Another handler of SIGINT stays in place: ``nohup`` and shells set one for background jobs.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    report, sys.unraisablehook = sys.unraisablehook, _exit_if_interrupted
    try:
        yield
    except KeyboardInterrupt:
        _exit()
    finally:
        sys.unraisablehook = report
        signal.signal(signal.SIGINT, _exit)  # the interpreter would print a traceback


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
    """Raise KeyboardInterrupt; during an import, end the process.

    Modules catch exceptions in their imports, fall back to another module, or stay half
    initialised. Ending the process loses nothing that a kill would not lose.
    """
    if _is_importing(frame):
        _exit()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _exit_if_interrupted(unraisable: "sys.UnraisableHookArgs") -> None:
    """End the process where Ctrl-C came in a finalizer or a callback of C, which cannot raise."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _exit()
    sys.__unraisablehook__(unraisable)


def _exit(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """Print the message and end the process; nothing can catch it."""
    with suppress(OSError):  # stderr may be closed
        os.write(2, ((_SHOW_CURSOR if os.isatty(2) else "") + MESSAGE).encode())
    os._exit(INTERRUPTED)
