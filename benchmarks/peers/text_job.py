"""The common part of the text peers: read a set, weight words, time a fit, exclude pairs, answer.

A peer's ``fit.py`` calls ``main(fit)``. Its one argument is a job as JSON: ``data`` (an .npz of
``quality/text_data.py``), ``split`` (``validation`` or ``test``: the one to predict, fitted on the
splits before it), ``settings``, ``seed``, ``share`` (of the documents to fit on), ``asked`` (the
largest number of documents to predict; null: all) and ``out``, a folder for ``documents.npy`` [n],
``ids.npy`` [n, 10] and the model. The answer is one JSON line: seconds, bytes, milliseconds (of a
whole batch on one thread, divided by its documents).

Two settings are for the words: ``sublinear`` (1 + log of the count) and ``min_df``. Words and word
pairs are weighted by tf-idf over the documents fitted on and, if the peer reads label texts, over
these as well.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.quality.text_scores import leave_out

SPLITS = ("train", "validation", "test")
KEPT = 10  # labels of each document in the answer
MOST = 100  # labels a peer is asked for, so that some are left when known ones are left out
THREADS = 2  # of a fit; predictions have one


class Known(NamedTuple):
    """Input of a peer's fit."""

    words: sparse.csr_matrix  # [n, words] float32, rows of norm 1
    positives: sparse.csr_matrix  # [n, labels] float32, 1 where true
    label_words: sparse.csr_matrix | None  # [labels, words], where label text is read


Predict = Callable[[sparse.csr_matrix, int], NDArray[np.int64]]  # words, k -> ids [n, k], -1 pads
Fit = Callable[[Known, dict[str, Any], int, Path], Predict]  # settings, seed, folder of the model


def main(fit: Fit) -> None:
    job = json.loads(sys.argv[1])
    out = Path(job["out"])
    shutil.rmtree(out, ignore_errors=True)
    model = out / "model"
    model.mkdir(parents=True)
    print(json.dumps(answer(fit, job, out, model)), flush=True)


def answer(fit: Fit, job: dict[str, Any], out: Path, model: Path) -> dict[str, float]:
    documents, labels, pairs, excluded = read(job["data"])
    split = SPLITS.index(job["split"])
    before = pairs[pairs[:, 2] < split, :2]
    rows = np.unique(before[:, 0])
    if job["share"] < 1:
        rows = rows[np.random.default_rng(0).random(len(rows)) < job["share"]]
    asked = np.unique(pairs[pairs[:, 2] == split, 0])
    if job["asked"] is not None and job["asked"] < len(asked):
        asked = np.sort(np.random.default_rng(0).permutation(asked)[: job["asked"]])

    cpu = process_time()
    vectorise = vectoriser(job["settings"])
    texts = [documents[i] for i in rows]
    label_words = None
    if job["settings"].get("label_text"):
        both = normal(vectorise.fit_transform(texts + labels))
        words, label_words = both[: len(texts)], both[len(texts) :]
    else:
        words = normal(vectorise.fit_transform(texts))
    words_cpu = process_time() - cpu
    cpu = process_time()
    known = Known(words, matrix(before, rows, len(documents), len(labels)), label_words)
    predict = fit(known, job["settings"], job["seed"], model)
    fit_cpu = process_time() - cpu

    wall = perf_counter()
    asked_words = normal(vectorise.transform([documents[i] for i in asked]))
    words_ms = 1000 * (perf_counter() - wall) / len(asked)
    left_out = np.concatenate([before, excluded])
    enough = min(
        MOST, KEPT + int(np.bincount(left_out[:, 0], minlength=len(documents))[asked].max())
    )
    wall, cpu = perf_counter(), process_time()
    ids = predict(asked_words, enough)
    predict_ms = 1000 * (perf_counter() - wall) / len(asked)
    predict_cpu = process_time() - cpu
    np.save(out / "documents.npy", asked)
    np.save(out / "ids.npy", leave_out(ids, asked, left_out, KEPT))
    return {
        "words_cpu_seconds": words_cpu,
        "fit_cpu_seconds": fit_cpu,
        "predict_cpu_seconds": predict_cpu,
        "words_ms": words_ms,
        "predict_ms": predict_ms,
        "k_asked": enough,
        "documents_fitted": len(rows),
        "documents_asked": len(asked),
        "model_bytes": size(model),
        "vocabulary_bytes": sum(len(word.encode()) + 5 for word in vectorise.vocabulary_),
        "peak_bytes": peak(),
    }


def read(path: str) -> tuple[list[str], list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Documents, labels, pairs (document, label, split) and excluded pairs."""
    with np.load(path, allow_pickle=False) as arrays:
        documents, labels = (
            arrays[side].tobytes().decode().split("\n") for side in ("documents", "labels")
        )
        return documents, labels, arrays["pairs"], arrays["excluded"]


def vectoriser(settings: dict[str, Any]) -> TfidfVectorizer:
    return TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=settings["sublinear"],
        min_df=settings["min_df"],
        dtype=np.float32,
    )


def normal(words: Any) -> sparse.csr_matrix:
    """A csr_matrix (not array) with sorted columns, as the peers require."""
    result = sparse.csr_matrix(words, dtype=np.float32)
    result.sort_indices()
    return result


def matrix(
    pairs: NDArray[np.int64], rows: NDArray[np.int64], n_documents: int, n_labels: int
) -> sparse.csr_matrix:
    ones = np.ones(len(pairs), np.float32)
    whole = sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=(n_documents, n_labels))
    return whole[rows]


def first(values: sparse.csr_matrix, k: int) -> NDArray[np.int64]:
    """The columns of the k largest values of each row, descending; -1 pads."""
    out = np.full((values.shape[0], k), -1, np.int64)
    for row, (start, end) in enumerate(zip(values.indptr[:-1], values.indptr[1:], strict=True)):
        data, columns = values.data[start:end], values.indices[start:end]
        if len(data) > k:
            top = np.argpartition(-data, k - 1)[:k]
            data, columns = data[top], columns[top]
        out[row, : len(data)] = columns[np.argsort(-data, kind="stable")]
    return out


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak() -> int:
    """Peak memory of this process in bytes; ru_maxrss would start at its parent's."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
