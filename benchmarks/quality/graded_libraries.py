"""Libraries called directly on graded rows, for ``graded``: a fit gives a function to scores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankfold.types import Dataset, Graded

LR, LEAVES, WAIT, MOST = 0.05, 31, 100, 2000  # of ``trees``
Scores = NDArray[np.float64]
Fitted = Callable[[Graded], Scores]


def lightgbm(data: Dataset, _method: str, seed: int) -> Fitted:
    import lightgbm as library

    from rankfold.methods.ordinal.boosting import matrix

    n, train = len(data.candidates), data.graded("train")
    first = train.numbers.shape[1]
    settings: dict[str, Any] = {
        "objective": "binary" if n == 2 else "multiclass", "num_class": 1 if n == 2 else n,
        "num_leaves": LEAVES, "learning_rate": LR, "num_threads": 1, "force_row_wise": True,
        "verbosity": -1, "deterministic": True, "seed": seed,
    }  # fmt: skip
    places = [first + c for c in range(train.categories.shape[1])]
    sets: list[Any] = []
    for rows in (train, data.graded("validation")):
        before = sets[0] if sets else None
        sets.append(
            library.Dataset(matrix(rows), rows.grades.numpy(), before, categorical_feature=places)
        )
    stop = library.early_stopping(WAIT, verbose=False)
    model = library.train(settings, sets[0], MOST, valid_sets=sets[1:], callbacks=[stop])

    def score(rows: Graded) -> Scores:
        p = np.asarray(model.predict(matrix(rows), num_threads=1), dtype=np.float64)
        return p if n == 2 else p @ np.arange(n)

    return score


def lightgbm_plain(data: Dataset, _method: str, _seed: int) -> Fitted:
    import lightgbm as library

    from rankfold.methods.ordinal.boosting import matrix

    n, rows = len(data.candidates), data.graded("train").join(data.graded("validation"))
    places = [rows.numbers.shape[1] + c for c in range(rows.categories.shape[1])]
    settings = {"objective": "binary" if n == 2 else "multiclass", "num_class": 1 if n == 2 else n,
                "num_threads": 1, "verbosity": -1}  # fmt: skip
    every = library.Dataset(matrix(rows), rows.grades.numpy(), categorical_feature=places)
    model = library.train(settings, every, 100)

    def score(rows: Graded) -> Scores:
        p = np.asarray(model.predict(matrix(rows), num_threads=1), dtype=np.float64)
        return p if n == 2 else p @ np.arange(n)

    return score


def catboost(data: Dataset, _method: str, seed: int) -> Fitted:
    if find_spec("pandas") is None:  # which it imports, and does not need for arrays
        names = ("DataFrame", "Series", "Categorical", "SparseDtype", "Index", "CategoricalDtype")
        sys.modules["pandas"] = ModuleType("pandas")
        for name in names:
            setattr(sys.modules["pandas"], name, type(name, (), {}))
    import catboost as library

    n = len(data.candidates)

    def pool(rows: Graded) -> Any:
        numbers = rows.numbers if rows.images is None else rows.images.flatten(1).float()
        words = np.char.mod("%d", rows.categories.numpy()).astype("S").astype(object)
        columns = library.FeaturesData(
            num_feature_data=numbers.numpy().astype(np.float32) if numbers.shape[1] else None,
            cat_feature_data=words if words.shape[1] else None,
        )
        return library.Pool(columns, rows.grades.numpy())

    model = library.CatBoostClassifier(
        iterations=MOST, learning_rate=LR, random_seed=seed, thread_count=1, verbose=False,
        loss_function="Logloss" if n == 2 else "MultiClass", allow_writing_files=False,
    )  # fmt: skip
    model.fit(
        pool(data.graded("train")), early_stopping_rounds=WAIT, use_best_model=True,
        eval_set=pool(data.graded("validation")),
    )  # fmt: skip
    return lambda rows: np.asarray(model.predict_proba(pool(rows)) @ np.arange(n))


def peer(data: Dataset, method: str, seed: int) -> Fitted:
    """A peer with the defaults of ``peers/ordinal.py``; its seconds include scoring test."""
    from benchmarks.peers.ordinal import PEERS
    from benchmarks.quality.ordinal import write_arrays

    how = PEERS[method]
    more = {"batch_size": 64 if data.graded("train").images is not None else 256, "flips": "none"}
    settings = {**how.start, **(more if method != "mord" else {})}
    fit = import_module(f"benchmarks.peers.{how.folder}.fit")
    with TemporaryDirectory() as folder:
        arrays, out = Path(folder) / "rows.npz", Path(folder) / "scores.npy"
        write_arrays(data, arrays, {s: data.graded(t) for s, t in _ASKED})  # type: ignore[arg-type]
        job = {"data": str(arrays), "settings": settings, "seed": seed, "device": "cpu"}
        fit.answer({**job, "out": str(out)})
        scores = np.asarray(np.load(out), dtype=np.float64)
    return lambda _rows: scores


_ASKED = (("train", "train"), ("asked", "test"))
FITS: dict[str, Callable[[Dataset, str, int], Fitted]] = {
    "lightgbm": lightgbm, "lightgbm-plain": lightgbm_plain, "catboost": catboost, "mord": peer,
    "libauc-sopas": peer, "libauc-sopa": peer,
}  # fmt: skip
