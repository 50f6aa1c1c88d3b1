"""Requests to a model that grades, several at a time, and the answers as JSON."""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic_core import to_json

from rankfold.models.explain.grading import names_of_columns
from rankfold.models.grader import Grader
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.schema import GradeRequest


@torch.inference_mode()
def grade(grader: Grader, requests: Sequence[GradeRequest]) -> list[bytes]:
    """A document for each request: ``{"results": [{"score", "grade", "probabilities"}]}``.

    With an ``explanation`` if it asks for them; grades have their names. All rows are read and
    scored together. A UserError concerns one of the requests: the worker then runs each alone.
    """
    rows = grader.read([row for each in requests for row in each.rows]).rows
    scores = grader.score(rows)
    values = scores.tolist()
    shares = grader.probabilities(scores).tolist() if grader.calibrates else []
    documents, start = [], 0
    for request in requests:
        own = slice(start, start + len(request.rows))
        places = grader.grade(scores[own], request.fpr, request.confidence).tolist()
        results: list[dict[str, Any]] = [
            {"score": value, "grade": grader.names[place]}
            for value, place in zip(values[own], places, strict=True)
        ]
        for result, each in zip(results, shares[own], strict=bool(shares)):
            result["probabilities"] = dict(zip(grader.names, each, strict=True))
        if request.explain:
            explanations = grader.explanations(rows.part(own.start, own.stop))
            for result, columns in zip(results, explanations, strict=True):
                result["explanation"] = columns
        documents.append(to_json({"results": results}, inf_nan_mode="null"))
        start = own.stop
    return documents


def check_explained(grader: Grader, request: GradeRequest, limits: Limits) -> None:
    """An HttpError for explanations that take too long: each scores a row ten times per column."""
    if not request.explain or grader.columns is None:
        return
    columns = len(names_of_columns(grader.columns))
    if len(request.rows) * columns > limits.explained_values:
        raise HttpError(
            400,
            f"explain: {len(request.rows):,} rows of {columns:,} columns are more than "
            f"{limits.explained_values:,} values",
            "explain fewer rows in a request",
        )
