"""Requests to a model that grades, several at a time, and the answers as JSON."""

from collections.abc import Sequence

import torch
from pydantic_core import to_json
from torch import Tensor

from rankfold.models.grader import Grader
from rankfold.serve.schema import GradeRequest


@torch.inference_mode()
def grade(grader: Grader, requests: Sequence[GradeRequest]) -> list[bytes]:
    """A JSON document for each request. All rows are read and scored together.

    A UserError concerns one of the requests. The worker then runs each of them alone.
    """
    scores = grader.score(grader.read([row for each in requests for row in each.rows]).rows)
    parts = scores.split_with_sizes([len(request.rows) for request in requests])
    both = zip(parts, requests, strict=True)
    return [_document(grader, part, request.fpr) for part, request in both]


def _document(grader: Grader, scores: Tensor, fpr: float) -> bytes:
    """``{"results": [{"score", "grade"}]}``, the grade by its name."""
    pairs = zip(scores.tolist(), grader.grade(scores, fpr).tolist(), strict=True)
    results = [{"score": score, "grade": grader.names[place]} for score, place in pairs]
    return to_json({"results": results}, inf_nan_mode="null")
