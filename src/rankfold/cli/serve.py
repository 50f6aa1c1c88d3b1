"""``rankfold serve``: answer over HTTP, with a page to try the models."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.options import takes, with_settings
from rankfold.config import build
from rankfold.errors import UserError, require
from rankfold.serve.options import ServeOptions

_TOKEN_VARIABLE = "RANKFOLD_TOKEN"


@with_settings(ServeOptions, metavar={"memory": "GIB"})
def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Model folders; NAME=FOLDER serves one under another name."
        ),
    ],
    *,
    token_file: Annotated[
        Path | None,
        takes(
            "FILE",
            "Require the token in this file. Default: the token in the environment variable "
            f"{_TOKEN_VARIABLE}, if it is set.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not log each request.")] = False,
    **options: Any,
) -> None:
    """Answer over HTTP: / is a page to try the models, /docs describes the API."""
    for package in ("fastapi", "httptools", "uvicorn"):
        require(package, "the server", "serve")
    import torch

    from rankfold.serve.folders import Reading, named
    from rankfold.serve.log import Log
    from rankfold.serve.processes import serve_by_processes
    from rankfold.serve.server import Settings, is_loopback, serve

    chosen = build(ServeOptions, options)
    token = _read_token(token_file)
    folders = named(models)
    cores = os.cpu_count() or 2
    share = cores - 1 if chosen.processes == 1 else cores // chosen.processes
    torch.set_num_threads(chosen.threads or max(1, share))
    if token is None and not is_loopback(chosen.host):
        sys.stderr.write(
            f"warning: other machines can reach {chosen.host}, and no token is required\n"
            f"hint: set {_TOKEN_VARIABLE}, or use --token-file\n"
        )
    memory = None if chosen.memory is None else int(chosen.memory * 2**30)
    settings = Settings(
        folders=folders,
        host=chosen.host,
        port=chosen.port,
        limits=chosen.limits(),
        token=token,
        grace=chosen.grace,
        reading=Reading(memory, chosen.any_kind),
        log=Log(requests=not quiet),
        on_ready=_print_ready,
    )
    several = chosen.processes > 1
    start = partial(serve_by_processes, chosen.processes) if several else serve
    start(settings)


def _print_ready(url: str, models: Sequence[str]) -> None:
    sys.stdout.write("\n  ".join([f"serving on {url}", *models]) + "\n")
    sys.stdout.flush()


def _read_token(file: Path | None) -> str | None:
    """The token that requests must send. It is never an argument: other users could read it."""
    if file is None:
        token = os.environ.get(_TOKEN_VARIABLE, "").strip()
        if _TOKEN_VARIABLE in os.environ and not token:
            raise UserError(f"{_TOKEN_VARIABLE} is empty", hint="unset it, or set it to a token")
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                f"cannot read {file}: {error.strerror}", hint="--token-file names a text file"
            ) from None
        except UnicodeDecodeError:
            raise UserError(f"{file} is not text", hint="write a token into it") from None
        if not token:
            raise UserError(f"{file} is empty", hint="write a token into it")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UserError(
            "the token must be printable ASCII without spaces", hint="use letters and digits"
        )
    return token or None
