"""Requests to a model that grades, several at a time, and the answers as JSON."""

from collections.abc import Sequence

import torch
from pydantic_core import to_json
from torch import Tensor

from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.serve.errors import HttpError
from rankfold.serve.schema import GradeRequest
from rankfold.types import Graded


@torch.inference_mode()
def grade(grader: Grader, requests: Sequence[GradeRequest]) -> list[bytes | HttpError]:
    """A JSON document for each request, or its problem. All rows are scored together."""
    read = [_read(grader, request) for request in requests]
    parts = [rows for rows in read if isinstance(rows, Graded)]
    scores = iter(
        grader.score(_joined(parts)).split([len(rows) for rows in parts]) if parts else ()
    )
    return [
        rows if isinstance(rows, HttpError) else _document(grader, next(scores), request.fpr)
        for request, rows in zip(requests, read, strict=True)
    ]


def _read(grader: Grader, request: GradeRequest) -> Graded | HttpError:
    try:
        return grader.read(list(request.rows)).rows
    except UserError as error:
        return HttpError(400, str(error), error.hint)


def _joined(parts: Sequence[Graded]) -> Graded:
    columns = zip(*((rows.numbers, rows.categories, rows.grades) for rows in parts), strict=True)
    numbers, categories, grades = map(torch.cat, columns)
    return Graded(numbers, categories, None, grades)


def _document(grader: Grader, scores: Tensor, fpr: float) -> bytes:
    """``{"results": [{"score", "grade"}]}``, the grade by its name."""
    pairs = zip(scores.tolist(), grader.grade(scores, fpr).tolist(), strict=True)
    results = [{"score": score, "grade": grader.names[place]} for score, place in pairs]
    return to_json({"results": results}, inf_nan_mode="null")
