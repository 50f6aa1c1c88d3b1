"""Compare a chosen candidate with sampled ones, by gradient descent: what such methods share.

They differ in three parts: the sampler, the correction of its scores, and the loss. A method is a
named combination; ``sampled`` takes any.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

from rankfold.config import check, setting
from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks
from rankfold.encoders.sharded_table import TableShard
from rankfold.encoders.tables import Biased, Scaled
from rankfold.errors import UserError
from rankfold.kernels.single_positive import SINGLE_POSITIVE
from rankfold.losses import LOSSES
from rankfold.methods.gradient import model
from rankfold.methods.pair_weights import drawn_counts, training_rows
from rankfold.samplers import SAMPLERS, SamplerContext
from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.samplers.known_positives import hits, own
from rankfold.training.loop import Task, train
from rankfold.types import (
    Batch,
    Choices,
    Comm,
    Dataset,
    Drawn,
    Encoder,
    Interactions,
    Method,
    Pool,
    Range,
    Run,
    Sampler,
    Space,
    Step,
)

_MEASURED_BATCHES = 4  # of an epoch, for the share of accidental hits
Mask = Literal["none", "own", "all"]
SPACE: Space = {"lr": Range(0.001, 0.1, log=True), "weight_decay": Range(1e-7, 1e-3, log=True)}
UNIFORM_SPACE: Space = {**SPACE, "negatives": Range(3, 50, log=True, whole=True)}
PAPER_SPACE: Space = {  # [rg2], appendix B.3: 12 points
    "lr": Choices((0.1, 0.01, 0.001)),
    "weight_decay": Choices((0.0, 1e-6, 1e-5, 1e-4)),
}


class ComparisonConfig(model.EncoderConfig):
    """Settings of every method that compares a chosen candidate with sampled ones."""

    mask: Mask = setting("own", help="negatives to skip: the pair's candidate, or all chosen ones")
    table: Literal["float32", "float16"] = setting(
        "float32", help="numbers of vectors, in training and in the model; float16 halves memory"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.table == "float32":
            return
        fits = {"encoder": ("tables",), "optimiser": ("auto", "row-adam"), "clip": (None,)}
        for name, values in fits.items():
            if getattr(self, name) not in values:
                raise UserError(
                    f"table=float16 needs {name}={values[-1]}, got {getattr(self, name)}".lower(),
                    hint=f"leave {name} or table out",
                )

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        settled = super().for_data(rows, comm)
        if self.table == "float16":
            return replace(settled, optimiser="row-adam")
        return settled


class UniformConfig(ComparisonConfig):
    """Settings of the methods with uniform negatives."""

    negatives: int = setting(10, at_least=1, help="random candidates to compare a pair with")
    weight_decay: float | None = setting(
        None, at_least=0, help="weight decay; none: by the noise and the size of the data"
    )


class Combination(NamedTuple):
    """The parts that make a method."""

    sampler: str
    loss: str
    proposed: str = "none"  # the correction of a pool that is not resampled
    bias: bool = False  # whether candidates have one: where scores are odds, not only ranks


class Pools:
    """The pools of a sampler for the rows of this process, and the candidates of all processes."""

    def __init__(self, sampler: Sampler, shard: TableShard | None = None) -> None:
        self.sampler, self.shard = sampler, shard
        self.last: Tensor | None = None  # candidates of the last batch

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        """The pool of the batch. Where it has a row per query: of this process's rows."""
        pool = self.sampler.propose(batch, rng)
        if batch.own is None:
            return pool
        others = [] if pool.holds_batch else [batch.candidates]
        self.last = torch.cat([*others, pool.ids.flatten()]).unique()
        if self.shard is not None:
            self.shard.batch_candidates = self.last
        return pool.cut(batch.own)

    def batch_candidates(self) -> Tensor | None:
        """The candidates of the last batch, ascending; [n], None where all rows are here."""
        return self.last


