"""Methods that learn where a query's good candidates end: a boundary, or margins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from rankfold.errors import UserError
from rankfold.methods.gradient.model import (
    has_tower,
    model_of,
    open_model,
    shard_of,
    sides_of,
    tower_vectors,
    trained_encoder,
    vectors,
)
from rankfold.methods.gradient.sampled import (
    Pools,
    UniformConfig,
    against,
    encode,
    score_pool,
    setting,
    usable,
)
from rankfold.methods.pair_weights import training_rows
from rankfold.samplers import SAMPLERS
from rankfold.training.batches import PairBatches
from rankfold.training.loop import Task, Training, train
from rankfold.training.replicas import Sides
from rankfold.types import (
    Batch,
    Dataset,
    Features,
    Interactions,
    Method,
    Model,
    Opened,
    Pool,
    Run,
    Step,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UibConfig(UniformConfig):
    """A boundary per query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmlConfig(UniformConfig):
    """Distances, with margins per query and per candidate."""

    lr: float = 0.003
    weight_decay: float = 0.0
    candidate_weight: float = 0.1  # w1, of the margin around the chosen candidate
    margin_weight: float = 0.1  # w2, how much margins are to be large

    def __post_init__(self) -> None:
        Training.__post_init__(self)
        if self.similarity != "dot" or self.temperature != 1:
            raise UserError(
                f"sml measures distances: similarity is {self.similarity}, temperature "
                f"{self.temperature:g}",
                hint="leave both out",
            )


def fit_uib(data: Dataset, config: UibConfig, run: Run) -> Iterator[Step]:
    """Choices above the query's own boundary, others below it; [zhuo2022].

    loss = phi(b_x - s_y) + mean over negatives of phi(s_j - b_x), phi = softplus
    """
    rows = training_rows(data, config.weights, run.device)
    module = nn.Module()
    module.encoder = encoder = trained_encoder(data, rows, config, run, candidates="divisible")
    module.boundary = boundary = nn.Embedding(rows.n_queries, 1).to(run.device)
    nn.init.zeros_(boundary.weight)
    sides = sides_of(encoder)
    sampler = SAMPLERS["uniform"](setting(rows, config, run.comm))
    pools = Pools(sampler, shard_of(encoder))

    def losses(batch: Batch, rng: torch.Generator) -> Tensor:
        pool = pools.propose(batch, rng)
        queries, edge = encoder.of_queries(batch.queries), boundary(batch.queries)
        chosen, others = encode(encoder, batch, pool)
        positive = (queries * chosen).sum(dim=1).float()
        scores = score_pool(queries, others).float()
        valid = usable(config.mask, batch, pool, rows)
        return against("uib", positive - edge[:, 0], scores - edge, valid)

    task = Task(
        module=module,
        batches=PairBatches(rows, config.batch_size, config.weights, run.comm),
        losses=losses,
        export=lambda: model_of("uib", config, encoder, data, rows),
        sides=Sides((*sides.divided, boundary), sides.per_candidate),
        met=pools.met,
    )
    return train(task, config, run)


