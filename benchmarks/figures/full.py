"""Tables with every row of a study, for ``docs/reference/tables.md``."""

from statistics import mean, stdev
from typing import Any

from benchmarks.figures.read import load, short, text_runs
from benchmarks.figures.sections import RATES, table
from benchmarks.paths import RESULTS

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
TEXT_SETS = ("yso-finna-en", "mdn-seealso", "mdn-one-way", "debian-seealso", "wordnet")
ORDINAL_SETS = ("fars", "retinamnist")
_NOT_METHODS = ("diagnose", "paired")
GRADED_ORDER = ("cba-trees", "trees", "lightgbm", "lightgbm-plain", "catboost", "cba", "ce", "fh")
GRADED_ORDER += ("pauc", "eban", "mord", "libauc-sopas", "libauc-sopa")
STUDENT = 2.776  # 95 %, four degrees of freedom


def text_tables() -> str:
    parts = []
    for data in TEXT_SETS:
        stems = {path.stem.removesuffix(f"-{data}").removesuffix("-gpu")
                 for path in (RESULTS / "quality/texts").glob(f"*-{data}.json")}  # fmt: skip
        rows = [row for stem in stems if (row := _text_row(stem, data))]
        rows.sort(key=lambda row: (-float(row[1]), row[0]))
        head = [data, *METRICS, "CPU s", "ms", "MB", "seeds"]
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def _text_row(stem: str, data: str) -> list[str]:
    runs = text_runs(stem, data)
    if not runs or any(metric not in runs[0] for metric in METRICS):
        return []
    name = f"`{stem.removeprefix('rankfold-')}`" if stem.startswith("rankfold-") else stem
    cells = [f"{mean(run[metric] for run in runs):.2f}" for metric in METRICS]
    fit = _mean(runs, "fit_cpu_seconds", "words_cpu_seconds")
    size = _mean(runs, "model_bytes", "vocabulary_bytes")
    shown = [f"{fit:.0f}" if fit else "", _milliseconds(runs), f"{size / 1e6:.0f}" if size else ""]
    return [name, *cells, *shown, str(len(runs))]


def _milliseconds(runs: list[dict[str, Any]]) -> str:
    known = [run["predict_ms"] for run in runs if "predict_ms" in run]
    return f"{mean(known):.2f}" if known else ""


def _mean(runs: list[dict[str, Any]], *keys: str) -> float:
    """The mean of a sum, over the runs that have its first key; 0 without any."""
    known = [sum(run.get(key, 0.0) for key in keys) for run in runs if keys[0] in run]
    return mean(known) if known else 0.0


def ordinal_tables() -> str:
    parts = []
    for data in ORDINAL_SETS:
        found: dict[str, dict[float, list[float]]] = {}
        for path in sorted((RESULTS / "quality/ordinal").glob(f"*-{data}*.json")):
            name, _, rest = path.stem.partition(f"-{data}")
            if name.startswith(_NOT_METHODS):
                continue
            kept = load(f"quality/ordinal/{path.name}")["tests"]
            for rate in RATES:
                if rest not in ("", f"-{rate}"):
                    continue
                seeds = kept.get("untuned") or kept.get(str(rate))
                if seeds:
                    values = [seed[f"tpr@fpr={rate}"] for seed in seeds["seeds"]]
                    found.setdefault(name, {})[rate] = values
        rows = sorted(found.items(), key=lambda pair: -mean(pair[1].get(RATES[0], [0.0])))
        head = [data, *(f"at {short(rate, 2)}" for rate in RATES)]
        cells = [
            [name, *(_rate(by_rate.get(rate, [])) for rate in RATES)] for name, by_rate in rows
        ]
        parts.append(table(head, cells))
    return "\n\n".join(parts)


def _rate(values: list[float]) -> str:
    if not values:
        return "-"
    if len(set(values)) == 1:
        return short(values[0], 3)
    error = STUDENT * stdev(values) / len(values) ** 0.5
    return f"{short(mean(values), 3)} ± {short(error, 3)}"


def graded_table() -> str:
    """Defaults on many sets: TPR at each rate, a star on the best and on ties with it."""
    result = load("quality/graded.json")
    known = {
        method for one in result.values() for found in one["rates"].values() for method in found
    }
    methods = [method for method in GRADED_ORDER if method in known]
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    rows = []
    for data, one in result.items():
        for rate, found in one["rates"].items():
            cells = []
            for method in methods:
                entry = found.get(method)
                tied = entry is not None and entry["behind"][2] >= 0
                cells.append("" if entry is None else short(entry["tpr"], 3) + "*" * tied)
                if entry is not None:
                    seconds[method].append(entry["seconds"])
            size = f"{data}, {one['rows']['train']:,} rows, {one['grades']} grades"
            rows.append([size, short(float(rate), 3), *cells])
    shown = [f"{mean(seconds[method]):.0f}" if seconds[method] else "" for method in methods]
    rows.append(["CPU seconds of a fit, mean", "", *shown])
    return table(["data set", "rate", *methods], rows)
