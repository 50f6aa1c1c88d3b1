"""UIB: each choice above the query's own boundary, random candidates below it; [zhuo2022]."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rankfold.config import setting
from rankfold.kernels.single_positive import uib
from rankfold.methods.gradient import comparison, model
from rankfold.methods.pair_weights import training_rows
from rankfold.samplers import SAMPLERS
from rankfold.training.gradient_sync import Sides
from rankfold.training.loop import Task, train
from rankfold.types import Batch, Dataset, Run, Step


class UibConfig(comparison.UniformConfig):
    margin: float | None = setting(
        None, at_least=0, help="distance to the boundary that costs nothing; none: logistic loss"
    )


def fit(data: Dataset, config: UibConfig, run: Run) -> Iterator[Step]:
    """Learn a boundary b_x per query, with the vectors; [zhuo2022].

    loss = phi(b_x - s_y) + mean over negatives of phi(s_j - b_x)

    with phi(z) = log(1 + exp z), or [z + margin]_+ with a margin.
    """
    rows = training_rows(data, config.weights, run.device)
    config = config.for_data(rows, run.comm)
    assert config.batch_size is not None
    module = nn.Module()
    module.encoder = encoder = model.trained_encoder(data, rows, config, run, divisible=True)
    module.boundary = boundary = nn.Embedding(rows.n_queries, 1).to(run.device)
    nn.init.zeros_(boundary.weight)
    sides = model.sides_of(encoder)
    sampler = SAMPLERS["uniform"](comparison.sampler_context(rows, config, run.comm))
    pools = comparison.Pools(sampler, model.shard_of(encoder))

    def losses(batch: Batch, rng: torch.Generator) -> Tensor:
        pool = pools.propose(batch, rng)
        queries, edge = encoder.encode_batch(batch), boundary(batch.queries)
        chosen, others = comparison.encode(encoder, batch, pool)
        positive = (queries * chosen).sum(dim=1).float()
        scores = comparison.score_pool(queries, others).float()
        valid = comparison.usable(config.mask, batch, pool, rows)
        times = torch.ones_like(scores, dtype=torch.bool) if valid is None else valid
        return uib(positive - edge[:, 0], scores - edge, times, config.margin)

    task = Task(
        module=module,
        batches=model.pair_batches(encoder, rows, config, run.comm),
        losses=losses,
        export=lambda: model.model_of("uib", config, encoder, data, rows),
        sides=Sides((*sides.divided, boundary), sides.per_candidate),
        batch_candidates=pools.batch_candidates,
        gradient_scale=model.gradient_scale(config),
        draws_elsewhere=model.has_dropout(encoder),
    )
    return train(task, config, run)


METHOD = model.gradient_method(
    "each choice above the query's own boundary, random candidates below it",
    UibConfig,
    fit,
    paper="zhuo2022",
    space=comparison.UNIFORM_SPACE,
    paper_space=comparison.PAPER_SPACE,
)
