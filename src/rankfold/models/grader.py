"""What a fit on graded rows leaves in your hands: a model that gives rows a score and a grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import torch
from torch import Tensor

from rankfold import storage
from rankfold.data.build.new_rows import NewRows, read_rows
from rankfold.data.folder import to_table, vocabulary
from rankfold.errors import UserError, pluralize
from rankfold.methods import METHODS
from rankfold.metrics.graded import check_fpr
from rankfold.metrics.roc import cut, exact
from rankfold.models.ranker import Ranker, from_folder, kind_of
from rankfold.types import Columns, Graded, Model, Vocabulary

USUAL_FPR = 0.01
BLOCK_BYTES = 2**28  # of rows scored at a time
MANY = 1e15  # too many to write out
CUTS_OF_TRAIN = (
    "the cuts between grades were made on rows that the model was fitted on: "
    "the false-positive rate on new rows will be higher"
)
ROUNDING = 1e-6  # of scores, a share of the largest: more than single precision has
OPERATING = ("operating_scores", "operating_grades")  # tensors of rows that cuts are made from
FITTED = "fitted_rows"  # the tensor of ``hashes`` of the rows that the model was fitted on


@dataclass(frozen=True, slots=True)
class Grader:
    """A model of graded rows, the names of its grades, and what the columns of a row mean."""

    model: Model
    grades: Vocabulary  # numbered, the lowest first; names as texts
    columns: Columns | None = None  # None: rows are images alone

    @property
    def names(self) -> list[str]:
        """Of the grades, the lowest first."""
        return names_of(self.grades)

    @property
    def operates_on_train(self) -> bool:
        """Whether cuts come from rows that the model was fitted on: they let more rows pass."""
        return self.model.notes.get("operating_on") == "train"

    def score(self, rows: Graded) -> Tensor:
        """One score per row, the higher, the higher its grade; [n]."""
        score_rows = METHODS[self.model.method].score_rows
        if score_rows is None:
            raise UserError(
                f"{self.model.method} gives no scores to rows", hint="fit a method of graded rows"
            )
        parts = torch.arange(len(rows)).split(_step(rows)) if len(rows) else ()
        scores = [score_rows(self.model, rows.select(part)).cpu() for part in parts]
        found = torch.cat(scores) if scores else torch.zeros(0, dtype=torch.float64)
        if bool(found.isnan().any()):
            raise UserError(
                f"the model gives {pluralize(int(found.isnan().sum()), 'row')} no score, but NaN",
                hint="did the fit diverge? try a smaller lr",
            )
        return found

    def cuts(self, fpr: float) -> Tensor:
        """The score that a row must exceed to have a grade above k; [G - 1], none decreases.

        At most a share ``fpr`` of the rows of grade <= k that the fit kept for it exceeds cut k,
        which is halfway to the next score of a row that was kept. Where a cut would be below the
        one before, it is raised to that, which lets fewer pass. Where no such row was kept, the cut
        after holds, below which others were; inf at last.
        """
        scores, grades = self._operating()
        rate = check_fpr(fpr)
        own = scores.new_full((len(self.grades),), torch.inf)
        for k in reversed(range(len(self.grades) - 1)):
            there = bool((grades <= k).any())
            own[k] = _halfway(cut(scores, grades > k, rate), scores) if there else own[k + 1]
        return own[:-1].cummax(dim=0).values

    def cautions(self, fpr: float) -> list[str]:
        """Why the rate of false positives among new rows may be another than ``fpr``, for people.

        Nothing where there is no reason.
        """
        found, few = [], self.few(fpr)
        if self.operates_on_train:
            found.append(CUTS_OF_TRAIN)
        if none := [name for name, n in few.items() if n == 0]:
            found.append(
                f"no row below {none[-1]} was kept to cut at: "
                f"{' and '.join(none)} begin{'s' if len(none) == 1 else ''} where the next grade "
                "does, or nowhere if there is none"
            )
        if counts := ", ".join(f"{n:,} below {name}" for name, n in few.items() if n > 0):
            needed = 1 / (exact(fpr) or fpr)
            enough = f"{ceil(needed):,}" if needed < MANY else f"{1 / fpr:.0e}"
            found.append(
                f"too few rows were kept to cut at a false-positive rate of {fpr:g}, which takes "
                f"{enough} below a grade; there are {counts}: the rate on new rows may be another"
            )
        fitted = self.model.config.get("fpr", fpr)
        if fitted != fpr:
            found.append(f"the model was fitted for a false-positive rate of {fitted:g}")
        return found

    def few(self, fpr: float) -> dict[str, int]:
        """Grades with too few rows below them for a rate, by name, and how many the fit kept.

        They are fewer than 1 / ``fpr``: none of them may pass, and the cut is above all of them.
        """
        _, grades = self._operating()
        rate = exact(check_fpr(fpr))
        below = {name: int((grades < k).sum()) for k, name in enumerate(self.names) if k > 0}
        return {name: n for name, n in below.items() if n * rate < 1}

    def _operating(self) -> tuple[Tensor, Tensor]:
        """Scores and grades of the rows that the fit kept for the cuts."""
        if OPERATING[0] not in self.model.tensors:
            raise UserError(
                "the model has no rows to choose cuts from",
                hint="fit it again: a fit keeps the scores of its validation rows",
            )
        scores, grades = (self.model.tensors[name] for name in OPERATING)
        return scores[grades >= 0].double(), grades[grades >= 0]

    def grade(self, scores: Tensor, fpr: float = USUAL_FPR) -> Tensor:
        """The grade of each score [n]: how many cuts it exceeds; [n] int64."""
        return torch.searchsorted(self.cuts(fpr).double(), scores.double().contiguous())

    def predict(
        self, table: Any, *, fpr: float = USUAL_FPR, key: str | None = None
    ) -> pl.DataFrame:
        """``query, score, grade`` of new rows, the grade by its name.

        Args:
            table: a path or a table in memory, as ``read_rows`` takes it.
            fpr: at most this share of the rows below a grade should get that grade or a higher one.
            key: the column to name rows by; they are numbered without one.
        """
        return self.frame(self.read(table, key=key), fpr)

    def read(self, table: Any, *, key: str | None = None, **more: Any) -> NewRows:
        """New rows as the model takes them."""
        shape = self.model.notes.get("image_shape")
        image_shape = None if shape is None else (shape[0], shape[1], shape[2])
        return read_rows(table, self.columns, key_column=key, image_shape=image_shape, **more)

    def frame(self, new: NewRows, fpr: float) -> pl.DataFrame:
        """What new rows get."""
        scores = self.score(new.rows)
        names = pl.Series(self.names, dtype=pl.String)
        return pl.DataFrame(
            {
                "query": new.keys,
                "score": pl.Series(scores.double().numpy(), dtype=pl.Float64),
                "grade": names.gather(self.grade(scores, fpr).numpy()),
            }
        )

    def search(self, *_asked: Any, **_how: Any) -> NoReturn:
        """A model of graded rows ranks no candidates."""
        raise UserError(
            f"{self.model.method} grades rows and ranks no candidates",
            hint="use predict, which gives rows their grades",
        )

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing the model that is there."""
        meta = {
            "method": self.model.method,
            "data_kind": "graded",
            "config": dict(self.model.config),
            "notes": dict(self.model.notes),
            "sizes": [0, len(self.grades)],
            "columns": None if self.columns is None else self.columns.to_json(),
        }
        files: dict[str, storage.Content] = {
            "tensors": {name: tensor.cpu() for name, tensor in self.model.tensors.items()},
            "grades": to_table(Vocabulary.numbered(len(self.grades), self.names)),
        }
        storage.write(Path(path), "model", meta, files)


