"""Commands under torchrun: rank 0 prints, errors appear once, all ranks exit with one code."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO

from rankfold.interrupts import import_torch

_DISTRIBUTED_COMMANDS = ("fit", "evaluate")  # rank 0 runs the others alone


def run(main: Callable[[], None]) -> NoReturn:
    """Run the command line as one of several processes, and exit."""
    stderr = sys.stderr
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # we report lost connections ourselves
    code = _run(main, stderr)
    for stream in (sys.stdout, stderr):
        stream.flush()
    os._exit(code)  # threads of a broken collective would never end


def _run(main: Callable[[], None], stderr: TextIO) -> int:
    """The exit code."""
    import_torch()
    from rankfold.distributed import connection
    from rankfold.errors import UserError, format_error

    try:
        rank = connection.connect().rank
        if rank > 0:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        try:
            _run_on_ranks(main, rank)
        except SystemExit as end:
            if end.code:  # the error is printed already
                connection.abort(end)
                return end.code if isinstance(end.code, int) else 1
        connection.close()
    except UserError as error:
        if connection.abort(error):
            stderr.write(format_error(str(error), error.hint))
        return int(getattr(error, "code", 2))
    except Exception as error:
        if connection.abort(error):
            traceback.print_exc(file=stderr)
        return 1
    return 0


def _run_on_ranks(main: Callable[[], None], rank: int) -> None:
    from rankfold.distributed.connection import work_alone

    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in _DISTRIBUTED_COMMANDS:
        work_alone()
        if rank > 0:
            return
    main()
