"""Results of the lines: test figures and paired differences, and their tables."""

from __future__ import annotations

import base64
import json
import math
import zlib
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import page
from benchmarks.paths import RESULTS
from benchmarks.quality.order.plan import (
    DECAYS,
    METHODS_HERE,
    METRIC,
    RATES,
    SEEDS,
    best_of,
    key,
    read,
    tests_of,
)

OUT = RESULTS / "quality" / "order"
PAIRS = (("bir", "ssl-pop"), ("xir", "bir"), ("xir", "ssl-pop"))
STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 %, by the number of seeds

Line = dict[str, Any]


def collect(lines: Path) -> None:
    """A file per data set: the trials, the tests, and the paired differences.

    The differences of batch sizes whose lines are without values stay as they are in the file.
    """
    every = read(lines)
    for name in dict.fromkeys(line["data"] for line in every):
        own = [line for line in every if line["data"] == name]
        differences: list[Line] = []
        for batch, decay in product(sorted({line["batch"] for line in own}), (None, *DECAYS)):
            tests = {method: tested(own, batch, method, decay) for method in METHODS_HERE}
            for better, other in PAIRS:
                gaps = gaps_of(tests[better], tests[other])
                if len(gaps) > 1:
                    about = {"batch": batch, "decay": decay, "better": better, "other": other}
                    differences.append({**about, **interval_of(gaps)})
        plain = [{k: v for k, v in line.items() if k != "values"} for line in own]
        path, new = OUT / f"{name}.json", {one["batch"] for one in differences}
        OUT.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text())["differences"] if path.exists() else []
        kept = [{"decay": None, **one} for one in before if one["batch"] not in new]
        document = {"lines": plain, "differences": differences + kept}
        path.write_text(json.dumps(document, indent=1) + "\n")


def tested(lines: list[Line], batch: int, method: str, decay: float | None) -> list[Line]:
    """The tests of the best trial with a decay; None: of the best trial."""
    own = [line for line in lines if (line["batch"], line["method"]) == (batch, method)]
    trials = [line for line in own if line["kind"] == "trial"]
    if not trials:
        return []
    if decay is None:
        decay = best_of(trials)["decay"]
    wanted = {job for job in tests_of(trials) if job.decay == decay}
    return [line for line in own if key(line) in wanted]


def gaps_of(better: list[Line], other: list[Line]) -> list[NDArray[np.float64]]:
    """Differences by query, for each seed that both methods have."""
    first, second = (
        {line["seed"]: unpacked(line) for line in some if "values" in line}
        for some in (better, other)
    )
    return [first[seed] - second[seed] for seed in SEEDS if seed in first and seed in second]


def unpacked(line: Line) -> NDArray[np.float64]:
    stored = zlib.decompress(base64.b64decode(line["values"]))
    return np.frombuffer(stored, dtype=np.float16).astype(np.float64)


def interval_of(gaps: list[NDArray[np.float64]]) -> Line:
    """The mean difference, half its 95 % interval over queries and over seeds, and each seed's.

    Over queries the seeds are these; over seeds (Student) the queries are these.
    """
    seeds, queries = [float(gap.mean()) for gap in gaps], np.mean(gaps, axis=0)
    return {
        "mean": mean(seeds),
        "over_queries": 1.96 * float(queries.std(ddof=1)) / math.sqrt(len(queries)),
        "over_seeds": STUDENT[len(seeds)] * stdev(seeds) / math.sqrt(len(seeds)),
        "seeds": seeds,
    }


def table(name: str) -> str:
    """The chosen points, the test figures by decay, and the paired differences."""
    path = OUT / f"{name}.json"
    if not path.exists():
        return ""
    document = json.loads(path.read_text())
    lines, differences = document["lines"], document["differences"]
    both = product(RATES, METHODS_HERE)
    chosen = {test["decay"] for one in both for test in tested(lines, *one, None)}
    shown = [one for one in differences if one["decay"] is None or one["decay"] in chosen]
    shown.sort(key=lambda one: one["batch"])
    return f"{_figures(name, lines)}\n\n{_differences(shown)}"


def _figures(name: str, lines: list[Line]) -> str:
    """A row per batch and method: the best point, and test figures by decay, its own in bold."""
    heads = [f"decay {decay:g}" for decay in DECAYS]
    out = [f"| {name} | " + " | ".join(["batch", "rate", "epochs", *heads]) + " |"]
    out += ["|---" * (len(heads) + 4) + "|"]
    for batch, method in product(RATES, METHODS_HERE):
        every = {decay: tested(lines, batch, method, decay) for decay in (None, *DECAYS)}
        if not (chosen := every[None]):
            continue
        best = chosen[0]
        cells = [
            _cell(some, is_best=some == chosen)
            for decay, some in every.items()
            if decay is not None
        ]
        row = [f"`{method}`", f"{batch:,}", edge(best["lr"], RATES[batch]), str(best["epochs"])]
        out.append("| " + " | ".join([*row, *cells]) + " |")
    return "\n".join(out)


def _cell(tests: list[Line], *, is_best: bool) -> str:
    values = [line[METRIC] for line in tests]
    if len(values) < 2:
        return "-"
    text = f"{page.number(mean(values))} ± {page.number(stdev(values))}"
    return f"**{text}**" if is_best else text


def _differences(every: list[Line]) -> str:
    out = ["| batch | decay | difference | mean | ± over queries | ± over seeds | holds |"]
    out += ["|---" * 7 + "|"]
    for one in every:
        ends = max(one["over_queries"], one["over_seeds"])
        holds = "yes" if one["mean"] > ends else "no, reversed" if one["mean"] < -ends else "open"
        both = f"{one['over_queries']:.5f} | {one['over_seeds']:.5f}"
        names = f"`{one['better']}` - `{one['other']}`"
        decay = "chosen" if one["decay"] is None else f"{one['decay']:g}"
        row = f"| {one['batch']:,} | {decay} | {names} | {one['mean']:+.5f} | {both} | {holds} |"
        out.append(row)
    return "\n".join(out)


def edge(value: float, grid: tuple[float, ...]) -> str:
    """The value, marked if it is at an end of its grid."""
    return f"{value:g}{' (end)' if value in (grid[0], grid[-1]) else ''}"
