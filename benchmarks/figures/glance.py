"""The tables of ``docs/methods/choose.md``: what a method can do, and how it did."""

from statistics import mean

from benchmarks.figures.read import equal_terms, grades, load, short, text_runs, texts
from benchmarks.figures.sections import RATES, table

PAIR_SETS = ("gowalla", "pinterest", "debian-links")
PAIRS = {  # candidates, new queries, new candidates, serving
    "rg2": ("millions", "by history", "fit again", "any index, and neighbours"),
    "ease": ("50,000", "by history", "fit again", "exact; no vectors"),
    "blend": ("50,000", "by history", "fit again", "exact; no vectors"),
    "ials": ("millions", "by history", "fit again", "any index"),
    "wrmf": ("millions", "by history", "fit again", "any index"),
    "rg2-weighted": ("millions", "by history", "fit again", "any index"),
    "rgx": ("millions", "by history", "fit again", "any index"),
    "ssl-pop": ("millions", "fit again", "by features", "any index"),
    "mns": ("millions", "fit again", "by features", "any index"),
    "bir": ("millions", "fit again", "by features", "any index"),
    "bpr": ("millions", "fit again", "by features", "any index"),
    "softmax": ("100,000; a GPU: millions", "fit again", "by features", "any index"),
    "puresvd": ("millions", "by history", "fit again", "any index"),
    "popularity": ("any", "the same list", "fit again", "one list"),
}
TEXT_SETS = ("yso-finna-en", "mdn-seealso", "debian-seealso", "wordnet")
TEXTS = {  # new labels, serving
    "siamesexml": ("by their text", "any index"),
    "siamesexml-3": ("by their text", "any index"),
    "text-linear": ("fit again", "its own, exact"),
    "text-neighbours": ("fit again", "its own, exact"),
}
GRADED = ("cba", "focal", "ce", "soft-label", "eban", "pauc", "ddag", "fh", "nnrank")
ORDINAL_SETS = ("fars", "retinamnist")


def pairs() -> str:
    head = [
        "",
        "candidates up to",
        "fit, s",
        *PAIR_SETS,
        "new queries",
        "new candidates",
        "serving",
    ]
    rows = []
    for name, (size, queries, candidates, serving) in PAIRS.items():
        values = [short(equal_terms(name, data, 64)) for data in PAIR_SETS]
        rows.append([_link(name), size, _seconds(name), *values, queries, candidates, serving])
    return table(head, rows)


def labels() -> str:
    rows = []
    for name, (new, serving) in TEXTS.items():
        values = [f"{texts(f'rankfold-{name}', data, 'P@1'):.1f}" for data in TEXT_SETS]
        runs = text_runs(f"rankfold-{name}", "debian-seealso")
        fits = [run["fit_cpu_seconds"] for run in runs if "fit_cpu_seconds" in run]
        cpu = f"{mean(fits):.1f}" if fits else "-"
        rows.append([_link(name), cpu, *values, new, serving])
    return table(["", "fit, CPU s", *TEXT_SETS, "new labels", "serving"], rows)


def graded() -> str:
    rows = []
    for name in GRADED:
        values = [short(grades(name, data, rate), 3) for data in ORDINAL_SETS for rate in RATES[:2]]
        rows.append([_link(name), *values])
    head = [f"{data}, at {short(rate, 2)}" for data in ORDINAL_SETS for rate in RATES[:2]]
    return table(["", *head], rows)


def _seconds(name: str) -> str:
    """Of the fit on gowalla that chose the settings or the epoch."""
    stem = f"quality/equal_terms/gowalla-{name}"
    file = load(f"{stem}-64.json") or load(f"{stem}.json")
    return f"{mean(run['seconds'] for run in file['runs']):.0f}"


def _link(name: str) -> str:
    return f"[`{name}`]({name}.md)"