class Comparison:
    """The losses of a batch, by the parts of a method."""

    def __init__(self, encoder: Encoder, sampler: Sampler, parts: Combination, config: Any) -> None:
        self.encoder, self.sampler, self.parts = encoder, sampler, parts
        self.pools = Pools(sampler, model.shard_of(encoder))
        self.mask: Mask = config.mask
        self.correction: str | None = getattr(config, "correction", None)
        self.hits: list[Tensor] = []  # of the first batches of an epoch

    def losses(self, batch: Batch, rng: torch.Generator, pairs: Interactions) -> Tensor:
        """The loss of each pair against its pool; [B]."""
        pool = self.pools.propose(batch, rng)
        queries = self.encoder.encode_batch(batch)
        chosen, others = encode(self.encoder, batch, pool)
        positive = (queries * chosen).sum(dim=1).float()
        scores = score_pool(queries, others).float()  # corrections and losses need the precision
        valid = usable(self.mask, batch, pool, pairs)
        drawn = self.sampler.resample(scores.detach(), pool, valid, rng)
        if len(self.hits) < _MEASURED_BATCHES:
            self.hits.append(share_of_hits(batch, pool, pairs, drawn))
        self.sampler.observe(batch, pool, drawn)
        if drawn is None:
            positive, scores = CORRECTIONS[self.parts.proposed](positive, scores, pool)
            return against(self.parts.loss, positive, scores, valid)
        self.check_repeats()
        assert self.correction is not None
        total = torch.zeros_like(positive)
        parts = scores.split([group.times.shape[1] for group in drawn.groups], dim=1)
        for group, part in zip(drawn.groups, parts, strict=True):
            corrected = RESAMPLED[self.correction](part, group.weights, drawn.draws)
            value = against(self.parts.loss, positive, corrected, group.times)
            if self.correction == "sir":  # report the loss, follow the expected loss
                line = against("expected", positive, corrected, group.times)
                value = line + (value - line).detach()
            total = total + group.share * value
        return total

    def measure(self) -> dict[str, float]:
        """The share of accidental hits since the last call."""
        measured, self.hits = self.hits, []
        return {"hits": float(torch.stack(measured).mean())} if measured else {}

    def check_repeats(self) -> None:
        """A UserError if the loss cannot count a negative several times, as resamplers need."""
        sampler, loss = self.parts.sampler, self.parts.loss
        if loss not in SINGLE_POSITIVE:
            raise UserError(
                f"sampler {sampler} repeats negatives, which loss {loss} does not support",
                hint=f"use another sampler, or one of {', '.join(sorted(SINGLE_POSITIVE))}",
            )


def share_of_hits(batch: Batch, pool: Pool, pairs: Interactions, drawn: Drawn | None) -> Tensor:
    """The share of a pool, or of the picks from it, that the query chose: accidental hits.

    They are counted whether or not ``mask`` skips them.
    """
    chosen = hits(pairs, batch.queries, pool.ids)
    if drawn is None:
        return chosen.float().mean()
    times = torch.cat([group.times * group.share for group in drawn.groups], dim=1)
    return (times * chosen).sum() / times.sum().clamp(min=1e-9)


def encode(encoder: Encoder, batch: Batch, pool: Pool) -> tuple[Tensor, Tensor]:
    """Vectors of the chosen candidates [B, D] and of the pool, [C, D] or [B, C, D].

    Each candidate is encoded once.
    """
    size = len(batch.queries)
    if pool.holds_batch:
        vectors = encoder.encode_candidates(pool.ids)
        return vectors[:size] if batch.own is None else vectors[batch.own.places], vectors
    if pool.ids.dim() == 1:
        vectors = encoder.encode_candidates(torch.cat([batch.chosen, pool.ids]))
        return vectors[:size], vectors[size:]
    vectors = encoder.encode_candidates(torch.cat([batch.chosen[:, None], pool.ids], dim=1))
    return vectors[:, 0], vectors[:, 1:]


def score_pool(queries: Tensor, candidates: Tensor) -> Tensor:
    """Inner products of queries [B, D] with the vectors of a pool, [C, D] or [B, C, D]; [B, C]."""
    if candidates.dim() == 2:
        return queries @ candidates.T
    if candidates.is_cpu:  # small products in a batch take twice the time
        scores: Tensor = torch.linalg.vecdot(queries[:, None], candidates)
        return scores
    return torch.bmm(candidates, queries[:, :, None])[:, :, 0]


