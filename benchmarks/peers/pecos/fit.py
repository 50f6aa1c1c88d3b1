"""Fit PECOS' XR-Linear; ``peers/text_job.py`` defines jobs and answers.

    PYTHONPATH=. python benchmarks/peers/pecos/fit.py JOB

A label's features are the normalised sum of its documents' words (PIFA); the tree comes from
hierarchical k-means on them. ``label_text`` is the use of label texts: ``""`` none; ``"tree"``
beside PIFA in the k-means (``pifa_lf_concat``, the library's own way); ``"documents"`` the same,
and each label's text is one more training document with this label only.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse

from benchmarks.peers.text_job import THREADS, Known, Predict, first, main


def fit(known: Known, settings: dict[str, Any], seed: int, folder: Path) -> Predict:
    words, positives = known.words, known.positives
    if settings["label_text"] == "documents":
        own = sparse.identity(positives.shape[1], np.float32, "csr")
        words = sparse.vstack([words, known.label_words], "csr")
        positives = sparse.vstack([positives, own], "csr")
    tree = Indexer.gen(
        features(known, settings["label_text"]),
        indexer_type="hierarchicalkmeans",
        nr_splits=16,
        max_leaf_size=settings["leaf"],
        seed=seed,
        threads=THREADS,
    )
    model = XLinearModel.train(
        words,
        positives.tocsc(),
        C=tree,
        nr_splits=16,
        Cp=settings["cost"],
        Cn=settings["cost"],
        threshold=settings["threshold"],
        negative_sampling_scheme=settings["negatives"],
        threads=THREADS,
    )
    model.save(str(folder))

    def predict(asked: sparse.csr_matrix, k: int) -> NDArray[np.int64]:
        result = model.predict(asked, only_topk=k, beam_size=settings["beam"], threads=1)
        return first(result, k)

    return predict


def features(known: Known, label_text: str) -> sparse.csr_matrix:
    """The features by which labels are clustered."""
    given = {"Y": known.positives, "X": known.words, "threads": THREADS}
    if label_text:
        return LabelEmbeddingFactory.create(**given, Z=known.label_words, method="pifa_lf_concat")
    return LabelEmbeddingFactory.create(**given, method="pifa")


if __name__ == "__main__":
    main(fit)