class Balls(nn.Module):
    """Vectors within the unit ball, and a margin for each, between 0 and 1."""

    def __init__(self, data: Dataset, rows: Interactions, config: SmlConfig, run: Run) -> None:
        super().__init__()
        self.encoder = trained_encoder(data, rows, config, run)
        sizes = rows.n_queries, rows.n_candidates
        self.query_margins, self.candidate_margins = (
            nn.Embedding(size, 1, _weight=torch.zeros(size, 1)).to(run.device) for size in sizes
        )

    @property
    def sides(self) -> Sides:
        divided, whole = sides_of(self.encoder)
        return Sides((*divided, self.query_margins), (*whole, self.candidate_margins))

    def of_queries(self, rows: Tensor | None) -> Tensor:
        return within(self.encoder.of_queries(rows))

    def of_candidates(self, rows: Tensor | None) -> Tensor:
        return within(self.encoder.of_candidates(rows))

    def margins(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """m_x and n_y; [B] each."""
        of_queries: Tensor = self.query_margins(batch.queries)[:, 0]
        of_candidates: Tensor = self.candidate_margins(batch.chosen)[:, 0]
        return of_queries.sigmoid(), of_candidates.sigmoid()

    def losses(self, batch: Batch, pool: Pool, valid: Tensor | None, config: SmlConfig) -> Tensor:
        """[d(x,y) - d(x,j) + m_x]_+ + w1 [d(x,y) - d(y,j) + n_y]_+ - w2 (m_x + n_y); [B].

        Means over the negatives j; d is the squared distance. The last term is of the pair, so that
        in the mean over pairs a row's margin counts as often as the row: in the paper, once. The
        hinge loss has a margin of one: with -d for scores and the positive's better by 1 - m, it is
        the first term.
        """
        p, (m, n) = self.of_queries(batch.queries), self.margins(batch)
        q, others = encode(self, batch, pool)
        near = -squares(p - q)
        of_query = against("hinge", near + 1 - m, -squares(p[:, None] - others), valid)
        of_candidate = against("hinge", near + 1 - n, -squares(q[:, None] - others), valid)
        bonus = config.margin_weight * (m + n)
        return of_query + config.candidate_weight * of_candidate - bonus


def within(vectors: Tensor) -> Tensor:
    """Those outside the unit ball, onto its surface."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.clamp(min=1)


def squares(vectors: Tensor) -> Tensor:
    """Squared lengths; [..., D] -> [...]."""
    return (vectors**2).sum(dim=-1)


def fit_sml(data: Dataset, config: SmlConfig, run: Run) -> Iterator[Step]:
    """Metric learning with margins that are learnt; [li2020].

    Departs from the paper: vectors are clipped when they are used rather than after each step,
    margins are sigmoids rather than clipped.
    """
    rows = training_rows(data, config.weights, run.device)
    balls = Balls(data, rows, config, run)
    sampler = SAMPLERS["uniform"](setting(rows, config, run.comm))
    pools = Pools(sampler)

    def losses(batch: Batch, rng: torch.Generator) -> Tensor:
        pool = pools.propose(batch, rng)
        valid = usable(config.mask, batch, pool, rows)
        return balls.losses(batch, pool, valid, config)

    task = Task(
        module=balls,
        batches=PairBatches(rows, config.batch_size, config.weights, run.comm),
        losses=losses,
        export=lambda: exported(config, balls, data, rows),
        sides=balls.sides,
        met=pools.met,
    )
    return train(task, config, run)


def exported(config: SmlConfig, balls: Balls, data: Dataset, rows: Interactions) -> Model:
    """The vectors in the ball, as inner products see them."""
    found = model_of("sml", config, balls.encoder, data, rows)
    return replace(found, tensors={**found.tensors, **as_products(**vectors(balls, rows))})


def open_sml(model: Model) -> Opened:
    return Opened(features=partial(encode_new, model) if has_tower(model) else None)


def encode_new(model: Model, features: Features) -> Tensor:
    """Vectors of candidates that the model never saw; [n, D + 1]."""
    found = within(tower_vectors(model, features))
    return torch.cat([found, -squares(found)[:, None]], dim=1)


def as_products(queries: Tensor, candidates: Tensor) -> dict[str, Tensor]:
    """Vectors whose inner products order candidates as distances do: 2 p.q - |q|^2."""
    ones = torch.ones_like(queries[:, :1])
    return {
        "queries": torch.cat([2 * queries, ones], dim=1),
        "candidates": torch.cat([candidates, -squares(candidates)[:, None]], dim=1),
    }


UIB = Method(
    "each choice above the query's own boundary, random candidates below it",
    UibConfig,
    "interactions",
    fit_uib,
    open=open_model,
    answers=("features",),
    paper="zhuo2022",
    distributed=True,
)
SML = Method(
    "near what was chosen, far from random candidates, by margins that are learnt",
    SmlConfig,
    "interactions",
    fit_sml,
    open=open_sml,
    answers=("features",),
    paper="li2020",
    distributed=True,
)
