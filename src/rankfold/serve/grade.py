"""Requests to a model that grades, several at a time, and the answers as JSON."""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic_core import to_json
from torch import Tensor

from rankfold.models.explain import names_of_columns
from rankfold.models.grader import Grader
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.serve.schema import GradeRequest
from rankfold.types import Graded


@torch.inference_mode()
def grade(grader: Grader, requests: Sequence[GradeRequest]) -> list[bytes]:
    """A JSON document for each request. All rows are read and scored together.

    A UserError concerns one of the requests. The worker then runs each of them alone.
    """
    rows = grader.read([row for each in requests for row in each.rows]).rows
    scores = grader.score(rows)
    ends = torch.tensor([len(request.rows) for request in requests]).cumsum(0).tolist()
    return [
        _document(grader, rows.part(end - len(request.rows), end), scores[:end], request)
        for end, request in zip(ends, requests, strict=True)
    ]


def check_explained(grader: Grader, request: GradeRequest, limits: Limits) -> None:
    """An HttpError for explanations that take too long: each scores a row ten times per column."""
    columns = 0 if grader.columns is None else len(names_of_columns(grader.columns))
    if request.explain and len(request.rows) * columns > limits.explained_values:
        raise HttpError(
            400,
            f"explain: {len(request.rows):,} rows of {columns:,} columns are more than "
            f"{limits.explained_values:,} values",
            "explain fewer rows in a request",
        )


def _document(grader: Grader, rows: Graded, scores: Tensor, request: GradeRequest) -> bytes:
    """``{"results": [{"score", "grade", "probabilities", "explanation"}]}`` of the last scores.

    Grades have their names. Explanations are there if the request asks for them.
    """
    scores, names = scores[len(scores) - len(rows) :], grader.names
    grades = grader.grade(scores, request.fpr, request.confidence)
    results: list[dict[str, Any]] = [
        {"score": score, "grade": names[place]}
        for score, place in zip(scores.tolist(), grades.tolist(), strict=True)
    ]
    if grader.calibrates:
        for result, p in zip(results, grader.probabilities(scores).tolist(), strict=True):
            result["probabilities"] = dict(zip(names, p, strict=True))
    if request.explain:
        for result, columns in zip(results, grader.explanations(rows), strict=True):
            result["explanation"] = columns
    return to_json({"results": results}, inf_nan_mode="null")
