"""Popularity: every query gets the candidates that most queries chose. The baseline."""

from collections.abc import Iterator

import torch

from rankfold.config import Settings
from rankfold.types import Dataset, Method, Model, Opened, Run, Step


class PopularityConfig(Settings):
    """``popularity`` has no settings."""


def fit(data: Dataset, _config: PopularityConfig, run: Run) -> Iterator[Step]:
    """The score of a candidate is the number of queries that chose it."""
    train = data.split("train").to(run.device)
    tensors = {
        "queries": torch.ones(train.n_queries, 1, device=run.device),
        "candidates": run.comm.sum(train.candidate_counts()).float()[:, None],
    }
    model = Model("popularity", {}, tensors)
    yield Step(1, 0.0, model, dict, final=True)


METHOD = Method(
    summary="the candidates that most queries chose, for everyone",
    config=PopularityConfig,
    data_kind="interactions",
    fit=fit,
    open=lambda _model: Opened(
        histories=lambda rows: torch.ones(rows.n_queries, 1, device=rows.offsets.device)
    ),
    answers=("histories",),
    distributed=True,
)
