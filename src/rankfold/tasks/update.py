"""Updates of a model on disk, without a fit: ``add`` pairs, ``extend``, ``forget``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.data.folder import load as load_data
from rankfold.data.prepare import as_data, prepare
from rankfold.errors import UserError
from rankfold.methods import find_method
from rankfold.models.load import load_ranker
from rankfold.models.model_card import DATA_SUMMARY
from rankfold.models.ranker import Ranker
from rankfold.models.update import check_grows
from rankfold.tasks.fit import fit
from rankfold.training import checkpoint
from rankfold.types import Dataset, Key, Side


def fit_and_add(
    method: str, data: Any, more: str | Path, out: str | Path, **options: Any
) -> Ranker:
    """Add the training pairs of ``more`` to the model at ``out``; fit it first if there is none.

    The other arguments are those of ``fit``. An existing model must have been fitted by ``method``
    on ``data``. It is not fitted again, and ``options`` are ignored.
    """
    addition = check_addition(method, more, out, options)
    if not exists(out):
        fit(method, data, out=out, **options)
    with _fitted(out, method, data) as ranker:
        ranker = ranker.add(addition)
        ranker.save(out)
    return ranker


def check_addition(
    method: str, more: str | Path, out: str | Path, options: Mapping[str, Any]
) -> Dataset:
    """The data to add; a UserError, before a long fit, if the method cannot add it.

    An existing model at ``out`` has settings of its own.
    """
    find_method(method)
    if not exists(out):
        check_grows(method, options)
    addition = load_data(more)
    addition.split("train")  # graded rows are refused
    return addition


def check_fitted(out: str | Path, method: str, data: Any) -> None:
    """A UserError unless pairs can be added to the model at ``out``, by ``method`` on ``data``."""
    with _fitted(out, method, data) as ranker:
        check_grows(ranker.model.method, ranker.model.config)


@contextmanager
def _fitted(out: str | Path, method: str, data: Any) -> Iterator[Ranker]:
    with _alone(out) as ranker:
        hint = "choose another --out, or the method and data of this model; nothing was changed"
        if ranker.model.method != method:
            was = ranker.model.method
            raise UserError(f"{out} was fitted by {was}, not by {method}", hint=hint)
        if ranker.model.notes.get("data") != as_data(data).fingerprint:
            raise UserError(f"{out} was fitted on other data than {data}", hint=hint)
        yield ranker


def add(
    model: Ranker | str | Path,
    data: Any,
    query_column: str | None = None,
    candidate_column: str | None = None,
) -> Ranker:
    """Add pairs to a model, without fitting it again; in its folder, if that is given.

    See ``Ranker.add``.

    Args:
        model: a ranker or its folder.
        data: a file or table of pairs; or prepared data or its folder.
        query_column: the column of queries; default for a file: as in the fitted data.
        candidate_column: the column of candidates, in the same way.
    """
    columns = {"query_column": query_column, "candidate_column": candidate_column}
    if isinstance(model, Ranker):
        return model.add(_pairs(model, data, columns))
    with _alone(model) as ranker:
        ranker = ranker.add(_pairs(ranker, data, columns))
        ranker.save(model)
    return ranker


def _pairs(ranker: Ranker, data: Any, columns: Mapping[str, str | None]) -> Any:
    """The pairs to add, read from the given columns, those of a file from the fitted ones."""
    check_grows(ranker.model.method, ranker.model.config)
    fitted = ranker.model.notes.get(DATA_SUMMARY, {}).get("columns", {})
    is_path = isinstance(data, str | Path)
    if is_path and Path(data).is_file():
        usual = {f"{side}_column": fitted.get(side) for side in ("query", "candidate")}
        columns = {name: given or usual[name] for name, given in columns.items()}
    named = {name: given for name, given in columns.items() if given is not None}
    if named and (isinstance(data, Dataset) or (is_path and Path(data).is_dir())):
        options = " and ".join(f"--{name.replace('_', '-')}" for name in named)
        raise UserError("prepared data has no columns to name", hint=f"leave {options} out")
    if not named and not (is_path and Path(data).is_file()):
        return data
    query, candidate = columns["query_column"], columns["candidate_column"]
    return prepare(data, split=(1.0, 0.0, 0.0), query_column=query, candidate_column=candidate)


def exists(out: str | Path) -> bool:
    """Whether there is a rankfold folder at ``out``."""
    return (Path(out) / storage.MANIFEST).exists()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of ``forget``."""

    ranker: Ranker
    forgotten: int
    unknown: list[Key]  # forgotten before, or never known


def forget(path: str | Path, keys: Sequence[Key], side: Side = "query") -> Forgotten:
    """Remove queries or candidates from the model at ``path``, and the files that still hold them.

    It can be repeated: whatever an interrupted call left is removed first.
    """
    with _alone(path) as ranker:
        _check_no_fit(Path(path))
        storage.sweep(Path(path))
        distinct = list(dict.fromkeys(keys))
        of_side = ranker.queries if side == "query" else ranker.candidates
        known = (of_side.find(distinct) >= 0).tolist()
        held = [key for key, is_known in zip(distinct, known, strict=True) if is_known]
        fewer = ranker.forget(held) if side == "query" else ranker.forget(candidates=held)
        if held:
            fewer.save(path)
            storage.sweep(Path(path))
    unknown = [key for key, is_known in zip(distinct, known, strict=True) if not is_known]
    return Forgotten(fewer, len(held), unknown)


def extend(
    model: Ranker | str | Path,
    table: Any,
    key_column: str | None = None,
    text_column: str | None = None,
    documents: Any = None,
) -> Ranker:
    """Add candidates to a model, by their features or texts; in its folder, if that is given.

    See ``Ranker.extend``.
    """
    given = table, key_column, text_column, documents
    if isinstance(model, Ranker):
        return model.extend(*given)
    with _alone(model) as ranker:
        ranker = ranker.extend(*given)
        ranker.save(model)
    return ranker


@contextmanager
def _alone(path: str | Path) -> Iterator[Ranker]:
    """The model at ``path``, which no other process changes meanwhile."""
    storage.read(Path(path), "model")
    with storage.locked(Path(path)):
        yield load_ranker(path)


def _check_no_fit(path: Path) -> None:
    """A UserError while a fit of this model runs, or where an interrupted one left its vectors."""
    folder = checkpoint.path_of(path)
    if folder.exists():
        with storage.locked(folder, of=path):
            pass
    if checkpoint.exists(folder):
        raise UserError(
            f"{folder} of an interrupted fit holds vectors of queries too",
            hint="finish the fit with --resume, or remove that folder",
        )
