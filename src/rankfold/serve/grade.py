"""What is asked of a model of graded rows, many requests at a time, and the answers as JSON."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from pydantic_core import to_json
from torch import Tensor

from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.serve.errors import HttpError
from rankfold.types import Columns, Graded

Value = str | int | float | bool | None
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A request to grade."""

    rows: Sequence[Row]
    fpr: float


@torch.inference_mode()
def grade(
    grader: Grader, names: Sequence[str], questions: Sequence[Rows]
) -> list[bytes | HttpError]:
    """A JSON document for each request, or what is wrong with it. All are scored together.

    ``names`` are those of the grades.
    """
    columns = _columns(grader)
    wrong = [_wrong(question.rows, columns) for question in questions]
    good = [question for question, problem in zip(questions, wrong, strict=True) if not problem]
    documents: list[bytes] = []
    if good:
        scores = grader.score(_graded(list(chain.from_iterable(q.rows for q in good)), columns))
        parts = scores.split([len(question.rows) for question in good])
        documents = [
            _document(names, part, grader.grade(part, q.fpr))
            for q, part in zip(good, parts, strict=True)
        ]
    remaining = iter(documents)
    return [problem or next(remaining) for problem in wrong]


def _columns(grader: Grader) -> Columns:
    if grader.columns is None or grader.model.notes.get("image_shape") is not None:
        raise UserError(
            "this model grades images, which cannot be sent as rows",
            hint="`rankfold predict` reads a folder of images",
        )
    return grader.columns


def _wrong(rows: Sequence[Row], columns: Columns) -> HttpError | None:
    """The first value that the model cannot take. A column that is not there is missing."""
    numbers = set(columns.numbers)
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name not in numbers and name not in columns.levels:
                known = ", ".join([*columns.numbers, *columns.levels][:20])
                return HttpError(400, f"row {place}: unknown column {name!r}", f"known: {known}")
            is_text = isinstance(value, str)
            if value is not None and is_text == (name in numbers):
                wanted = "a number" if name in numbers else "a text"
                told = f"row {place}: {name!r} is {value!r:.100}, but {wanted} is wanted"
                return HttpError(400, told, "null is a missing value")
    return None


def _graded(rows: Sequence[Row], columns: Columns) -> Graded:
    """As ``Grader.read`` reads a table of them, which takes much longer for a few."""
    values = [[_number(row.get(name)) for name in columns.numbers] for row in rows]
    numbers = torch.tensor(values, dtype=torch.float64).reshape(len(rows), len(columns.numbers))
    numbers = numbers.float()
    numbers[numbers.isinf()] = torch.nan  # too large for float32
    places = [
        [_place(levels, row.get(name)) for name, levels in columns.levels.items()] for row in rows
    ]
    categories = torch.tensor(places, dtype=torch.int32).reshape(len(rows), len(columns.levels))
    return Graded(numbers, categories, None, torch.full((len(rows),), -1))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _place(levels: Sequence[str], word: Any) -> int:
    """Of a word among the levels, which ascend; -1 where it is missing or unknown."""
    if not word:
        return -1
    place = bisect_left(levels, word)
    return place if place < len(levels) and levels[place] == word else -1


def _document(names: Sequence[str], scores: Tensor, grades: Tensor) -> bytes:
    """``{"results": [{"score", "grade"}]}``, the grade by its name."""
    found = zip(scores.tolist(), grades.tolist(), strict=True)
    results = [{"score": score, "grade": names[place]} for score, place in found]
    return to_json({"results": results}, inf_nan_mode="null")
