"""``rankfold export``: vectors and index as plain files, for a vector store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import DryRun, Json, Model, Quiet, takes


def command(
    model: Model,
    *,
    out: Annotated[Path, takes("DIR", "The folder to write.")],
    format: Annotated[str, typer.Option(help="parquet, or npy with a table of keys.")] = "parquet",
    index: Annotated[bool, typer.Option(help="Also write index.faiss over the candidates.")] = True,
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="Also write the networks that encode new rows or texts."),
    ] = False,
    torch: Annotated[
        bool, typer.Option("--torch", help="Also write model.pt, a state dict of PyTorch.")
    ] = False,
    data: Annotated[
        Path | None,
        takes("DATA", "For a model with a tail: measure what its vectors alone lose on test."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the vectors of queries and candidates, and an index that faiss opens."""
    from rankfold.models.load import load_ranker
    from rankfold.tasks.export import export

    asked: dict[str, Any] = {"format": format, "index": index, "onnx": onnx, "torch": torch}
    asked["data"] = data
    if dry_run:
        from rankfold.tasks.dry_run.export import outline_export

        return show_outline(outline_export(model, out, **asked), json=json, quiet=quiet)
    with progress(quiet=quiet or json) as callback:
        about = export(load_ranker(model), out, progress=callback, **asked)
    if json:
        print_json({"out": str(out), **about})
        return
    sizes = " and ".join(f"{about[side]['rows']:,} {side}" for side in ("queries", "candidates"))
    say = console(quiet=quiet)
    say.print(f"{out}: {sizes}, width {about['width']}; see about.json")
    if "neighbours" in about:
        say.print(_without_tail(about.get("loss")), style="yellow")


def _without_tail(loss: Mapping[str, Any] | None) -> str:
    """What a store without the neighbours loses."""
    if loss is None:
        return "the vectors lack the model's tail of neighbours; --data DATA says how much that is"
    before, after = loss["model"], loss["vectors"]
    share = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{loss['metric']} on test: {before:.4f}, by the vectors alone {after:.4f}{share}"
