"""A command under torchrun: rank 0 speaks, an error is said once, and all end with one code."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO

TOGETHER = ("fit", "evaluate")  # the others are done by rank 0 alone, while the rest wait


def are_several() -> bool:
    """Whether a launcher started several processes; asked before torch is loaded."""
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    return os.environ.get("WORLD_SIZE", "1") != "1" and all(name in os.environ for name in names)


def run(call: Callable[[], None]) -> NoReturn:
    """Call the command line in this process, which is one of several, and end it."""
    heard = sys.stderr
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost connection is ours to tell
    code = _run(call, heard)
    for stream in (sys.stdout, heard):
        stream.flush()
    os._exit(code)  # what a broken collective left would not end by itself


def _run(call: Callable[[], None], heard: TextIO) -> int:
    """The exit code."""
    from rankfold.distributed import connection
    from rankfold.errors import UserError, format_error

    try:
        rank = connection.connect().rank
        if rank > 0:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        try:
            _call(call, rank)
        except SystemExit as left:
            if left.code:  # it was said
                connection.abort(left)
                return left.code if isinstance(left.code, int) else 1
        connection.close()
    except UserError as error:
        if connection.abort(error):
            heard.write(format_error(str(error), error.hint))
        return int(getattr(error, "code", 2))
    except Exception as error:
        if connection.abort(error):
            traceback.print_exc(file=heard)
        return 1
    return 0


def _call(call: Callable[[], None], rank: int) -> None:
    from rankfold.distributed.connection import work_alone

    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in TOGETHER:
        work_alone()
        if rank > 0:
            return
    call()
