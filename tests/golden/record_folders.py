"""Small folders of models and data, as they were written by the first version of the format.

Folders that were written once must keep loading, so these are not written again when the code
changes. Add a folder for each new feature; existing ones are not changed::

    python tests/golden/record_folders.py
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import rankfold as rf

FOLDERS = Path(__file__).parent / "folders"
ANSWERS = FOLDERS / "answers.json"
ANIMALS = ["ant", "bee", "cow", "dog", "eel", "fox"]
_OFF = ("query_exponent", "candidate_exponent", "candidate_reg", "diagonal", "discount")
PLAIN_EASE = {"reg": 3 * 18 / 118, **dict.fromkeys(_OFF, 0.0)}  # 3, over the mean of the diagonal
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {  # by name: method, data, settings
    "popularity": ("popularity", "interactions", {}),
    "rg2": ("rg2", "interactions", {"width": 4}),
    "ials": ("ials", "interactions", {"width": 4, "sweeps": 2}),
    "ials-hnsw": ("ials", "interactions", {"width": 4, "sweeps": 2}),
    "ials-inverted": ("ials", "interactions", {"width": 4, "sweeps": 2}),
    "ease": ("ease", "interactions", {}),
    "ssl-pop": ("ssl-pop", "interactions", {"width": 4, "epochs": 2}),
    "bpr-towers": ("bpr", "features", {"width": 4, "epochs": 2, "encoder": "towers"}),
    "siamesexml": ("siamesexml", "texts", {"width": 8, "batch_size": 16}),
    "siamesexml-released": (
        "siamesexml-released",
        "texts",
        {"width": 8, "encoder_epochs": 2, "classifier_epochs": 1},
    ),
    "text-neighbours": ("text-neighbours", "texts", {}),
    "text-linear": ("text-linear", "texts", {"alpha": 0.5}),  # its classifiers score shortlists
    "text-linear-all": ("text-linear", "texts", {"alpha": 0.5}),
    "cba": ("cba", "graded", {"width": 4, "epochs": 2}),
    "ce": ("ce", "graded", {"width": 4, "epochs": 2}),
}
INDEXES = {"ials-hnsw": "hnsw", "ials-inverted": "inverted"}  # kept in the folders of models
FITTED_ON: dict[str, tuple[str, dict[str, Any]]] = {  # methods to fit on loaded data
    "interactions": ("ease", PLAIN_EASE),
    "sharded": ("ease", PLAIN_EASE),
    "features": (
        "bpr",
        {"width": 4, "epochs": 2, "encoder": "towers", "weight_decay": 1e-6, "batch_size": 2048},
    ),
    "texts": ("text-neighbours", {}),
    "graded": ("ce", {"width": 4, "epochs": 2}),
}
NEW_ROWS = pl.DataFrame({"size": [0.0, 2.5, None], "colour": ["red", "blue", "green"]})


def answers_of_data(name: str) -> dict[str, Any]:
    """The content of a data folder, and the results of a model fitted on it."""
    data = rf.load_data(FOLDERS / "data" / name)
    method, settings = FITTED_ON[name]
    return {"summary": data.summary, **answers(rf.fit(method, data, device="cpu", **settings))}


def answers_of_model(name: str) -> dict[str, Any]:
    return answers(rf.load(FOLDERS / "models" / name))


def answers(model: Any) -> dict[str, Any]:
    """The results of a few searches or predictions."""
    if isinstance(model, rf.Grader):
        graded = model.predict(NEW_ROWS, fpr=0.2)
        return {"grades": graded["grade"].to_list(), "scores": graded["score"].to_list()}
    if rf.METHODS[model.model.method].data_kind == "texts":
        questions = {"queries": {"queries": [3, 4]}, "texts": {"text": ["old dog", "big bee"]}}
    else:
        questions = {"queries": {"queries": ["q1", "q2"]}, "history": {"history": ["c1", "c4"]}}
    result: dict[str, Any] = {}
    for name, question in questions.items():
        try:
            lists = model.search(k=3, **question)
        except rf.UserError:
            continue
        result[f"{name} keys"] = lists.keys
        result[f"{name} scores"] = lists.scores.ravel().tolist()
    return result


def interactions() -> dict[str, Any]:
    """Queries chose candidates of their own third, with gaps."""
    rng = np.random.default_rng(0)
    same = (np.arange(30)[:, None] % 3) == (np.arange(18)[None, :] % 3)
    pairs = np.argwhere(rng.random((30, 18)) < np.where(same, 0.8, 0.1))
    names = {"query": [f"q{q}" for q in pairs[:, 0]], "candidate": [f"c{c}" for c in pairs[:, 1]]}
    return {"table": pl.DataFrame(names)}


def sharded() -> dict[str, Any]:
    return {**interactions(), "shards": 2}


def features() -> dict[str, Any]:
    """The same pairs, with a number and a category of each candidate."""
    known = {"candidate": [f"c{c}" for c in range(18)], "weight": [c / 4 for c in range(18)]}
    third = [["red", "green", "blue"][c % 3] for c in range(18)]
    return {**interactions(), "candidate_features": pl.DataFrame({**known, "third": third})}


def texts() -> dict[str, Any]:
    """Documents that name one of six animals, which is their label."""
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(["the", "big", "old", "farm", "has"], 3)) for _ in range(60)]
    words = [f"{some} {ANIMALS[row % 6]}" for row, some in enumerate(noise)]
    labels = [[ANIMALS[row % 6]] for row in range(60)]
    table = pl.DataFrame({"id": list(range(60)), "text": words, "labels": labels})
    return {"table": table, "format": "texts", "split": "queries:0.7,0.15,0.15"}


def graded() -> dict[str, Any]:
    """Rows whose grade follows from a number and a category."""
    rng = np.random.default_rng(0)
    size, colour = rng.normal(size=90), rng.integers(0, 2, 90)
    grade = np.digitize(size + colour + 0.3 * rng.normal(size=90), [0.0, 1.0])
    table = {"size": size, "colour": np.array(["red", "blue"])[colour], "grade": grade}
    return {"table": pl.DataFrame(table), "format": "features", "grade": "grade"}


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "interactions": interactions,
    "sharded": sharded,
    "features": features,
    "texts": texts,
    "graded": graded,
}


def main() -> None:
    """Write the missing folders and their expected results."""
    result = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {"data": {}, "models": {}}
    for name, make in DATA.items():
        if name not in result["data"]:
            options = make()
            rf.prepare(options.pop("table"), out=FOLDERS / "data" / name, seed=0, **options)
            result["data"][name] = answers_of_data(name)
    for name, (method, kind, settings) in MODELS.items():
        if name not in result["models"]:
            path = FOLDERS / "models" / name
            rf.fit(method, FOLDERS / "data" / kind, out=path, device="cpu", **settings)
            if name in INDEXES:
                command = [sys.executable, "-m", "rankfold", "index", str(path)]
                subprocess.run([*command, "--kind", INDEXES[name]], check=True)
            result["models"][name] = answers_of_model(name)
    ANSWERS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
