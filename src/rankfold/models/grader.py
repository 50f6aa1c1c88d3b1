"""A fitted model that grades: it gives a row a score and a grade."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import torch
from torch import Tensor

from rankfold import storage
from rankfold.data.build.new_rows import NewRows, are_records, read_records, read_rows
from rankfold.data.folder import to_table
from rankfold.errors import UserError, pluralize
from rankfold.methods import METHODS
from rankfold.metrics.graded import check_fpr
from rankfold.metrics.roc import cut, exact
from rankfold.types import Columns, Graded, Model, Opened, Vocabulary

DEFAULT_FPR = 0.01
BLOCK_BYTES = 2**28  # of rows scored at a time
_MAX_WRITTEN_OUT = 1e15  # larger numbers are written with an exponent
CUTS_OF_TRAIN = (
    "the cuts between grades come from rows that the model was fitted on: "
    "the false-positive rate on new rows will be higher"
)
_ROUNDING = 1e-6  # of the largest score: more than the rounding error of single precision
OPERATING = ("operating_scores", "operating_grades")  # tensors of the rows that cuts come from
FITTED = "fitted_rows"  # the tensor of ``hashes`` of the rows that the model was fitted on


@dataclass(frozen=True)
class Grader:
    """A model of graded rows, the names of its grades, and the columns of its rows."""

    model: Model
    grades: Vocabulary  # numbered from the lowest; names as texts
    columns: Columns | None = None  # None: a row is an image

    def __repr__(self) -> str:
        return f"<Grader {self.model.method}: {' < '.join(self.names)}>"

    @cached_property
    def names(self) -> list[str]:
        """The names of the grades, lowest first."""
        return names_of(self.grades)

    @property
    def operates_on_train(self) -> bool:
        """Whether cuts come from rows that the model was fitted on. They let more rows pass."""
        return self.model.notes.get("operating_on") == "train"

    @cached_property
    def opened(self) -> Opened:
        """The model with its modules built."""
        return METHODS[self.model.method].open(self.model)

    def score(self, rows: Graded) -> Tensor:
        """One score per row, higher for a higher grade; [n]."""
        score_rows = self.opened.rows
        if score_rows is None:
            raise UserError(
                f"{self.model.method} does not score rows", hint="fit a method for graded rows"
            )
        step = _block_rows(rows)
        parts = torch.arange(len(rows)).split(step) if len(rows) > step else ()
        blocks = [score_rows(rows.select(part)).cpu() for part in parts]
        scores = torch.cat(blocks) if blocks else score_rows(rows).cpu()
        if bool(scores.isnan().any()):
            raise UserError(
                f"the model scores {pluralize(int(scores.isnan().sum()), 'row')} as NaN",
                hint="the fit may have diverged: try a smaller lr",
            )
        return scores

    def cuts(self, fpr: float) -> Tensor:
        """The score that a row must exceed to get a grade above k; [G - 1], non-decreasing.

        At most a share ``fpr`` of the kept rows of grade <= k exceeds cut k. The cut is halfway to
        the next score of a kept row. A cut below the previous one is raised to it, so that fewer
        rows pass. Without a kept row of grade <= k, cut k is cut k + 1, and the last one is inf.
        """
        rate = check_fpr(fpr)
        if rate not in self._cuts:
            self._cuts[rate] = self._find_cuts(rate)
        return self._cuts[rate]

    @cached_property
    def _cuts(self) -> dict[float, Tensor]:
        """Cuts by false-positive rate: finding them sorts all kept scores."""
        return {}

    def _find_cuts(self, rate: float) -> Tensor:
        scores, grades = self._operating()
        own = scores.new_full((len(self.grades),), torch.inf)
        for k in reversed(range(len(self.grades) - 1)):
            has_rows = bool((grades <= k).any())
            own[k] = _halfway(cut(scores, grades > k, rate), scores) if has_rows else own[k + 1]
        return own[:-1].cummax(dim=0).values

    def cautions(self, fpr: float) -> list[str]:
        """Why the false-positive rate on new rows may differ from ``fpr``, for people."""
        cautions, scarce = [], self.scarce(fpr)
        if self.operates_on_train:
            cautions.append(CUTS_OF_TRAIN)
        if none := [name for name, n in scarce.items() if n == 0]:
            cautions.append(
                f"no row below {none[-1]} was kept to find a cut: "
                f"{' and '.join(none)} begin{'s' if len(none) == 1 else ''} where the next grade "
                "does; the last grade is never given"
            )
        if counts := ", ".join(f"{n:,} below {name}" for name, n in scarce.items() if n > 0):
            needed = 1 / (exact(fpr) or fpr)
            enough = f"{ceil(needed):,}" if needed < _MAX_WRITTEN_OUT else f"{1 / fpr:.0e}"
            cautions.append(
                f"too few rows were kept for a false-positive rate of {fpr:g}: it needs {enough} "
                f"below a grade, and there are {counts}; the rate on new rows may differ"
            )
        fitted = self.model.config.get("fpr", fpr)
        if fitted != fpr:
            cautions.append(f"the model was fitted for a false-positive rate of {fitted:g}")
        return cautions

    def scarce(self, fpr: float) -> dict[str, int]:
        """Grades with fewer than 1 / ``fpr`` kept rows below them, and how many there are.

        None of these rows may pass: the cut is above all of them.
        """
        _, grades = self._operating()
        rate = exact(check_fpr(fpr))
        below = {name: int((grades < k).sum()) for k, name in enumerate(self.names) if k > 0}
        return {name: n for name, n in below.items() if n * rate < 1}

    def _operating(self) -> tuple[Tensor, Tensor]:
        """Scores and grades of the rows that the fit kept to find cuts."""
        if OPERATING[0] not in self.model.tensors:
            raise UserError(
                "the model has no rows to find cuts from",
                hint="fit it again: a fit keeps the scores of its validation rows",
            )
        scores, grades = (self.model.tensors[name] for name in OPERATING)
        return scores[grades >= 0].double(), grades[grades >= 0]

    def grade(self, scores: Tensor, fpr: float = DEFAULT_FPR) -> Tensor:
        """The grade of each score [n]: the number of cuts that it exceeds; [n] int64."""
        return torch.searchsorted(self.cuts(fpr), scores.double().contiguous())

    def predict(
        self, table: Any, *, fpr: float = DEFAULT_FPR, key_column: str | None = None
    ) -> pl.DataFrame:
        """``query, score, grade`` of new rows, the grade by its name.

        Args:
            table: a path, a table in memory, or a list of mappings from column to value.
            fpr: at most this share of the rows below a grade should get that grade or a higher one.
            key_column: the column that names the rows; default: they are numbered.
        """
        return self.frame(self.read(table, key_column=key_column), fpr)

    def read(self, table: Any, *, key_column: str | None = None, **more: Any) -> NewRows:
        """New rows as the model takes them; see ``predict``."""
        shape = self.model.notes.get("image_shape")
        if are_records(table) and key_column is None and not more:
            if self.columns is None or shape is not None:
                raise UserError(
                    "this model grades images, which cannot be sent as rows",
                    hint="`rankfold predict` reads a folder of images",
                )
            return read_records(table, self.columns)
        images = None if shape is None else (shape[0], shape[1], shape[2])
        return read_rows(table, self.columns, key_column=key_column, image_shape=images, **more)

    def frame(self, new: NewRows, fpr: float) -> pl.DataFrame:
        """The scores and grades of new rows, as a table."""
        scores = self.score(new.rows)
        grades = [self.names[place] for place in self.grade(scores, fpr).tolist()]
        return pl.DataFrame(
            {
                "query": new.keys,
                "score": pl.Series(scores.double().numpy(), dtype=pl.Float64),
                "grade": pl.Series(grades, dtype=pl.String),
            }
        )

    def search(self, *_args: Any, **_options: Any) -> NoReturn:
        """A UserError: this model does not rank."""
        raise UserError(
            f"{self.model.method} grades rows and does not rank candidates",
            hint="use `predict`, which gives rows their grades",
        )

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing a model that is there."""
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


