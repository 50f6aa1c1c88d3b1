"""Fit LightGBM on graded rows: one JSON job per line in, one JSON answer per line out.

    python benchmarks/peers/lightgbm/fit.py < jobs

A job has ``data`` (arrays ``train_*`` and ``asked_*``), ``settings`` (parameters of LightGBM, and
``trees``, the rounds), ``seed`` and ``out``, a file for the scores of the asked rows: the expected
grade of a multiclass model. Categorical columns are declared as such; images become one number per
pixel and channel. The answer has the CPU seconds of the fit, including the construction of bins.
"""

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

THREADS = 1


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(job: dict[str, Any]) -> dict[str, float]:
    result = np.load(job["data"], allow_pickle=False)
    n_grades, settings = int(result["n_grades"]), dict(job["settings"])
    rows, places = columns(result, "train")
    began = process_time()
    parameters = {
        "objective": "multiclass",
        "num_class": n_grades,
        "num_threads": THREADS,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "seed": job["seed"],
    }
    rounds = settings.pop("trees")
    known = lightgbm.Dataset(rows, result["train_grades"], categorical_feature=places)
    model = lightgbm.train({**parameters, **settings}, known, num_boost_round=rounds)
    seconds = process_time() - began
    asked, _ = columns(result, "asked")
    np.save(Path(job["out"]), model.predict(asked, num_threads=THREADS) @ np.arange(n_grades))
    return {"cpu_seconds": seconds}


def columns(result: Any, part: str) -> tuple[NDArray[np.float32], list[int]]:
    """The rows as one matrix, and its categorical columns; NaN is missing."""
    numbers, categories = result[f"{part}_numbers"], result[f"{part}_categories"]
    levels = np.where(categories >= 0, categories, np.nan).astype(np.float32)
    parts = [numbers, levels]
    if f"{part}_images" in result:
        images = result[f"{part}_images"]
        parts.append(images.reshape(len(images), -1).astype(np.float32))
    start = numbers.shape[1]
    return np.concatenate(parts, axis=1), list(range(start, start + levels.shape[1]))


if __name__ == "__main__":
    main()
