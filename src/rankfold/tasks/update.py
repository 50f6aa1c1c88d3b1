"""Updates of a model on disk, without a fit: ``add`` pairs, ``extend``, ``forget``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.data.folder import load as load_data
from rankfold.data.prepare import as_data
from rankfold.errors import UserError
from rankfold.methods import find_method
from rankfold.models.load import load_ranker
from rankfold.models.ranker import Ranker
from rankfold.models.update import check_grows
from rankfold.tasks.fit import fit
from rankfold.types import Key


def fit_and_add(
    method: str, data: Any, more: str | Path, out: str | Path, **options: Any
) -> Ranker:
    """Add the training pairs of ``more`` to the model at ``out``; fit it first if there is none.

    The other arguments are those of ``fit``. An existing model must have been fitted by ``method``
    on ``data``. It is not fitted again, and ``options`` are ignored.
    """
    find_method(method)
    check_grows(method)
    addition = load_data(more)
    addition.split("train")  # graded rows are refused before a long fit
    if exists(out):
        ranker = load_ranker(out)
        hint = "choose another --out, or the method and data of this model; nothing was changed"
        if ranker.model.method != method:
            was = ranker.model.method
            raise UserError(f"{out} was fitted by {was}, not by {method}", hint=hint)
        if ranker.model.notes.get("data") != as_data(data).fingerprint:
            raise UserError(f"{out} was fitted on other data than {data}", hint=hint)
    else:
        fitted = fit(method, data, out=out, **options)
        assert isinstance(fitted, Ranker)  # check_grows refuses graders
        ranker = fitted
    ranker = ranker.add(addition)
    ranker.save(out)
    return ranker


def exists(out: str | Path) -> bool:
    """Whether there is a rankfold folder at ``out``."""
    return (Path(out) / storage.MANIFEST).exists()


def forget(path: str | Path, queries: Sequence[Key]) -> Ranker:
    """Remove queries from the model at ``path``, and the files that still hold them."""
    ranker = load_ranker(path).forget(queries)
    ranker.save(path)
    storage.sweep(Path(path))
    return ranker


def extend(
    path: str | Path, table: Any, key_column: str | None = None, text_column: str | None = None
) -> Ranker:
    """Add candidates to the model at ``path``, by their features or texts."""
    ranker = load_ranker(path).extend(table, key_column, text_column)
    ranker.save(path)
    return ranker
