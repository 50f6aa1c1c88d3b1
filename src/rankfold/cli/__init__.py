"""The command line: parse, call the library, print. One file per command, heavy imports inside."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rankfold import __version__
from rankfold.cli import (
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
    ranks,
    search,
    serve,
    tune,
    verify,
)
from rankfold.errors import UserError, format_error
from rankfold.interrupts import INTERRUPTED, MESSAGE

COMMANDS = {
    "demo": demo,
    "methods": methods,
    "prepare": prepare,
    "fit": fit,
    "tune": tune,
    "evaluate": evaluate,
    "compare": compare,
    "index": index,
    "search": search,
    "predict": predict,
    "serve": serve,
    "export": export,
    "diagnose": diagnose,
    "extend": extend,
    "forget": forget,
    "info": info,
    "verify": verify,
}


class Commands(TyperGroup):
    """All commands: those that have nothing to say about Ctrl-C end with one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write(MESSAGE)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    help="Learn to rank a few candidates out of very many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, module in COMMANDS.items():
    app.command(name)(module.command)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"rankfold {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda v: _print_version(wanted=v), is_eager=True)
    ] = False,
) -> None:
    """Learn to rank a few candidates out of very many."""


def main() -> None:
    """Run a command. Exit codes: 0 good, 2 the user's input, 130 interrupted, 1 a bug."""
    if ranks.are_several():
        ranks.run(app)
    try:
        app()
    except UserError as error:
        sys.stderr.write(format_error(str(error), error.hint))
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        sys.exit(0)
