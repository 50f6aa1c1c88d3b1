"""Write what ``evaluate`` measured into the model's card, ``README.md`` in its folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.errors import UserError
from rankfold.models.load import load
from rankfold.models.model_card import MEASURED
from rankfold.tasks.evaluate_graded import GradedEvaluation
from rankfold.tasks.evaluate_ranking import Evaluation
from rankfold.tasks.significance import mean_intervals


def add_to_card(path: str | Path, result: Evaluation | GradedEvaluation) -> None:
    """Keep a result in the notes of a model folder and in its card, in place of one of that split.

    A result on pairs or rows that the model was fitted on is a UserError.
    """
    if result.trained_on:
        raise UserError(
            f"the model was fitted on {result.trained_on:,} of these pairs or rows: the figures "
            "are too high for a card",
            hint="evaluate a split that it has not seen",
        )
    fitted = load(path)
    entry: dict[str, Any] = {
        "split": result.split,
        "queries": result.queries,
        "of": "rows" if isinstance(result, GradedEvaluation) else "queries",
        "metrics": {name: _finite(value) for name, value in result.metrics.items()},
        "intervals": _intervals(result),
    }
    before = fitted.model.notes.get(MEASURED, ())
    kept = [one for one in before if one["split"] != result.split]
    notes = {**fitted.model.notes, MEASURED: [*kept, entry]}
    replace(fitted, model=replace(fitted.model, notes=notes)).save(path)


def _intervals(result: Evaluation | GradedEvaluation) -> dict[str, Any]:
    """Those of graded rows, or 95 % intervals of the metrics that are means over queries."""
    if isinstance(result, GradedEvaluation):
        return dict(result.intervals)
    names = [name for name, values in result.per_query.items() if np.isfinite(values).all()]
    if not names:
        return {}
    ends = mean_intervals(np.stack([result.per_query[name].astype(np.float64) for name in names]))
    return dict(zip(names, ends.tolist(), strict=True))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
