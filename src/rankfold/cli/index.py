"""``rankfold index``: what finds the best of many candidates fast, kept in the model's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json, progress


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    *,
    kind: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, exact, inverted, hnsw or compressed; auto chooses by how many candidates "
            "there are and how large their vectors.",
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(help="The share of the best candidates to find.", metavar="SHARE")
    ] = 0.98,
    similar: Annotated[
        bool, typer.Option(help="Also build one for similar candidates, by cosine.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of whatever is drawn.")] = 0,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build an index of a model's candidates, and measure how many of the best it finds."""
    from rankfold.models.index import add_index

    with progress(quiet=quiet or json) as tell:
        built = add_index(model, kind, recall=recall, similar=similar, seed=seed, progress=tell)
    if json:
        print_json({"model": str(model), **built})
        return
    out = console(quiet=quiet)
    for name, about in built.items():
        out.print(f"{model}: {name}: {describe_index(about)}")


def describe_index(about: Mapping[str, Any]) -> str:
    """What is known of an index, for people."""
    told = [f"{about['kind']}, by {about['metric']}"]
    if about["kind"] != "exact":
        found = ", ".join(f"{share:.3f} of the best {k}" for k, share in about["recall"].items())
        told.append(f"finds {found} ({about['measured_on']:,} {about['of']})")
        if any(share < about["target"] for share in about["recall"].values()):
            told.append(f"{about['target']:g} were wanted: try a larger --recall")
        if about["kind"] == "hnsw" and about.get("efforts"):
            told.append(f"more than {about['efforts'][-1][0]} results are searched exactly")
    if "seconds" in about:
        told.append(f"built in {about['seconds']:.1f} s")
    return "; ".join(told)