def new_values(unknown: Mapping[str, int], n: int, to: str = "the model") -> list[str]:
    """A caution for each column of n rows with values that are new, and how many."""
    return [
        f"{new:,} of {n:,} values of {column} are new to {to} and count as missing"
        for column, new in unknown.items()
    ]


def names_of(grades: Vocabulary) -> list[str]:
    """The names of grades; a grade without a name has its number."""
    numbers = grades.keys.cast(pl.String)
    return (numbers if grades.texts is None else grades.texts.fill_null(numbers)).to_list()


def _halfway(lowest: Tensor, scores: Tensor) -> Tensor:
    """Halfway from a score to the next one above it.

    Rounding depends on the batch, the threads and the device. A row equal to the one at the cut
    must not pass because of it: where scores have few distinct values, many rows are equal to it.
    """
    higher = scores[scores > lowest]
    if len(higher) == 0:
        return lowest + _ROUNDING * scores.abs().max()
    return lowest + (higher.min() - lowest) / 2


def _block_rows(rows: Graded) -> int:
    """How many rows to score at a time; pixels become float32."""
    pixels = 0 if rows.images is None else rows.images.shape[1:].numel()
    return max(
        1, BLOCK_BYTES // (4 * (pixels + rows.numbers.shape[1] + rows.categories.shape[1] + 1))
    )
