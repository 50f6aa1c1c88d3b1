"""Which columns a grader reads: over many rows, and for a single one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankfold.data.build.column_profile import Profile
from rankfold.errors import UserError
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.types import Columns, Graded

Score = Callable[[Graded], Tensor]
MAX_ROWS, _MAX_TREE_ROWS = 5000, 1000  # that columns are shuffled in
_SHUFFLES = 3
_MAX_REFERENCES = 11  # values that a column is replaced by
_BLOCK = 2**16  # rows scored at a time


def names_of_columns(columns: Columns) -> list[str]:
    """The columns in the order of importances and contributions: numbers, then categories."""
    return [*columns.numbers, *columns.levels]


def permutation_importance(
    score: Score, rows: Graded, n_grades: int, gain: Tensor | None = None
) -> Tensor:
    """How much the AUC falls when the values of a column are shuffled among rows; [F + C].

    The mean over thresholds and three shuffles, over at most 5,000 rows; [breiman2001]. A column
    that another one can replace has a small one. Trees score slowly: with their ``gain`` there is
    one shuffle of at most 1,000 rows, and none of a column without a split.
    """
    rng = torch.Generator().manual_seed(0)
    max_rows, n_shuffles = (MAX_ROWS, _SHUFFLES) if gain is None else (_MAX_TREE_ROWS, 1)
    if len(rows) > max_rows:
        rows = rows.select(torch.randperm(len(rows), generator=rng)[:max_rows].sort().values)
    metric = parse_graded("auc")

    def auc(some: Graded) -> float:
        return graded_mean(score(some), rows.grades, n_grades, metric)

    whole, falls = auc(rows), []
    for place in range(rows.numbers.shape[1] + rows.categories.shape[1]):
        is_read = gain is None or bool(gain[place] > 0)
        shuffled = [
            auc(_with_column(rows, place, torch.randperm(len(rows), generator=rng)))
            for _ in range(n_shuffles if is_read else 0)
        ]
        falls.append(whole - sum(shuffled) / len(shuffled) if shuffled else 0.0)
    return torch.tensor(falls, dtype=torch.float64)


def _with_column(rows: Graded, place: int, order: Tensor) -> Graded:
    """The rows with the values of one column in another order."""
    numbers, categories, n = rows.numbers, rows.categories, rows.numbers.shape[1]
    if place < n:
        numbers = numbers.clone()
        numbers[:, place] = numbers[order, place]
    else:
        categories = categories.clone()
        categories[:, place - n] = categories[order, place - n]
    return replace(rows, numbers=numbers, categories=categories)


def contributions(score: Score, rows: Graded, profile: Profile) -> Tensor:
    """How much each column raises the score of each row; [n, F + C] float64.

    With s the score of a row, v the values of column j among the fitted rows, and w their shares::

        contribution_j = s - sum_v w_v s(the row with v in column j)

    The values of a number are the medians of ten bins, those of a category its ten most frequent
    levels, and missing. Contributions need not add up to the score: columns may act together.
    """
    own = score(rows)
    contributions = [torch.zeros(len(rows), 0, dtype=torch.float64)]
    for replaced, weights in _replacements(rows, profile):
        scores = _scores_of(score, replaced).reshape(len(weights), len(rows))
        contributions.append((own - weights @ scores)[:, None])
    return torch.cat(contributions, dim=1)


def _replacements(rows: Graded, profile: Profile) -> Iterator[tuple[list[Graded], Tensor]]:
    """For each column the rows with each reference value, and the shares of the values."""
    for place in range(rows.numbers.shape[1]):
        values = torch.cat([profile.values[place], torch.tensor([torch.nan])])
        yield _replaced(rows, place, values, profile.numbers[place])
    for place, levels in enumerate(profile.levels):
        values = torch.cat([levels[: _MAX_REFERENCES - 1], torch.tensor([-1], dtype=torch.int32)])
        counts = profile.categories[place]
        counts = torch.cat([counts[: _MAX_REFERENCES - 1], counts[-1:]])
        yield _replaced(rows, rows.numbers.shape[1] + place, values, counts)


def _replaced(
    rows: Graded, place: int, values: Tensor, counts: Tensor
) -> tuple[list[Graded], Tensor]:
    used = (counts > 0).nonzero().flatten()
    weights = counts[used] / counts[used].sum()
    copies, n = [], rows.numbers.shape[1]
    for value in values[used]:
        if place < n:
            numbers = rows.numbers.clone()
            numbers[:, place] = value
            copies.append(replace(rows, numbers=numbers))
        else:
            categories = rows.categories.clone()
            categories[:, place - n] = value
            copies.append(replace(rows, categories=categories))
    return copies, weights


def _scores_of(score: Score, copies: Sequence[Graded]) -> Tensor:
    """The scores of all copies one after another, several at a time if they are small."""
    step = max(1, _BLOCK // max(1, len(copies[0])))
    blocks = [copies[start : start + step] for start in range(0, len(copies), step)]
    return torch.cat([score(block[0].join(*block[1:])).double() for block in blocks])


def no_explanation(columns: Columns | None) -> UserError:
    """The error for a model that cannot explain a row."""
    if columns is None:
        return UserError(
            "this model grades images, which have no columns to explain by",
            hint="leave --explain out",
        )
    return UserError(
        "the model does not hold what its columns were fitted on",
        hint="an older version wrote it; fit it again",
    )
