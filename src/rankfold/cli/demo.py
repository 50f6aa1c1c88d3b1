"""``rankfold demo``: the main job on bundled data, from a table to ranked lists."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import Quiet, console, print_table, progress
from rankfold.cli.fit import reporter
from rankfold.cli.info import describe_data

PACKAGES = ("gimp", "python3-pandas", "r-cran-ggplot2", "ruby-rails", "gnome-core")
METHODS: dict[str, dict[str, Any]] = {"popularity": {}, "ials": {}, "rg2": {}}
METRICS = ("ndcg@10", "mrr@10", "recall@20", "coverage@10")


def command(
    *,
    out: Annotated[Path, typer.Option(help="Where the folders go.", metavar="DIR")] = Path("demo"),
    quiet: Quiet = False,
) -> None:
    """Prepare the bundled Debian package graph, fit three methods, compare, show ranked lists."""
    from rankfold.data.prepare import prepare
    from rankfold.evaluation import evaluate
    from rankfold.fitting import fit

    out.mkdir(parents=True, exist_ok=True)
    say = console(quiet=quiet)
    say.rule("Debian packages, and the packages they relate to")
    with progress(quiet=quiet) as tell:
        data = prepare(source="debian", out=out / "data", progress=tell)
    describe_data(data, str(out / "data"), say)
    rows = []
    for name, settings in METHODS.items():
        with progress(quiet=quiet) as tell:
            report = reporter(tell, "ndcg@10")
            model = fit(
                name, data, out=out / name, report=report, validation_queries=3000, **settings
            )
            result = evaluate(model, data, metrics=METRICS, progress=tell)
        rows.append([name, *(f"{result[metric]:.4f}" for metric in METRICS)])
    say.rule("Held-out relations, every package ranked")
    print_table("test split", ["method", *METRICS], rows, say)
    say.rule("What goes with a few packages, besides what they relate to already")
    found = model.search(list(PACKAGES), k=10)
    for package, keys in zip(PACKAGES, found.keys, strict=True):
        say.print(f"{package}: {', '.join(map(str, keys))}")
    say.rule()
    say.print(f"Go on by yourself: rankfold search {out / 'rg2'} --query vlc")