def usable(mask: Mask, batch: Batch, pool: Pool, pairs: Interactions) -> Tensor | None:
    """The candidates of the pool that a query may be compared with; [B, C], None: all.

    A batch of whole queries has many of a query's choices: all are masked.
    """
    if mask == "all" or batch.sequences is not None:
        return ~hits(pairs, batch.queries, pool.ids)
    if mask == "own":
        return ~own(batch, pool.ids)
    return None


def against(loss: str, positive: Tensor, scores: Tensor, times: Tensor | None) -> Tensor:
    """The loss of one positive [B] among others [B, C].

    ``times`` [B, C] says how often each of the others counts; None: once.
    """
    if times is None:
        times = torch.ones_like(scores, dtype=torch.bool)
    if loss in SINGLE_POSITIVE:
        return SINGLE_POSITIVE[loss](positive, scores, times)
    pool = torch.cat([positive[:, None], scores], dim=1)
    grades = torch.zeros_like(pool)
    grades[:, 0] = 1
    valid = torch.cat([torch.ones_like(times[:, :1]), times], dim=1) > 0
    return LOSSES[loss](pool, grades, valid)


def fit(name: str, parts: Combination, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder on the pairs."""
    rows = training_rows(data, config.weights, run.device)
    config = config.for_data(rows, run.comm)
    encoder: Scaled | Biased = model.trained_encoder(data, rows, config, run, divisible=True)
    if parts.bias:
        encoder = Biased(encoder, odds(rows, config.negatives, run.comm)).to(run.device)
    sampler = SAMPLERS[parts.sampler](sampler_context(rows, config, run.comm))
    comparison = Comparison(encoder, sampler, parts, config)
    task = Task(
        module=encoder,
        batches=model.pair_batches(encoder, rows, config, run.comm),
        losses=lambda batch, rng: comparison.losses(batch, rng, rows),
        export=lambda: model.model_of(name, config, encoder, data, rows),
        memory=sampler,
        sides=model.sides_of(encoder),
        batch_candidates=comparison.pools.batch_candidates,
        gradient_scale=model.gradient_scale(config),
        draws_elsewhere=model.has_dropout(encoder),
        measure=comparison.measure,
    )
    return train(task, config, run)


def sampler_context(rows: Interactions, config: Any, comm: Comm = SINGLE_PROCESS) -> SamplerContext:
    """The arguments of a sampler: those that the method has as settings, defaults for the rest."""
    sizes = ("negatives", "draws", "cache_size", "hash_size")
    names = (*sizes, "popularity", "cache_share", "draw", "rate")
    given = {name: getattr(config, name) for name in names if hasattr(config, name)}
    config = config.for_data(rows, comm)
    batch_size = min(config.batch_size, max(1, count_over_ranks(rows.n_pairs, comm)))
    return SamplerContext(drawn_counts(rows, comm), batch_size, **given, comm=comm)


def odds(rows: Interactions, negatives: int, comm: Comm = SINGLE_PROCESS) -> Tensor:
    """log(times a candidate is a positive / times it is a negative), on average; [N]."""
    counts = drawn_counts(rows, comm).clamp(min=0.5)
    n_pairs = max(1, count_over_ranks(rows.n_pairs, comm))
    return (counts * (rows.n_candidates / (n_pairs * negatives))).log().float()


def method(
    name: str,
    combination: Combination | Callable[[Any], Combination],
    config: type[ComparisonConfig],
    summary: str,
    **declared: Any,
) -> Method:
    """A method from its parts, or from a function that reads them from the settings.

    ``declared``: further fields of ``Method``.
    """

    def start(data: Dataset, settings: Any, run: Run) -> Iterator[Step]:
        parts = combination if isinstance(combination, Combination) else combination(settings)
        return fit(name, parts, data, settings, run)

    return model.gradient_method(summary, config, start, **{"space": SPACE, **declared})
