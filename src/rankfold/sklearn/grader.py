"""``OrdinalGrader``: gives rows an ordered grade."""

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from rankfold.data.prepare import prepare
from rankfold.data.read import in_memory
from rankfold.errors import UserError
from rankfold.metrics.graded import graded_values, parse_graded
from rankfold.models.grader import DEFAULT_FPR, Grader
from rankfold.sklearn.estimator import Estimator
from rankfold.tasks.fit import fit

_GRADE = "grade of the row"  # the name of y in the table


class OrdinalGrader(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Gives rows an ordered grade, with a limit on false alarms.

    X is an array of numbers, NaN where one is missing, or a pandas, polars or Arrow table whose
    columns may also be texts. y is the grade of each row.

    Args:
        method: a method for graded rows.
        grades: the grades, lowest first; None: those of y, ascending.
        fpr: at most this share of the rows below a grade should get that grade or a higher one.
        metric: of ``score``, and for the choice on validation rows.
        validation_share: of the rows, held out by ``fit`` to select a step and to set the cuts.
        seed: of the split and of the fit.
        settings: of the method, and options of ``rankfold.fit``.

    Attributes:
        model_: the fitted ``Grader``.
        classes_: the grades, lowest first.
        n_features_in_: the number of columns.
    """

    model_: Grader
    classes_: NDArray[Any]

    def __init__(
        self,
        method: str = "cba",
        *,
        grades: Sequence[Any] | None = None,
        fpr: float = DEFAULT_FPR,
        metric: str = "pauc@fpr=.1",
        validation_share: float = 0.2,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the method to rows and their grades."""
        frame = self._frame(X, y, reset=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if len(y) != frame.height:
            raise UserError(f"different row counts: {frame.height} of X, {len(y)} of y")
        self.classes_ = np.unique(y) if self.grades is None else np.asarray(self.grades)
        if len(self.classes_) < 2:
            raise UserError(f"y has one class, {self.classes_[0]!r}: there is nothing to order")
        names = [str(grade) for grade in self.classes_.tolist()]
        data = prepare(
            frame.with_columns(pl.Series(_GRADE, [str(grade) for grade in y.tolist()])),
            format="features",
            grade_column=_GRADE,
            query_column="none",
            grades=names,
            split=(1 - self.validation_share, self.validation_share, 0.0),
            seed=self.seed,
        )
        self.model_ = cast(Grader, fit(self.method, data, **self.settings()))
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """One number per row, higher for a higher grade; [n]."""
        check_is_fitted(self)
        rows = self.model_.read(self._frame(X)).rows
        return self.model_.score(rows).double().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The grade of each row at the false-positive rate ``fpr``; [n]."""
        scores = torch.from_numpy(self.score_samples(X))
        return np.asarray(self.classes_[self.model_.grade(scores, self.fpr).numpy()])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each grade, lowest first; [n, G]."""
        scores = torch.from_numpy(self.score_samples(X))
        return self.model_.probabilities(scores).double().numpy() + 0.0  # no -0

    def score(self, X: Any, y: Any) -> float:
        """The mean of the metric over the thresholds between grades."""
        place = {grade: number for number, grade in enumerate(self.classes_.tolist())}
        grades = torch.tensor([place.get(grade, -1) for grade in np.asarray(y).tolist()])
        scores = torch.from_numpy(self.score_samples(X))
        spec = parse_graded(self.metric)
        return float(graded_values(scores, grades, len(place), spec).nanmean())

    def _frame(self, X: Any, y: Any = None, *, reset: bool = False) -> pl.DataFrame:
        """X as a table; its columns are checked against those of ``fit``."""
        if hasattr(X, "columns") or hasattr(X, "__arrow_c_stream__"):
            given = {} if y is None else {"y": y}
            validate_data(self, X, **given, reset=reset, skip_check_array=True)
            return in_memory.to_frame(X).collect()
        given = {} if y is None else {"y": y}
        checked = validate_data(self, X, **given, reset=reset, ensure_all_finite="allow-nan")
        numbers = checked if y is None else checked[0]
        names = [f"x{place}" for place in range(numbers.shape[1])]
        return pl.DataFrame(np.asarray(numbers, dtype=np.float64), schema=names)
