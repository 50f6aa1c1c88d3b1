"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder from `rankfold fit`.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A folder from `rankfold prepare`.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A data, model or checkpoint folder.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random numbers.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Index = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="exact, or an approximate index: auto, inverted, hnsw or compressed. Default: the "
        "index built by `rankfold index`, otherwise exact.",
    ),
]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Also return candidates that the query chose before.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print less on stderr.")]
