"""``rankfold index``: build an index of the candidates and keep it in the model's folder."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import DryRun, Json, Model, Quiet, Seed, takes

# The names that people see for the two indexes of a manifest.
INDEX_NAMES = {"index": "index", "likeness": "index of similar candidates"}


def command(
    model: Model,
    *,
    kind: Annotated[
        str,
        takes(
            "NAME",
            "One of {rankfold.index:INDEXES}; auto chooses by the number of candidates and "
            "the size of their vectors.",
        ),
    ] = "auto",
    recall: Annotated[float, takes("SHARE", "The share of the best candidates to find.")] = 0.98,
    similar: Annotated[
        bool, typer.Option(help="Also build an index of similar candidates, by cosine.")
    ] = False,
    seed: Seed = 0,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build an index of a model's candidates and measure its recall."""
    from rankfold.models.index import add_index

    if dry_run:
        from rankfold.tasks.dry_run.index import outline_index

        outline = outline_index(model, kind, recall=recall, similar=similar)
        return show_outline(outline, json=json, quiet=quiet)
    with progress(quiet=quiet or json) as callback:
        built = add_index(model, kind, recall=recall, similar=similar, seed=seed, progress=callback)
    if json:
        print_json({"model": str(model), **built})
        return
    out = console(quiet=quiet)
    for name, about in built.items():
        out.print(f"{model}: {INDEX_NAMES[name]}: {describe_index(about)}")


def describe_index(about: Mapping[str, Any]) -> str:
    """The facts of an index, for people."""
    facts = [f"{about['kind']}, by {about['metric']}"]
    if about["kind"] != "exact":
        recall = ", ".join(f"{share:.3f} of the best {k}" for k, share in about["recall"].items())
        facts.append(f"finds {recall} ({about['measured_on']:,} {about['of']})")
        if any(share < about["target"] for share in about["recall"].values()):
            facts.append(f"the target was {about['target']:g}: try a larger --recall")
        if about["kind"] == "hnsw" and about.get("efforts"):
            facts.append(f"exact search for more than {about['efforts'][-1][0]} results")
    if "seconds" in about:
        facts.append(f"built in {about['seconds']:.1f} s")
    return "; ".join(facts)
