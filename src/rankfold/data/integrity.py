"""Checks of the content of prepared data. Loading checks sizes and shapes only."""

from __future__ import annotations

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.types import SPLITS, Columns, Dataset, Features, Graded, Interactions, Texts


def check_content(data: Dataset) -> None:
    """A UserError if pairs, graded rows, features or texts are damaged."""
    for name in (*SPLITS, "excluded"):
        part = getattr(data, name)
        if isinstance(part, Interactions) and part.n_pairs:
            low, high = (int(end) for end in torch.aminmax(part.candidates))
            ordered = bool((part.offsets.diff() >= 0).all())
            complete = int(part.offsets[0]) == 0 and int(part.offsets[-1]) == part.n_pairs
            if low < 0 or high >= part.n_candidates or not ordered or not complete:
                raise _damaged(f"{name} pairs")
        if isinstance(part, Graded) and not _rows_valid(part, data):
            raise _damaged(f"{name} rows")
    for side in ("query", "candidate"):
        features: Features | None = getattr(data, f"{side}_features")
        if features is not None and not _categories_valid(features.categories, features.columns):
            raise _damaged(f"{side} features")
        texts: Texts | None = getattr(data, f"{side}_texts")
        if texts is not None and not texts_valid(texts, data.n_tokens):
            raise _damaged(f"{side} texts")


def _rows_valid(part: Graded, data: Dataset) -> bool:
    """Whether all grades and categories exist."""
    if len(part):
        low, high = (int(end) for end in torch.aminmax(part.grades))
        if low < -1 or high >= len(data.candidates):
            return False
    return data.columns is None or _categories_valid(part.categories, data.columns)


def _categories_valid(categories: Tensor, columns: Columns) -> bool:
    """Whether each category is a place in its levels, or -1."""
    if not categories.numel():
        return True
    sizes = torch.tensor([len(values) for values in columns.levels.values()])
    lowest, highest = torch.aminmax(categories, dim=0)
    return bool((lowest >= -1).all()) and bool((highest < sizes).all())


def texts_valid(texts: Texts, n_tokens: int) -> bool:
    """Whether the offsets ascend and all tokens are below ``n_tokens``."""
    ends = int(texts.offsets[0]), int(texts.offsets[-1])
    if ends != (0, len(texts.tokens)) or bool((texts.counts() < 0).any()):
        return False
    if len(texts.tokens) == 0:
        return True
    low, high = (int(end) for end in torch.aminmax(texts.tokens))
    finite = texts.weights is None or bool(texts.weights.isfinite().all())
    return low >= 0 and high < n_tokens and finite


def _damaged(what: str) -> UserError:
    return UserError(f"the {what} are damaged", hint="`rankfold verify` names the file")
