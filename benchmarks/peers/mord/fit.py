"""Fit mord's ordinal logistic regression: one JSON job per line in, one JSON answer per line out.

    python benchmarks/peers/mord/fit.py < jobs

A job has ``data`` (arrays ``train_*`` and ``asked_*``), ``settings`` (``alpha``), ``seed``, which
has no effect, and ``out``, a file for the scores of the asked rows: the linear score; the expected
grade increases with it. Numbers and pixels are standardised; categories are one-hot columns. The
answer has the CPU seconds of the fit, including these columns.
"""

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import mord
import numpy as np
from scipy import sparse


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(job: dict[str, Any]) -> dict[str, float]:
    result = np.load(job["data"], allow_pickle=False)
    began = process_time()
    rows = columns(result, "train")
    model = mord.LogisticAT(**job["settings"]).fit(rows, result["train_grades"])
    seconds = process_time() - began
    np.save(Path(job["out"]), columns(result, "asked") @ model.coef_)
    return {"cpu_seconds": seconds}


def columns(result: Any, part: str) -> sparse.csr_matrix:
    """The rows as one matrix; numbers standardised by train, missing ones 0."""
    known, asked = numbers(result, "train"), numbers(result, part)
    deviation = np.nanstd(known, axis=0) if known.size else np.ones(known.shape[1])
    mean = np.nanmean(known, axis=0) if known.size else np.zeros(known.shape[1])
    scaled = (asked - mean) / np.where(deviation > 0, deviation, 1)
    parts = [sparse.csr_matrix(np.nan_to_num(scaled)), sparse.csr_matrix(np.isnan(asked) * 1.0)]
    for size, places in zip(result["levels"], result[f"{part}_categories"].T, strict=True):
        rows = np.flatnonzero(places >= 0)
        ones = (np.ones(len(rows)), (rows, places[rows]))
        parts.append(sparse.csr_matrix(ones, shape=(len(places), int(size))))
    return sparse.hstack(parts, format="csr")


def numbers(result: Any, part: str) -> Any:
    rows = result[f"{part}_numbers"].astype(np.float64)
    if f"{part}_images" not in result:
        return rows
    images = result[f"{part}_images"]
    return np.concatenate([rows, images.reshape(len(images), -1)], axis=1)


if __name__ == "__main__":
    main()
