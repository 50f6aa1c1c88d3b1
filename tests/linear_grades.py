"""A simple method for graded rows: the score is a weighted sum of the numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rankfold.data.build.row_hashes import hashes
from rankfold.models.grader import FITTED, Grader
from rankfold.types import Columns, Dataset, Graded, Method, Model, Opened, Run, Step, Vocabulary

NAMES = ["none", "mild", "severe"]
COLUMNS = Columns(("age", "dose"), {"site": ("a", "b")})


@dataclass(frozen=True)
class Config:
    pass


def fit(_data: Dataset, _config: Config, _run: Run) -> Iterator[Step]:
    yield from ()


def score_rows(model: Model, rows: Graded) -> Tensor:
    return rows.numbers.double() @ model.tensors["weights"] + rows.categories[:, 0]


def open_model(model: Model) -> Opened:
    return Opened(rows=partial(score_rows, model))


LINEAR = Method("A weighted sum.", Config, "graded", fit, open_model, answers=("rows",))


def random_rows(seed: int, n: int = 200) -> Graded:
    """Rows whose sum of numbers predicts their grade."""
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(n, 2, generator=rng)
    noisy = numbers.sum(dim=1) + torch.randn(n, generator=rng)
    grades = torch.bucketize(noisy, torch.tensor([0.0, 1.5]))
    return Graded(numbers, torch.randint(-1, 2, (n, 1), generator=rng).int(), None, grades)


def balanced_rows(n_grades: int, each: int) -> Graded:
    """Five numbers per row, ``each`` rows of every grade."""
    rng = torch.Generator().manual_seed(1)
    grades = torch.arange(n_grades).repeat(each)
    numbers = torch.randn(len(grades), 5, generator=rng) + 0.3 * grades[:, None]
    return Graded(numbers, torch.empty(len(grades), 0, dtype=torch.int32), None, grades)


def data_of(columns: Columns = COLUMNS, names: list[str] | None = None) -> Dataset:
    parts = [random_rows(seed) for seed in (1, 2, 3)]
    total = sum(map(len, parts))
    names = NAMES if names is None else names
    grades = Vocabulary.numbered(len(names), names)
    numbered = Vocabulary.numbered(total)
    return Dataset("graded", *parts, numbered, grades, columns=columns, fingerprint="f")


def grader_of(data: Dataset, /, **notes: object) -> Grader:
    """A fitted model, with the scores of its validation rows."""
    weights = torch.tensor([1.0, 1.0], dtype=torch.float64)
    rows = data.graded("validation")
    scores = score_rows(Model("linear", {}, {"weights": weights}), rows)
    tensors = {"weights": weights, "operating_scores": scores, "operating_grades": rows.grades}
    tensors[FITTED] = hashes(data.graded("train")).unique()
    fixed = {"operating_on": "validation", "image_shape": None, "history": [], "seed": 0}
    return Grader(Model("linear", {}, tensors, {**fixed, **notes}), data.candidates, data.columns)