def load(path: str | Path, index: str | None = None) -> Ranker | Grader:
    """Open a model folder, of any kind; every file is compared with its checksum first.

    Args:
        path: the folder.
        index: what searches the vectors of a model that ranks, by name; None: the folder's own
            index, or exact search where it has none.
    """
    folder = storage.read(Path(path), "model", full=True)
    with storage.check_contents(folder.path):
        if kind_of(folder) != "graded":
            return from_folder(folder, index)
        if index not in (None, "exact"):
            raise UserError(
                f"{folder.manifest['method']} grades rows: there are no vectors to search",
                hint="leave --index out",
            )
        return _grader(folder)


def load_grader(path: str | Path) -> Grader:
    """Open the folder of a model of graded rows; another is a UserError."""
    found = load(path)
    if isinstance(found, Ranker):
        raise UserError(
            f"{path} was fitted with {found.model.method}, which ranks candidates and grades no "
            "rows",
            hint="`rankfold search` and `rankfold predict` give its lists",
        )
    return found


def new_values(unknown: Mapping[str, int], n: int, to: str = "the model") -> list[str]:
    """Cautions, one for each column of n rows that has values which are new, and how many."""
    return [
        f"{new:,} of {n:,} values of {column} are new to {to}: they count as missing"
        for column, new in unknown.items()
    ]


