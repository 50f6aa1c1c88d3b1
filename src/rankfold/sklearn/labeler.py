"""``Labeler``: ranks labels for texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.metrics import METRICS, parse
from rankfold.metrics.judged import judge
from rankfold.models.ranker import Ranker
from rankfold.sklearn.estimator import Estimator
from rankfold.sklearn.lists import as_array
from rankfold.tasks.fit import fit
from rankfold.types import from_pairs


class Labeler(Estimator):
    """Ranks labels for texts.

    X is a list of texts. y has the labels of each text: a list of them, one label, or a row of a
    0/1 matrix, whose labels are its column numbers.

    Args:
        method: a method for texts.
        k: how many labels a text gets.
        label_texts: the words of each label, by label; None: the label itself.
        metric: of ``score``, and for the choice on validation texts.
        validation_share: of the texts, held out by ``fit`` to select settings and to stop.
        seed: of the split and of the fit.
        settings: of the method, and options of ``rankfold.fit``.

    Attributes:
        model_: the fitted ``Ranker``.
        classes_: the labels.
    """

    model_: Ranker

    def __init__(
        self,
        method: str = "siamesexml",
        *,
        k: int = 5,
        label_texts: Mapping[Any, str] | None = None,
        metric: str = "ndcg@10",
        validation_share: float = 0.1,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(locals())

    def fit(self, X: Iterable[str], y: Any) -> Self:
        """Fit the method to texts and their labels."""
        texts, labels = [str(text) for text in X], _labels(y)
        if len(texts) != len(labels):
            raise UserError(f"different row counts: {len(texts)} texts, {len(labels)} of y")
        numbers = list(range(len(texts)))
        names = sorted(set().union(*labels))
        words = self.label_texts or {}
        data = prepare(
            pl.DataFrame({"query": numbers, "candidate": labels}).explode("candidate"),
            query_texts=pl.DataFrame({"query": numbers, "text": texts}),
            candidate_texts=pl.DataFrame(
                {"candidate": names, "text": [str(words.get(name, name)) for name in names]}
            ),
            split=f"queries:{1 - self.validation_share},{self.validation_share},0",
            seed=self.seed,
        )
        self.model_ = cast(Ranker, fit(self.method, data, **self.settings()))
        self.classes_ = np.asarray(names)
        return self

    def predict(self, X: Iterable[str]) -> NDArray[Any]:
        """The best ``k`` labels of each text; [n, k], None beyond the last."""
        check_is_fitted(self)
        return as_array(self._lists(X, self.k), self.k)

    def score(self, X: Iterable[str], y: Any) -> float:
        """The mean of the metric over the texts with a label."""
        check_is_fitted(self)
        spec, labels, keys = parse(self.metric), _labels(y), self.model_.candidates
        flat = pl.Series([label for each in labels for label in each], dtype=keys.keys.dtype)
        rows = torch.arange(len(labels)).repeat_interleave(
            torch.tensor([len(each) for each in labels])
        )
        places = keys.find(flat)
        unknown = (places < 0).nonzero().flatten()
        places[unknown] = len(keys) + torch.arange(len(unknown))  # the model cannot find them
        truth = from_pairs(rows, places, None, (len(labels), len(keys) + len(unknown)))
        depth, lists = min(spec.k, len(keys)), self._lists(X, spec.k)
        ids = torch.stack([keys.find(pl.Series(each, dtype=keys.keys.dtype)) for each in lists])
        judged = judge(ids[:, :depth], truth)
        return float(METRICS[spec.name].value(judged, spec.k)[judged.positives > 0].mean())

    def _lists(self, texts: Iterable[str], k: int) -> list[list[Any]]:
        return list(self.model_.search(text=[str(text) for text in texts], k=k).keys)


def _labels(y: Any) -> list[list[Any]]:
    """The labels of each text as a list."""
    if hasattr(y, "tocsr"):
        return [row.indices.tolist() for row in y.tocsr()]
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return [np.flatnonzero(row).tolist() for row in y]
    listed: Sequence[Any] = y.tolist() if hasattr(y, "tolist") else list(y)
    return [
        list(one) if isinstance(one, Iterable) and not isinstance(one, str) else [one]
        for one in listed
    ]
