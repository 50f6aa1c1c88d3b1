"""``rankfold serve``: models that answer over HTTP, and a page to try them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.cli.console import Quiet
from rankfold.errors import UserError

if TYPE_CHECKING:
    from rankfold.serve.models import Models

TOKEN = "RANKFOLD_TOKEN"


def command(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Model folders, or NAME=FOLDER.")
    ],
    *,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"Ask for the token in this file; without it, for that in {TOKEN}, if it is set.",
            metavar="FILE",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of a search; one less than cores without it.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that requests have to finish at the end.")
    ] = 10.0,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that an answer may take.")
    ] = 10.0,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2**20,
    max_batch: Annotated[int, typer.Option(min=1, help="Lists of a request.")] = 256,
    max_k: Annotated[int, typer.Option(min=1, help="Results of a list.")] = 1000,
    max_text: Annotated[int, typer.Option(min=1, help="Characters of a text.")] = 10_000,
    max_requests: Annotated[int, typer.Option(min=1, help="At the same time.")] = 512,
    quiet: Quiet = False,
) -> None:
    """Answer over HTTP for one or several models; /docs tells how to ask, / is a page."""
    try:
        import fastapi  # noqa: F401
        import httptools  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"the server needs {error.name}", hint="pip install 'rankfold[serve]'"
        ) from None
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or idle threads of a search spin
    import torch

    from rankfold.serve.limits import Limits
    from rankfold.serve.log import Log
    from rankfold.serve.models import named
    from rankfold.serve.server import is_loopback, serve

    token = _token(token_file)
    folders = named(models)
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 2) - 1))
    if token is None and not is_loopback(host):
        sys.stderr.write(
            f"warning: {host} can be reached by other machines, and everybody may ask\n"
            f"hint: set {TOKEN}, or give --token-file\n"
        )
    limits = Limits(
        body=max_body,
        batch=max_batch,
        k=max_k,
        text=max_text,
        in_flight=max_requests,
        seconds=timeout,
    )
    serve(
        folders,
        (host, port),
        limits=limits,
        token=token,
        grace=grace,
        log=Log(requests=not quiet),
        told=_tell,
    )


def _tell(address: str, models: Models) -> None:
    """Where it is, and what it serves."""
    from rankfold.serve.models import line_of

    lines = [f"rankfold serves {address}"]
    lines += [f"  {line_of(slot.served.card)}" for slot in models.slots.values() if slot.served]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _token(file: Path | None) -> str | None:
    """The token that requests have to bring: never an argument, which others could read."""
    if file is None:
        token = os.environ.get(TOKEN, "").strip()
        if TOKEN in os.environ and not token:
            raise UserError(f"{TOKEN} is set, but empty", hint="unset it, or give it a token")
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                f"cannot read the token in {file}: {error.strerror}", hint="name another file"
            ) from None
        except UnicodeDecodeError:
            raise UserError(f"{file} is not text", hint="write a token into it") from None
        if not token:
            raise UserError(f"{file} is empty", hint="write a token into it")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UserError(
            "the token has letters that no header can have", hint="use ASCII letters and digits"
        )
    return token or None