def names_of(grades: Vocabulary) -> list[str]:
    """The names of grades, or their numbers where they have none."""
    numbers = grades.keys.cast(pl.String)
    return (numbers if grades.texts is None else grades.texts.fill_null(numbers)).to_list()


def _grader(folder: storage.Folder) -> Grader:
    meta = folder.manifest
    _, n_grades = meta["sizes"]
    model = Model(meta["method"], meta["config"], folder.tensors("tensors"), meta["notes"])
    columns = None if meta["columns"] is None else Columns.from_json(meta["columns"])
    grader = Grader(model, vocabulary(folder, "grades", n_grades, texts=True), columns)
    _check_names(grader)
    _check_operating(model, n_grades)
    _check_fitted(model)
    if columns is not None:
        _check_columns(columns)
    return grader


def _check_names(grader: Grader) -> None:
    """A ValueError for what are no names of grades: ``understood`` tells of it."""
    names, n = grader.names, len(grader.grades)
    numbered = grader.grades.keys.to_list() == list(range(n))
    if n < 2 or not numbered or len(set(names)) != n or not all(isinstance(x, str) for x in names):
        raise ValueError(f"its {n} grades are {names}")


def _check_operating(model: Model, n_grades: int) -> None:
    found = [model.tensors[name] for name in OPERATING if name in model.tensors]
    if not found:
        return
    scores, grades = found
    if scores.ndim != 1 or scores.shape != grades.shape or grades.dtype != torch.int64:
        raise ValueError(f"its operating rows are of shapes {[list(t.shape) for t in found]}")
    lowest, highest = (int(end) for end in torch.aminmax(grades)) if len(grades) else (0, 0)
    if lowest < -1 or highest >= n_grades or bool(scores.isnan().any()):
        raise ValueError(f"its operating rows have grades from {lowest} to {highest}, or no scores")


def _check_fitted(model: Model) -> None:
    found = model.tensors.get(FITTED)
    if found is not None and (found.ndim != 1 or found.dtype != torch.int64):
        raise ValueError(f"its fitted rows are {found.dtype} of shape {list(found.shape)}")


def _check_columns(columns: Columns) -> None:
    lists = [columns.numbers, tuple(columns.levels), *columns.levels.values()]
    for names in lists:
        texts = all(isinstance(name, str) for name in names)
        if not texts or list(names) != sorted(set(names)):
            raise ValueError(f"its columns or levels are {list(names)[:3]}")


def _halfway(lowest: Tensor, scores: Tensor) -> Tensor:
    """From a score to the next one above it.

    A score is rounded otherwise among other rows, with other threads or on another device. A row
    like the one at the cut must not pass for that: where values are few, they are many.
    """
    higher = scores[scores > lowest]
    if len(higher) == 0:
        return lowest + ROUNDING * scores.abs().max()
    return lowest + (higher.min() - lowest) / 2


def _step(rows: Graded) -> int:
    """How many rows to score at a time: pixels become float32."""
    pixels = 0 if rows.images is None else rows.images[0].numel()
    return max(
        1, BLOCK_BYTES // (4 * (pixels + rows.numbers.shape[1] + rows.categories.shape[1] + 1))
    )
