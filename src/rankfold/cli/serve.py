"""``rankfold serve``: answer over HTTP, with a page to try the models."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.options import takes
from rankfold.errors import UserError, require

_TOKEN_VARIABLE = "RANKFOLD_TOKEN"


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Model folders; NAME=FOLDER serves one under another name."
        ),
    ],
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8080,
    token_file: Annotated[
        Path | None,
        takes(
            "FILE",
            "Require the token in this file. Default: the token in the environment variable "
            f"{_TOKEN_VARIABLE}, if it is set.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that answer on the port; they share the models.")
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads of a search. Default: all cores but one; with several processes, each "
            "has its share of the cores.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for open requests to finish at shutdown.")
    ] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to answer a request.")] = 10.0,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes in a request body.")] = 2**20,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Queries, histories, texts or candidates in a request.")
    ] = 256,
    max_k: Annotated[int, typer.Option(min=1, help="Candidates in a ranking.")] = 1000,
    max_text: Annotated[int, typer.Option(min=1, help="Characters in a text.")] = 10_000,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 512,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB",
            min=0,
            help="Models of up to this size are copied to memory, larger ones to disk (TMPDIR). "
            "Default: half of the free memory.",
        ),
    ] = None,
    any_kind: Annotated[
        bool,
        typer.Option("--any-kind", help="Let a model be replaced by one of another kind of data."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not log each request.")] = False,
) -> None:
    """Answer over HTTP: / is a page to try the models, /docs describes the API."""
    for package in ("fastapi", "httptools", "uvicorn"):
        require(package, "the server", "serve")
    import torch

    from rankfold.serve.folders import Reading, named
    from rankfold.serve.limits import Limits
    from rankfold.serve.log import Log
    from rankfold.serve.processes import serve_by_processes
    from rankfold.serve.server import Settings, is_loopback, serve

    token = _read_token(token_file)
    folders = named(models)
    cores = os.cpu_count() or 2
    share = cores - 1 if processes == 1 else cores // processes
    torch.set_num_threads(threads or max(1, share))
    if token is None and not is_loopback(host):
        sys.stderr.write(
            f"warning: other machines can reach {host}, and no token is required\n"
            f"hint: set {_TOKEN_VARIABLE}, or use --token-file\n"
        )
    sizes = {"body": max_body, "batch": max_batch, "k": max_k, "text": max_text}
    settings = Settings(
        folders=folders,
        host=host,
        port=port,
        limits=Limits(**sizes, requests=max_requests, timeout=timeout),
        token=token,
        grace=grace,
        reading=Reading(None if memory is None else int(memory * 2**30), any_kind),
        log=Log(requests=not quiet),
        on_ready=_print_ready,
    )
    start = serve if processes == 1 else partial(serve_by_processes, processes)
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
