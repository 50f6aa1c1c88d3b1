"""The one loader: a folder becomes a model that ranks or a model that grades."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rankfold import storage
from rankfold.data.folder import from_tensors, texts_of, texts_valid, tokenizer_of, vocabulary
from rankfold.errors import UserError
from rankfold.index.build import SavedIndexes
from rankfold.methods import METHODS
from rankfold.models.grader import FITTED, OPERATING, Grader
from rankfold.models.ranker import Ranker
from rankfold.types import Columns, Kind, Model


def load(path: str | Path, index: str | None = None) -> Ranker | Grader:
    """Load a model folder; the checksum of every file is verified first.

    Args:
        path: the folder.
        index: searches the vectors of a model that ranks: a key of ``INDEXES``, built when first
            needed. Default: the index in the folder, or exact search.
    """
    folder = storage.read(Path(path), "model", full=True)
    with storage.check_contents(folder.path):
        if kind_of(folder) != "graded":
            return from_folder(folder, index)
        if index not in (None, "exact"):
            raise UserError(
                f"{folder.manifest['method']} grades rows and has no vectors to search",
                hint="leave --index out",
            )
        return _grader(folder)


def load_ranker(path: str | Path, index: str | None = None) -> Ranker:
    """Load a model that ranks; a model that grades is a UserError."""
    model = load(path, index)
    if isinstance(model, Grader):
        raise UserError(
            f"{path} was fitted with {model.model.method}, which grades rows and does not rank",
            hint="`rankfold predict` gives rows their grades",
        )
    return model


def load_grader(path: str | Path) -> Grader:
    """Load a model that grades; a model that ranks is a UserError."""
    model = load(path)
    if isinstance(model, Ranker):
        raise UserError(
            f"{path} was fitted with {model.model.method}, which ranks candidates and does not "
            "grade rows",
            hint="use `rankfold search` or `rankfold predict` for its lists",
        )
    return model


def kind_of(folder: storage.Folder) -> Kind:
    """What the method of a model folder was fitted on."""
    name = folder.manifest["method"]
    if name not in METHODS:
        raise UserError(
            f"{folder.path} was fitted with {name!r}, which this rankfold does not have",
            hint="use the rankfold that wrote it",
        )
    return METHODS[name].data_kind


# ---------------------------------------------------------------------------------- rankers


def from_folder(folder: storage.Folder, index: str | None) -> Ranker:
    """The model that ranks in a folder with verified files."""
    meta = folder.manifest
    n_queries, n_candidates = meta["sizes"]
    shows = bool(meta.get("shows_texts"))
    return Ranker(
        _model(folder),
        vocabulary(folder, "queries", n_queries),
        vocabulary(folder, "candidates", n_candidates, texts=shows),
        from_tensors(folder.tensors("seen"), n_candidates),
        from_tensors(folder.tensors("excluded"), n_candidates) if "excluded" in folder else None,
        **_texts(folder, n_queries),
        index=index,
        saved=SavedIndexes(folder),
    )


def _model(folder: storage.Folder) -> Model:
    meta = folder.manifest
    return Model(meta["method"], meta["config"], folder.tensors("tensors"), meta["notes"])


def _texts(folder: storage.Folder, n_queries: int) -> dict[str, Any]:
    """The texts of a model that ranks by text."""
    if kind_of(folder) != "texts":
        return {}
    texts, n_tokens = texts_of(folder, "texts", n_queries), int(folder.manifest["n_tokens"])
    if texts is None or not texts_valid(texts, n_tokens):
        what = "has no texts of its queries" if texts is None else "its texts are not valid"
        raise storage.damaged(folder.path, what)
    return {"texts": texts, "tokenizer": tokenizer_of(folder), "n_tokens": n_tokens}


# ---------------------------------------------------------------------------------- graders


def _grader(folder: storage.Folder) -> Grader:
    meta = folder.manifest
    _, n_grades = meta["sizes"]
    model = _model(folder)
    columns = None if meta["columns"] is None else Columns.from_json(meta["columns"])
    grader = Grader(model, vocabulary(folder, "grades", n_grades, texts=True), columns)
    _check_names(grader)
    _check_operating(model, n_grades)
    _check_fitted(model)
    if columns is not None:
        _check_columns(columns)
    return grader


def _check_names(grader: Grader) -> None:
    """A ValueError for wrong names of grades; ``understood`` reports it as a damaged folder."""
    names, n = grader.names, len(grader.grades)
    numbered = grader.grades.keys.to_list() == list(range(n))
    if n < 2 or not numbered or len(set(names)) != n or not all(isinstance(x, str) for x in names):
        raise ValueError(f"its {n} grades are {names}")


def _check_operating(model: Model, n_grades: int) -> None:
    tensors = [model.tensors[name] for name in OPERATING if name in model.tensors]
    if not tensors:
        return
    scores, grades = tensors
    if scores.ndim != 1 or scores.shape != grades.shape or grades.dtype != torch.int64:
        raise ValueError(f"its operating rows have the shapes {[list(t.shape) for t in tensors]}")
    lowest, highest = (int(end) for end in torch.aminmax(grades)) if len(grades) else (0, 0)
    if lowest < -1 or highest >= n_grades or bool(scores.isnan().any()):
        raise ValueError(f"its operating rows have grades from {lowest} to {highest}, or no scores")


def _check_fitted(model: Model) -> None:
    rows = model.tensors.get(FITTED)
    if rows is not None and (rows.ndim != 1 or rows.dtype != torch.int64):
        raise ValueError(f"its fitted rows are {rows.dtype} of shape {list(rows.shape)}")


def _check_columns(columns: Columns) -> None:
    lists = [columns.numbers, tuple(columns.levels), *columns.levels.values()]
    for names in lists:
        texts = all(isinstance(name, str) for name in names)
        if not texts or list(names) != sorted(set(names)):
            raise ValueError(f"its columns or levels are {list(names)[:3]}")
