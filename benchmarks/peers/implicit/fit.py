"""Fit implicit's ALS or BPR: one JSON job per line in, one JSON answer per line out.

    OPENBLAS_NUM_THREADS=1 python benchmarks/peers/implicit/fit.py < jobs

A job has ``train`` (a CSR matrix saved by scipy), ``width``, ``seed``, ``settings`` (``alpha`` and
``regularization``; for BPR ``learning_rate`` instead of alpha), ``iterations``, ``model`` (``als``,
or ``bpr``, which has one more column for biases) and ``out``, a folder for ``queries.npy`` and
``candidates.npy``. The answer has the seconds of the fit alone. The library itself recommends one
thread for BLAS: it has its own threads.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from implicit.cpu.als import AlternatingLeastSquares
from implicit.cpu.bpr import BayesianPersonalizedRanking
from implicit.cpu.matrix_factorization_base import MatrixFactorizationBase
from implicit.recommender_base import ModelFitError
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
    np.save(out / "queries.npy", model.user_factors.astype(np.float32))
    np.save(out / "candidates.npy", model.item_factors.astype(np.float32))
    return seconds


def fit(train: sparse.csr_matrix, job: dict[str, Any]) -> MatrixFactorizationBase:
    shared = {
        "factors": job["width"],
        "iterations": job["iterations"],
        "num_threads": THREADS,
        "random_state": job["seed"],
        **job["settings"],
    }
    if job.get("model") == "bpr":
        model = BayesianPersonalizedRanking(**shared)
    else:
        model = AlternatingLeastSquares(**shared, use_cg=True)
    with suppress(ModelFitError):  # the vectors overflowed: the caller checks them
        model.fit(train, show_progress=False)
    return model


if __name__ == "__main__":
    main()
