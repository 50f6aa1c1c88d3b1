"""The command line. A command parses, calls a task and prints; heavy imports are inside it."""

import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rankfold import __version__
from rankfold.cli import (
    add,
    blend,
    compare,
    demo,
    diagnose,
    evaluate,
    export,
    extend,
    fit,
    forget,
    index,
    info,
    methods,
    predict,
    prepare,
    search,
    serve,
    torchrun,
    tune,
    verify,
)
from rankfold.cli.options import Command, with_imports
from rankfold.distributed import is_distributed
from rankfold.errors import UserError, format_error
from rankfold.interrupts import INTERRUPTED, MESSAGE

_FULL = "free some space, or set TMPDIR to another folder"
_HINTS = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS), _FULL)
_HINTS[errno.ENAMETOOLONG] = "choose a shorter name"
_PANELS = {
    "Get started": (demo, methods),
    "Learn a model": (prepare, fit, tune, blend, evaluate, compare, diagnose),
    "Use a model": (search, predict, index, serve, export),
    "Change a model": (add, extend, forget),
    "Inspect a folder": (info, verify),
}
_WITH_PARTS = ("Learn a model", "Use a model", "Change a model")  # these take --import
COMMANDS = {
    module.__name__.rpartition(".")[2]: (module, panel)
    for panel, modules in _PANELS.items()
    for module in modules
}


class Commands(TyperGroup):
    """All commands. Ctrl-C ends those that do not handle it themselves with one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write(MESSAGE)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, (module, panel) in COMMANDS.items():
    takes_parts = panel in _WITH_PARTS or name == "methods"
    command = with_imports(module.command) if takes_parts else module.command
    app.command(name, cls=Command, rich_help_panel=panel)(command)


@app.callback(invoke_without_command=True)
def options(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Learn to rank a few candidates out of very many.

    Start with `rankfold demo`. With your own data: `prepare`, then `fit`, then `search`.
    """
    if version:
        sys.stdout.write(f"rankfold {__version__}\n")
        raise typer.Exit


def main() -> None:
    """Run a command. Exit codes: 0 success, 2 invalid input, 130 interrupted, 1 a bug."""
    if is_distributed():
        torchrun.run(app)
    try:
        app()
    except UserError as error:
        sys.stderr.write(format_error(str(error), error.hint))
        sys.exit(2)
    except BrokenPipeError:  # the reader of stdout has gone
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _HINTS:
            raise
        what = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        sys.stderr.write(format_error(what, _HINTS[error.errno]))
        sys.exit(2)
