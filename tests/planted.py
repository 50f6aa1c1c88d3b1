"""Data with planted groups, for tests of whole methods."""

from typing import Any

import polars as pl
import pytest
import torch

import rankfold as rf
from rankfold.types import Dataset, Interactions


def groups(seed: int = 0, m: int = 120, n: int = 60, *, graded: bool = False) -> pl.DataFrame:
    """Queries and candidates in six groups; most choices stay within the group."""
    rng = torch.Generator().manual_seed(seed)
    same = (torch.arange(m)[:, None] % 6) == (torch.arange(n)[None, :] % 6)
    chosen = torch.rand(m, n, generator=rng) < torch.where(same, 0.6, 0.05)
    pairs = chosen.nonzero()
    columns = {"query": pairs[:, 0].numpy(), "candidate": pairs[:, 1].numpy()}
    if graded:
        columns["grade"] = torch.randint(1, 6, (len(pairs),), generator=rng).float().numpy()
    return pl.DataFrame(columns)


RG2_SETTINGS = (
    "query_exponent", "candidate_exponent", "rank", "threshold", "discount", "tail_weight",
    "popularity",
)  # fmt: skip
RG2_QUICK: dict[str, Any] = {"width": 12, "tolerance": 1e-3}
NEWCOMER = 500  # a query with features and no pairs


def informed_groups() -> Dataset:
    """The groups, with the group and an age of each query."""
    keys = [*range(120), NEWCOMER]
    table = {"query": keys, "group": [f"g{key % 6}" for key in keys], "age": [*range(121)]}
    return rf.prepare(groups(), query_features=pl.DataFrame(table))


def split_groups(seed: int = 0, *, graded: bool = False) -> Dataset:
    return rf.prepare(groups(seed, graded=graded))


@pytest.fixture(scope="module", name="data")
def split_data() -> Dataset:
    return split_groups()


def dense(rows: Interactions) -> torch.Tensor:
    """Its grades, or ones, in float64."""
    matrix = torch.zeros(rows.n_queries, rows.n_candidates, dtype=torch.float64)
    values = torch.ones(rows.n_pairs) if rows.grades is None else rows.grades
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = values.double()
    return matrix
