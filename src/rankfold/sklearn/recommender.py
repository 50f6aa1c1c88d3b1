"""``Recommender``: ranks candidates for queries, from a table of pairs."""

from typing import Any, Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from rankfold.data.prepare import prepare
from rankfold.data.read import in_memory
from rankfold.models.ranker import Ranker
from rankfold.sklearn.estimator import Estimator
from rankfold.sklearn.lists import as_array
from rankfold.tasks.evaluate import evaluate
from rankfold.tasks.fit import fit


class Recommender(Estimator):
    """Ranks candidates for queries.

    X is a table of pairs, a row each: the query in its first column, the candidate in its second.
    It is a pandas, polars or Arrow table or an array. y is the grade of each pair, or None.

    Args:
        method: a method for interactions.
        k: the length of a list.
        metric: of ``score``, and for the choice on validation pairs.
        validation_share: of each query's pairs, held out by ``fit`` to select settings and to stop.
        seed: of the split and of the fit.
        settings: of the method, and options of ``rankfold.fit``.

    Attributes:
        model_: the fitted ``Ranker``.
        n_features_in_: 2.
    """

    model_: Ranker

    def __init__(
        self,
        method: str = "rg2",
        *,
        k: int = 10,
        metric: str = "ndcg@10",
        validation_share: float = 0.1,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(locals())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the method to pairs."""
        data = prepare(
            _pairs(X, y),
            split=(1 - self.validation_share, self.validation_share, 0.0),
            seed=self.seed,
        )
        self.model_ = cast(Ranker, fit(self.method, data, **self.settings()))
        self.n_features_in_ = 2
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The best ``k`` candidates of each row's query; [n, k] keys, None beyond the last.

        X is a table whose first column has the queries, or a list of queries. Candidates that a
        query chose in the fitted pairs are left out.
        """
        check_is_fitted(self)
        return as_array(self.model_.search(_queries(X), k=self.k).keys, self.k)

    def score(self, X: Any, y: Any = None) -> float:
        """The metric with the pairs of X as the truth, over the queries that the model knows."""
        check_is_fitted(self)
        return float(evaluate(self.model_, _pairs(X, y), metrics=self.metric)[self.metric])


def _pairs(table: Any, grades: Any) -> pl.LazyFrame:
    """The first two columns of a table, and grades if there are any."""
    frame = in_memory.to_frame(table).collect()
    named = frame.select(query=pl.nth(0), candidate=pl.nth(1))
    if grades is not None:
        named = named.with_columns(grade=pl.Series(np.asarray(grades)))
    return named.lazy()


def _queries(table: Any) -> list[Any]:
    """The first column of a table, or a list of queries."""
    if isinstance(table, list | tuple):
        return list(table)
    if isinstance(table, pl.Series) or getattr(table, "ndim", 2) == 1:
        return list(np.asarray(table).tolist())
    if isinstance(table, np.ndarray):
        return list(table[:, 0].tolist())
    return in_memory.to_frame(table).collect().to_series(0).to_list()
