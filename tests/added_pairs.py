"""Pairs that are added to a model, and comparisons of such models."""

from typing import Any

import torch
from torch import Tensor

from rankfold.models.ranker import Ranker
from rankfold.types import Interactions

PAIRS = (
    ["bob", "bob", "dot", "dot", "fay", "fay", "hal"],
    ["tea", "ink", "tea", "pen", "ink", "jam", "tea"],
)
MORE = (["ann", "ann", "dot", "eve", "zoe", "eve"], ["tea", "ink", "jam", "pen", "pen", "wax"])


def vectors_of(ranker: Ranker) -> dict[Any, Tensor]:
    return dict(zip(ranker.queries.keys.to_list(), ranker.model.tensors["queries"], strict=True))


def rows_of(ranker: Ranker, pairs: Interactions | None = None) -> dict[Any, list[Any]]:
    """The candidates of each query, in keys; by default the seen ones."""
    pairs = ranker.seen if pairs is None else pairs
    keys = ranker.candidates.take(pairs.candidates).to_list()
    ends = pairs.offsets.tolist()
    names = ranker.queries.keys.to_list()
    return {name: keys[ends[row] : ends[row + 1]] for row, name in enumerate(names)}


def same(left: Ranker, right: Ranker) -> bool:
    """Whether everything but the notes is bit-identical."""
    ours, theirs = left.model.tensors, right.model.tensors
    return (
        ours.keys() == theirs.keys()
        and all(torch.equal(ours[name], theirs[name]) for name in ours)
        and left.queries.keys.equals(right.queries.keys)
        and rows_of(left) == rows_of(right)
    )
