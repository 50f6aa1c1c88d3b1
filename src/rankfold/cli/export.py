"""``rankfold export``: vectors and index as plain files, for a vector store."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.options import Json, Model, Quiet, takes


def command(
    model: Model,
    *,
    out: Annotated[Path, takes("DIR", "The folder to write.")],
    format: Annotated[str, typer.Option(help="parquet, or npy with a table of keys.")] = "parquet",
    index: Annotated[bool, typer.Option(help="Also write index.faiss over the candidates.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the vectors of queries and candidates, and an index that faiss opens."""
    from rankfold.models.load import load_ranker
    from rankfold.tasks.export import export

    with progress(quiet=quiet or json) as callback:
        about = export(load_ranker(model), out, format=format, index=index, progress=callback)
    if json:
        print_json({"out": str(out), **about})
        return
    sizes = " and ".join(f"{about[side]['rows']:,} {side}" for side in ("queries", "candidates"))
    console(quiet=quiet).print(f"{out}: {sizes}, width {about['width']}; see about.json")
