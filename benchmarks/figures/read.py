"""Values of the result files."""

import json
from functools import cache
from statistics import mean
from typing import Any

from benchmarks.paths import RESULTS

WIDTHS = (64, 256, 512)


@cache
def load(name: str) -> Any:
    """A result file by its path below ``results/``; None if there is none."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else None


def recommendation(who: str, data: str) -> tuple[float, float]:
    """recall@20 and ndcg@20 on test at the width up to 512 with the best ndcg@20."""
    files = (load(f"quality/quadratic/{who}-{data}-{width}.json") for width in WIDTHS)
    means = [file["test_mean"] for file in files if file and "test_mean" in file]
    best = max(means, key=lambda one: one["ndcg@20"])
    return best["recall@20"], best["ndcg@20"]


def equal_terms(method: str, data: str, width: int) -> float:
    """ndcg@10 on test with the defaults of a method, the mean over its seeds."""
    name = f"quality/equal_terms/{data}-{method}"
    file = load(f"{name}-{width}.json") or load(f"{name}.json")
    return mean(run["test"]["ndcg@10"] for run in file["runs"])


def texts(who: str, data: str, key: str) -> float:
    """A mean over the test seeds of ``quality/texts``."""
    return mean(run[key] for run in text_runs(who, data))


def text_runs(who: str, data: str) -> list[dict[str, Any]]:
    """The runs of the file with more seeds, of a GPU or of a CPU."""
    files = [load(f"quality/texts/{stem}-{data}.json") for stem in (who, f"{who}-gpu")]
    runs: list[list[dict[str, Any]]] = [file.get("test", []) for file in files if file]
    return max(runs, key=len, default=[])


def text_fit(who: str, data: str) -> float:
    """CPU seconds of the last fit, words included."""
    runs = load(f"quality/texts/{who}-{data}.json")["test"]
    return mean(run["fit_cpu_seconds"] + run.get("words_cpu_seconds", 0.0) for run in runs)


def grades(who: str, data: str, rate: float) -> float:
    """TPR at an FPR on test, the mean over seeds of the settings chosen for that rate."""
    stem = f"quality/ordinal/{who}-{data}"
    tests = (load(f"{stem}-{rate}.json") or load(f"{stem}.json"))["tests"]
    kept = tests.get("untuned") or tests[str(rate)]
    return mean(seed[f"tpr@fpr={rate}"] for seed in kept["seeds"])


def short(value: float, digits: int = 4) -> str:
    """A share without the leading zero."""
    return f"{value:.{digits}f}".removeprefix("0")
