"""``rankfold demo``: prepare, fit, evaluate, search and compare on bundled data."""

from pathlib import Path
from typing import Annotated

from rankfold.cli.compare import show, write_page
from rankfold.cli.console import console, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Quiet, takes

_PACKAGES = ("gimp", "python3-pandas", "r-cran-ggplot2", "ruby-rails", "gnome-core")
_METRICS = ("ndcg@10", "mrr@10", "recall@20", "coverage@10")
COMPARED = ("popularity", "puresvd", "wrmf", "ials", "rg2-weighted", "rg2")


def command(
    *,
    out: Annotated[Path, takes("DIR", "The folder for the results.")] = Path("demo"),
    quiet: Quiet = False,
) -> None:
    """Prepare the bundled Debian package graph, fit, evaluate, search and compare."""
    from rankfold.data.prepare import prepare
    from rankfold.tasks.compare import compare
    from rankfold.tasks.evaluate import evaluate
    from rankfold.tasks.fit import fit
    from rankfold.tasks.fit.progress import reporter

    out.mkdir(parents=True, exist_ok=True)
    say = console(quiet=quiet)
    say.rule("Debian packages and their related packages")
    with progress(quiet=quiet) as callback:
        data = prepare(source="debian", out=out / "data", progress=callback)
    describe_data(data, str(out / "data"), say)
    with progress(quiet=quiet) as callback:
        report = reporter(callback, "ndcg@10")
        model = fit("rg2", data, out=out / "rg2", report=report, validation_queries=3000)
        result = evaluate(model, data, metrics=_METRICS, progress=callback)
    say.rule("rg2 on held-out relations, ranking all packages")
    say.print(", ".join(f"{metric} {result[metric]:.4f}" for metric in _METRICS))
    say.rule("Suggested packages, without known relations")
    ranking = model.search(list(_PACKAGES), k=10)
    for package, keys in zip(_PACKAGES, ranking.keys, strict=True):
        say.print(f"{package}: {', '.join(map(str, keys))}")
    say.rule("Several methods with equal width and their default settings")
    with progress(quiet=quiet) as callback:
        results = compare(
            out / "data",
            COMPARED,
            out=out / "comparison",
            metrics=_METRICS,
            refit=False,
            progress=callback,
        )
    show(results, say)
    say.rule()
    say.print(f"Try it: rankfold search {out / 'rg2'} --query vlc")
    if page := write_page(results, out / "comparison" / "report.html", say):
        say.print(f"Open the report in a browser: {page}")
