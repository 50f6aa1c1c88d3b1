"""A fitted model that grades: it gives a row a score and a grade."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
import torch
from torch import Tensor

from rankfold import storage
from rankfold.data.build.column_profile import Profile, Shift
from rankfold.data.build.new_rows import NewRows, are_records, read_records, read_rows
from rankfold.data.folder import to_table
from rankfold.errors import UserError, pluralize
from rankfold.metrics.isotonic import Steps, isotonic
from rankfold.models import cuts
from rankfold.models.explain.grading import contributions, names_of_columns, no_explanation
from rankfold.models.model_card import readme
from rankfold.models.notebook_card import model_card
from rankfold.models.open_model import open_model
from rankfold.types import Columns, Graded, Model, Opened, Vocabulary

DEFAULT_FPR = 0.01
EXPLAINED_COLUMNS = 5  # columns in the explanation of a row
_EXPLANATION = pl.List(pl.Struct({"column": pl.String, "contribution": pl.Float64}))
_MAX_CUTS = 64  # kept
BLOCK_BYTES = 2**28  # of rows scored at a time
TREES = "trees"  # the tensor with the bytes of trees in LightGBM's text form
FITTED = "fitted_rows"  # the tensor of ``hashes`` of the rows that the model was fitted on


@dataclass(frozen=True)
class Grader:
    """A model of graded rows, the names of its grades, and the columns of its rows."""

    model: Model
    grades: Vocabulary  # numbered from the lowest; names as texts
    columns: Columns | None = None  # None: a row is an image

    def __repr__(self) -> str:
        return f"<Grader {self.model.method}: {' < '.join(self.names)}>"

    def _repr_html_(self) -> str:
        return model_card(self.model, {"grades": ", ".join(self.names)})

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
        return open_model(self.model)

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

    def cuts(self, fpr: float, confidence: float | None = None) -> Tensor:
        """The score that a row must exceed to get a grade above k; [G - 1], see ``find_cuts``."""
        key = float(fpr), confidence
        if key not in self._cuts:
            if len(self._cuts) >= _MAX_CUTS:  # a server is asked for any rate
                self._cuts.clear()
            self._cuts[key] = cuts.find_cuts(self.model, self.names, fpr, confidence)
        return self._cuts[key]

    @cached_property
    def _cuts(self) -> dict[tuple[float, float | None], Tensor]:
        """Cuts by false-positive rate and confidence: finding them sorts all kept scores."""
        return {}

    def cautions(self, fpr: float, confidence: float | None = None) -> list[str]:
        """Why the false-positive rate on new rows may differ from ``fpr``, for people."""
        return cuts.cautions(self.model, self.names, fpr, confidence)

    def promise(self, fpr: float, confidence: float | None = None) -> str:
        """What the false-positive rate means for new rows, for people."""
        return cuts.promise(self.model, self.names, fpr, confidence)

    def scarce(self, fpr: float) -> dict[str, int]:
        """Grades with fewer than 1 / ``fpr`` kept rows below them, and how many there are."""
        return cuts.scarce(self.model, self.names, fpr)

    def grade(
        self, scores: Tensor, fpr: float = DEFAULT_FPR, confidence: float | None = None
    ) -> Tensor:
        """The grade of each score [n]: the number of cuts that it exceeds; [n] int64."""
        return torch.searchsorted(self.cuts(fpr, confidence), scores.double().contiguous())

    @cached_property
    def _curves(self) -> list[Steps]:
        """From a score to the probability of a grade above k, by the rows kept for the cuts."""
        scores, grades = cuts.operating_rows(self.model)
        if len(scores) == 0:
            return []
        return [isotonic(scores, grades > k) for k in range(len(self.grades) - 1)]

    @property
    def calibrates(self) -> bool:
        """Whether there are rows to find probabilities from."""
        return cuts.OPERATING[0] in self.model.tensors and bool(self._curves)

    def probabilities(self, scores: Tensor) -> Tensor:
        """The probability of each grade by the score [n], from isotonic regression; [n, G]."""
        own = scores.double().numpy()
        above = np.zeros((len(self._curves) + 2, len(own)))  # a grade above none, ..., the last
        above[0] = 1.0
        for k, curve in enumerate(self._curves, start=1):
            above[k] = curve.at(own)
        return torch.from_numpy((above[:-1] - above[1:]).T)

    @cached_property
    def profile(self) -> Profile | None:
        """What the columns of the fitted rows held; None if an older version wrote the model."""
        return None if self.columns is None else Profile.from_tensors(self.model.tensors)

    def shifts(self, rows: Graded) -> list[Shift]:
        """How the columns of rows differ from those of the fitted rows; empty if unknown."""
        if self.profile is None or self.columns is None or len(rows) == 0:
            return []
        return self.profile.shifts(rows, self.columns)

    @property
    def explains(self) -> bool:
        """Whether it can say which columns move a score."""
        return self.opened.contributions is not None or self.profile is not None

    def explain(self, rows: Graded) -> Tensor:
        """How much each column raises the score of each row; [n, columns], numbers first."""
        if self.opened.contributions is not None:
            return self.opened.contributions(rows)
        if self.profile is None:
            raise no_explanation(self.columns)
        return contributions(self.score, rows, self.profile)

    def predict(
        self,
        table: Any,
        *,
        fpr: float = DEFAULT_FPR,
        confidence: float | None = None,
        explain: bool = False,
        key_column: str | None = None,
    ) -> pl.DataFrame:
        """``query, score, grade`` of new rows and the probability of each grade.

        Args:
            table: a path, a table in memory, or a list of mappings from column to value.
            fpr: at most this share of the rows below a grade should get that grade or a higher one.
            confidence: of the promise that it does not, at each grade; default: on average.
            explain: add how much the five most important columns raise the score of each row.
            key_column: the column that names the rows; default: that of the prepared data, where
                the table has it, else they are numbered.
        """
        new = self.read(table, key_column=key_column)
        return self.frame(new, fpr, confidence, explain=explain)

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
        return read_rows(
            table,
            self.columns,
            key_column=key_column,
            usual_key=self.model.notes.get("query_column"),
            image_shape=images,
            **more,
        )

    def frame(
        self, new: NewRows, fpr: float, confidence: float | None = None, *, explain: bool = False
    ) -> pl.DataFrame:
        """The scores, grades and probabilities of new rows, as a table."""
        scores = self.score(new.rows)
        grades = [self.names[place] for place in self.grade(scores, fpr, confidence).tolist()]
        columns = {
            "query": new.keys,
            "score": pl.Series(scores.double().numpy(), dtype=pl.Float64),
            "grade": pl.Series(grades, dtype=pl.String),
        }
        if self.calibrates:
            each = self.probabilities(scores).T.numpy()
            columns |= {
                f"probability_{n}": pl.Series(p) for n, p in zip(self.names, each, strict=True)
            }
        if explain:
            columns["explanation"] = pl.Series(self.explanations(new.rows), dtype=_EXPLANATION)
        return pl.DataFrame(columns)

    def explanations(self, rows: Graded) -> list[list[dict[str, Any]]]:
        """The columns that move the score of each row most, and by how much."""
        values = self.explain(rows)
        assert self.columns is not None
        names, most = names_of_columns(self.columns), min(EXPLAINED_COLUMNS, values.shape[1])
        places = values.abs().topk(most, dim=1).indices
        pairs = zip(places.tolist(), values.gather(1, places).tolist(), strict=True)
        return [
            [{"column": names[j], "contribution": v} for j, v in zip(*pair, strict=True)]
            for pair in pairs
        ]

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
        tensors = {name: tensor.cpu() for name, tensor in self.model.tensors.items()}
        files: dict[str, storage.Content] = {
            "grades": to_table(Vocabulary.numbered(len(self.grades), self.names))
        }
        if TREES in tensors:  # a file that LightGBM reads
            files[TREES] = _text_file(tensors.pop(TREES))
        files["tensors"] = tensors
        card = readme(self.model, {"grades": len(self.grades)})
        storage.write(storage.as_path(path), "model", meta, files, card=card)


def _text_file(text: Tensor) -> storage.ForeignFile:
    def write(put: storage.Put) -> None:
        put(text.numpy().data)

    return storage.ForeignFile("txt", write)


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


def _block_rows(rows: Graded) -> int:
    """How many rows to score at a time; pixels become float32."""
    pixels = 0 if rows.images is None else rows.images.shape[1:].numel()
    return max(
        1, BLOCK_BYTES // (4 * (pixels + rows.numbers.shape[1] + rows.categories.shape[1] + 1))
    )
