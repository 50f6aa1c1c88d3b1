"""Work in another process, which is killed."""

import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ranks import PRELOADED

import rankfold as rf
from rankfold.training import loop


def kill(
    work: Callable[..., None], *args: Any, until: Callable[[], bool], delay: float = 0.0
) -> None:
    """Start ``work(*args)``, and kill it ``delay`` seconds after a condition; it must not end."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=work, args=args)
    process.start()
    while not until():
        assert process.exitcode is None
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.join()


def kill_fit(
    name: str, data: Path, out: Path, options: Mapping[str, Any], pause: float, **when: Any
) -> None:
    """Kill a fit that writes a checkpoint and pauses after each step."""
    kill(_fit, name, data, out, dict(options), pause, **when)
    assert not out.exists()


def _fit(name: str, data: Path, out: Path, options: dict[str, Any], pause: float) -> None:
    def report(*_: object) -> None:
        time.sleep(pause)

    loop.PAUSE_SECONDS = -1.0
    rf.fit(name, data, out=out, checkpoint_seconds=0, report=report, **options)
