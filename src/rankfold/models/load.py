"""The one loader: a folder becomes a model that ranks or a model that grades."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from rankfold import storage
from rankfold.data.folder import (
    features_of,
    from_tensors,
    texts_of,
    texts_valid,
    tokenizer_of,
    vocabulary,
)
from rankfold.errors import UserError
from rankfold.index.build import SavedIndexes
from rankfold.methods import METHODS
from rankfold.models.cuts import OPERATING
from rankfold.models.grader import FITTED, TREES, Grader
from rankfold.models.imports import check_known
from rankfold.models.open_model import check_meta
from rankfold.models.ranker import Ranker
from rankfold.types import Columns, Kind, Model


def load(path: str | Path, index: str | None = None) -> Ranker | Grader:
    """Load a model folder; the checksum of every file is verified first.

    Args:
        path: the folder.
        index: searches the vectors of a model that ranks: a key of ``INDEXES``, built when first
            needed. Default: the index in the folder, or exact search.
    """
    return open_folder(storage.read(path, "model", full=True), index)


def open_folder(folder: storage.Folder, index: str | None = None) -> Ranker | Grader:
    """The model in a folder with verified files."""
    with storage.check_contents(folder.path):
        check_meta(folder.manifest)
        check_known(folder.path, folder.manifest)
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


def kind_of(folder: storage.Folder) -> Kind:
    """The kind of data that a model folder was fitted on."""
    name = folder.manifest["method"]
    if name not in METHODS:
        raise UserError(
            f"{folder.path} was fitted with {name!r}, which this rankfold does not have",
            hint="use the rankfold that wrote it",
        )
    return METHODS[name].data_kind


def from_folder(folder: storage.Folder, index: str | None) -> Ranker:
    """Like ``open_folder``, for a model that ranks."""
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
        features=features_of(folder, "candidate", n_candidates, (0, n_candidates)),
        index=index,
        saved=SavedIndexes(folder),
    )


def _model(folder: storage.Folder) -> Model:
    meta, tensors = folder.manifest, folder.tensors("tensors")
    if TREES in folder:
        text = folder.file(TREES).read_bytes()
        tensors[TREES] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return Model(meta["method"], meta["config"], tensors, meta["notes"])


def _texts(folder: storage.Folder, n_queries: int) -> dict[str, Any]:
    """The texts of a model that ranks by text."""
    if kind_of(folder) != "texts":
        return {}
    texts, n_tokens = texts_of(folder, "texts", n_queries), int(folder.manifest["n_tokens"])
    if texts is None or not texts_valid(texts, n_tokens):
        what = "has no texts of its queries" if texts is None else "its texts are not valid"
        raise storage.damaged(folder.path, what)
    return {"texts": texts, "tokenizer": tokenizer_of(folder), "n_tokens": n_tokens}


def _grader(folder: storage.Folder) -> Grader:
    """A ValueError for wrong contents; ``check_contents`` reports it as a damaged folder."""
    meta, model = folder.manifest, _model(folder)
    _, n_grades = meta["sizes"]
    columns = None if meta["columns"] is None else Columns.from_json(meta["columns"])
    grader = Grader(model, vocabulary(folder, "grades", n_grades, texts=True), columns)
    numbers = grader.grades.keys.to_list() == list(range(n_grades))
    if n_grades < 2 or not numbers or not _are_names(sorted(grader.names)):
        raise ValueError(f"its {n_grades} grades are {grader.names}")
    _check_operating(model, n_grades)
    rows = model.tensors.get(FITTED)
    if rows is not None and (rows.ndim != 1 or rows.dtype != torch.int64):
        raise ValueError(f"its fitted rows are {rows.dtype} of shape {list(rows.shape)}")
    lists = () if columns is None else (columns.numbers, columns.levels, *columns.levels.values())
    for names in lists:
        if not _are_names(names):
            raise ValueError(f"its columns or levels are {list(names)[:3]}")
    return grader


def _are_names(names: Iterable[Any]) -> bool:
    """Whether they are texts, ascending and distinct."""
    listed = list(names)
    return all(isinstance(one, str) for one in listed) and listed == sorted(set(listed))


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
