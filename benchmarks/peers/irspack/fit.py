"""Fit irspack's implicit ALS: one JSON job per line in, one JSON answer per line out.

    python benchmarks/peers/irspack/fit.py < jobs

A job has ``train`` (a CSR matrix saved by scipy), ``width``, ``seed``, ``settings`` (``alpha0`` and
``reg``), ``iterations`` (epochs; all of them run) and ``out``, a folder for ``queries.npy`` and
``candidates.npy``. The answer has the seconds of the fit alone.
"""

import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from irspack import IALSRecommender
from scipy import sparse

THREADS = 2


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(job: dict[str, Any]) -> dict[str, float]:
    train = sparse.load_npz(job["train"])
    cpu, wall = process_time(), perf_counter()
    model = fit(train, job)
    seconds = {"cpu_seconds": process_time() - cpu, "wall_seconds": perf_counter() - wall}
    out = Path(job["out"])
    np.save(out / "queries.npy", model.get_user_embedding().astype(np.float32))
    np.save(out / "candidates.npy", model.get_item_embedding().astype(np.float32))
    return seconds


def fit(train: sparse.csr_matrix, job: dict[str, Any]) -> IALSRecommender:
    model = IALSRecommender(
        train,
        n_components=job["width"],
        **job["settings"],
        nu=1.0,
        solver_type="CG",
        random_seed=job["seed"],
        n_threads=THREADS,
    )
    model.start_learning()
    for _ in range(job["iterations"]):
        model.run_epoch()
    return model


if __name__ == "__main__":
    main()
