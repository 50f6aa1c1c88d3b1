"""Fit napkinXC's probabilistic label tree; ``peers/text_job.py`` defines jobs and answers.

    PYTHONPATH=. python benchmarks/peers/napkinxc/fit.py JOB

It does not use label texts. Its prediction is exact (uniform-cost search of the tree).
"""

from pathlib import Path
from typing import Any

import numpy as np
from napkinxc.models import PLT
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.peers.text_job import THREADS, Known, Predict, main


def fit(known: Known, settings: dict[str, Any], seed: int, folder: Path) -> Predict:
    chosen = {
        "tree_type": "hierarchicalKmeans",
        "arity": settings["arity"],
        "max_leaves": settings["leaf"],
        "loss": settings["loss"],
        "liblinear_c": settings["cost"],
        "ensemble": settings["trees"],
        "weights_threshold": 0.1,
        "seed": seed,
    }
    PLT(str(folder), **chosen, threads=THREADS).fit(known.words, known.positives)
    model = PLT(str(folder), **chosen, threads=1)
    model.load()

    def predict(asked: sparse.csr_matrix, k: int) -> NDArray[np.int64]:
        out = np.full((asked.shape[0], k), -1, np.int64)
        for row, result in zip(out, model.predict(asked, top_k=k), strict=True):
            row[: len(result)] = result
        return out

    return predict


if __name__ == "__main__":
    main(fit)
