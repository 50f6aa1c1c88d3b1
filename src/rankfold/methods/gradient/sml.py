"""SML: metric learning with a learnt margin per query and per candidate; [li2020]."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from rankfold.config import check, setting
from rankfold.errors import UserError
from rankfold.methods.gradient import comparison
from rankfold.methods.gradient import model as base
from rankfold.methods.pair_weights import training_rows
from rankfold.samplers import SAMPLERS
from rankfold.training.batches import PairBatches
from rankfold.training.gradient_sync import Sides
from rankfold.training.loop import Task, train
from rankfold.types import (
    Batch,
    Dataset,
    Features,
    Interactions,
    Model,
    Pool,
    Range,
    Run,
    Side,
    Step,
)


class SmlConfig(comparison.UniformConfig):
    lr: float = 0.003
    weight_decay: float = 0.0
    candidate_weight: float = setting(0.1, at_least=0, help="weight of the candidate's margin (w1)")
    margin_weight: float = setting(0.1, at_least=0, help="reward for large margins (w2)")

    def __post_init__(self) -> None:
        check(self)
        if self.table != "float32":
            raise UserError(
                "sml keeps its vectors in the unit ball: it takes no table=float16",
                hint="leave table out, or fit bpr",
            )
        if self.encoder == "history":
            raise UserError(
                "sml has a margin for each query: it takes no encoder=history",
                hint="set encoder=tables or towers, or fit bpr",
            )
        if self.similarity != "dot" or self.temperature != 1:
            raise UserError(
                f"sml ranks by distance: `similarity` must be dot and `temperature` 1, got "
                f"{self.similarity} and {self.temperature:g}",
                hint="leave both out",
            )


class UnitBall(nn.Module):
    """Vectors within the unit ball, and a margin for each, between 0 and 1."""

    def __init__(self, data: Dataset, rows: Interactions, config: SmlConfig, run: Run) -> None:
        super().__init__()
        self.encoder = base.trained_encoder(data, rows, config, run)
        sizes = rows.n_queries, rows.n_candidates
        self.query_margins, self.candidate_margins = (
            nn.Embedding(size, 1, _weight=torch.zeros(size, 1)).to(run.device) for size in sizes
        )

    @property
    def sides(self) -> Sides:
        divided, per_candidate = base.sides_of(self.encoder)
        return Sides((*divided, self.query_margins), (*per_candidate, self.candidate_margins))

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        return within(self.encoder.encode_queries(rows))

    def encode_batch(self, batch: Batch) -> Tensor:
        return self.encode_queries(batch.queries)

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        return within(self.encoder.encode_candidates(rows))

    def margins(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """m_x and n_y; [B] each."""
        of_queries: Tensor = self.query_margins(batch.queries)[:, 0]
        of_candidates: Tensor = self.candidate_margins(batch.chosen)[:, 0]
        return of_queries.sigmoid(), of_candidates.sigmoid()

    def losses(self, batch: Batch, pool: Pool, valid: Tensor | None, config: SmlConfig) -> Tensor:
        """[d(x,y) - d(x,j) + m_x]_+ + w1 [d(x,y) - d(y,j) + n_y]_+ - w2 (m_x + n_y); [B].

        Means over the negatives j; d is the squared distance. The hinge loss has a margin of one:
        with scores -d, and 1 - m added to the positive's, it is the first term.

        Departs from the paper: the last term belongs to the pair, so the margin of a row counts
        once per pair of the row, not once.
        """
        p, (m, n) = self.encode_queries(batch.queries), self.margins(batch)
        q, others = comparison.encode(self, batch, pool)
        near = -_squares(p - q)
        of_query = comparison.against("hinge", near + 1 - m, -_squares(p[:, None] - others), valid)
        of_candidate = comparison.against(
            "hinge", near + 1 - n, -_squares(q[:, None] - others), valid
        )
        bonus = config.margin_weight * (m + n)
        return of_query + config.candidate_weight * of_candidate - bonus


def within(vectors: Tensor) -> Tensor:
    """The vectors; those outside the unit ball are moved onto its surface."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / lengths.clamp(min=1)


def _squares(vectors: Tensor) -> Tensor:
    """Squared lengths; [..., D] -> [...]."""
    return (vectors**2).sum(dim=-1)


def fit(data: Dataset, config: SmlConfig, run: Run) -> Iterator[Step]:
    """Train vectors and margins together; [li2020].

    Departs from the paper: vectors are clipped when they are used, not after each step. Margins are
    sigmoids, not clipped.
    """
    rows = training_rows(data, config.weights, run.device)
    config = config.for_data(rows, run.comm)
    assert config.batch_size is not None
    ball = UnitBall(data, rows, config, run)
    sampler = SAMPLERS["uniform"](comparison.sampler_context(rows, config, run.comm))
    pools = comparison.Pools(sampler)

    def losses(batch: Batch, rng: torch.Generator) -> Tensor:
        pool = pools.propose(batch, rng)
        valid = comparison.usable(config.mask, batch, pool, rows)
        return ball.losses(batch, pool, valid, config)

    def export() -> Model:
        """The model whose inner products order candidates as distances in the ball do."""
        model = base.model_of("sml", config, ball.encoder, data, rows)
        return replace(model, tensors={**model.tensors, **as_products(**base.vectors(ball, rows))})

    task = Task(
        module=ball,
        batches=PairBatches(rows, config.batch_size, config.weights, run.comm),
        losses=losses,
        export=export,
        sides=ball.sides,
        batch_candidates=pools.batch_candidates,
    )
    return train(task, config, run)


def _encode_new(model: Model, features: Features, side: Side) -> Tensor:
    """Vectors of rows that the model never saw; [n, D + 1]."""
    inside = within(base.tower_vectors(model, features, side))
    return as_products(inside, inside)["queries" if side == "query" else "candidates"]


def as_products(queries: Tensor, candidates: Tensor) -> dict[str, Tensor]:
    """Vectors whose inner products order candidates as distances do: 2 p.q - |q|^2."""
    ones = torch.ones_like(queries[:, :1])
    return {
        "queries": torch.cat([2 * queries, ones], dim=1),
        "candidates": torch.cat([candidates, -_squares(candidates)[:, None]], dim=1),
    }


METHOD = base.gradient_method(
    "near what was chosen, far from random candidates, by margins that are learnt",
    SmlConfig,
    fit,
    open=partial(base.open_model, encode=_encode_new),
    paper="li2020",
    space={
        "lr": Range(0.0003, 0.03, log=True),
        "negatives": Range(3, 50, log=True, whole=True),
        "candidate_weight": Range(0.01, 1.0, log=True),
        "margin_weight": Range(0.01, 1.0, log=True),
    },
    paper_space=comparison.PAPER_SPACE,
)
