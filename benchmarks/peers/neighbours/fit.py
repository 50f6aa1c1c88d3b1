"""Labels of the nearest documents, and labels with similar texts; see ``peers/text_job.py``.

    PYTHONPATH=. python benchmarks/peers/neighbours/fit.py JOB

With N the ``k`` documents whose words have the largest cosine with those of x::

    score(x, l) = sum_{d in N, l in Y_d} cos(x, d) / sum_{d in N} cos(x, d)
                + weight cos(x, text of l)
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.peers.text_job import Known, Predict, first, main

BLOCK = 256


def fit(known: Known, settings: dict[str, Any], seed: int, folder: Path) -> Predict:
    del seed  # nothing is drawn
    for name, part in known._asdict().items():
        sparse.save_npz(folder / f"{name}.npz", part, compressed=False)
    documents, labels = known.words.T.tocsr(), known.label_words.T.tocsr()

    def predict(asked: sparse.csr_matrix, k: int) -> NDArray[np.int64]:
        blocks = []
        for start in range(0, asked.shape[0], BLOCK):
            block = asked[start : start + BLOCK]
            near = nearest((block @ documents).tocsr(), settings["k"])
            result = near @ known.positives
            if settings["weight"]:
                result = result + settings["weight"] * (block @ labels)
            blocks.append(first(result.tocsr(), k))
        return np.concatenate(blocks)

    return predict


def nearest(cosines: sparse.csr_matrix, k: int) -> sparse.csr_matrix:
    """The k largest of each row, divided by their sum."""
    columns = first(cosines, k)
    rows, places = np.nonzero(columns >= 0)
    kept = sparse.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, columns[rows, places])), shape=cosines.shape
    ).multiply(cosines)
    sums = np.asarray(kept.sum(axis=1)).ravel()
    return sparse.csr_matrix(sparse.diags(1 / np.where(sums > 0, sums, 1)) @ kept)


if __name__ == "__main__":
    main(fit)
