"""Methods that compare a chosen candidate with a few others, by gradient descent.

They differ in three parts: where the others come from (a sampler), how their scores are corrected
for that, and the loss. ``sampled`` takes any three; the others are combinations with a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.biased import Biased
from rankfold.encoders.scaled import Scaled
from rankfold.encoders.sharded_table import TableShard
from rankfold.errors import UserError
from rankfold.kernels.single_positive import SINGLE_POSITIVE
from rankfold.losses import LOSSES
from rankfold.methods.gradient.model import (
    Encoding,
    encode_candidates,
    model_of,
    shard_of,
    sides_of,
    trained_encoder,
)
from rankfold.methods.pair_weights import drawn_counts, training_rows
from rankfold.objectives.quadratic import sum_over_ranks
from rankfold.samplers import SAMPLERS, Setting
from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.samplers.known_positives import hits, own
from rankfold.samplers.popularity import Mode
from rankfold.training.batches import PairBatches
from rankfold.training.loop import Task, train
from rankfold.types import (
    Batch,
    Comm,
    Dataset,
    Encoder,
    Interactions,
    Method,
    Pool,
    Run,
    Sampler,
    Step,
)

Mask = Literal["none", "own", "all"]
Resampled = Literal["released", "appendix", "sir"]
Draw = Literal["systematic", "multinomial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(Encoding):
    """What all of them have."""

    mask: Mask = "own"  # negatives left out: the pair's own candidate, or all the query chose


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformConfig(Comparing):
    """Uniform negatives."""

    negatives: int = 10
    weight_decay: float = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig(UniformConfig):
    """Uniform negatives that a whole batch shares."""

    negatives: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class InBatchConfig(Comparing):
    """The batch's candidates are each other's negatives."""

    schedule: Literal["constant", "step", "cosine"] = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedConfig(InBatchConfig):
    """Corrected for how often a candidate is in a batch."""

    popularity: Mode = "count"  # what that is taken to grow with


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampledConfig(CorrectedConfig):
    """Negatives picked from the batch by their scores."""

    mask: Mask = "none"  # as released
    correction: Resampled = "released"
    draw: Draw = "systematic"  # picks at even distances; multinomial: independent, as published


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedConfig(ResampledConfig):
    """Half of them from a cache of earlier picks."""

    cache_share: float = 0.2  # lambda, the cache's share of the loss


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyConfig(Comparing):
    """Any loss on negatives from any sampler."""

    loss: Literal["softmax", "sparsemax", "bpr", "bce", "uib", "hinge", "warp", "rg2", "rgx"] = (
        "softmax"
    )
    sampler: Literal[
        "uniform", "shared", "popularity", "in-batch", "mixed", "streaming", "bir", "xir"
    ] = "in-batch"
    proposed: Literal["none", "negatives", "all"] = "all"  # correction; bir and xir have their own
    correction: Resampled = "released"  # theirs; with sir the loss is shown, not followed
    draw: Draw = "systematic"  # of bir and xir
    negatives: int = 100  # of uniform, shared and popularity
    popularity: Mode = "count"
    cache_share: float = 0.2  # of xir


class Parts(NamedTuple):
    """What makes a method."""

    sampler: str
    loss: str
    proposed: str = "none"  # the correction of a pool that is taken as it is
    bias: bool = False  # whether candidates have one: where scores are odds, not only ranks


class Pools:
    """What a sampler proposes for the rows of this process, and whom the rows of all meet."""

    def __init__(self, sampler: Sampler, shard: TableShard | None = None) -> None:
        self.sampler, self.shard = sampler, shard
        self.last: Tensor | None = None  # candidates of the last batch

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        """The pool of the batch; a row per query for its own rows alone."""
        pool = self.sampler.propose(batch, rng)
        if batch.own is None:
            return pool
        others = [] if pool.holds_batch else [batch.candidates]
        self.last = torch.cat([*others, pool.ids.flatten()]).unique()
        if self.shard is not None:
            self.shard.met = self.last
        return pool.cut(batch.own)

    def met(self) -> Tensor | None:
        """The candidates of the last batch, ascending; [n], None where all rows are here."""
        return self.last


class Comparison:
    """A batch's losses, by the parts of a method."""

    def __init__(self, encoder: Encoder, sampler: Sampler, parts: Parts, config: Any) -> None:
        self.encoder, self.sampler, self.parts = encoder, sampler, parts
        self.pools = Pools(sampler, shard_of(encoder))
        self.mask: Mask = config.mask
        self.correction: str | None = getattr(config, "correction", None)

    def losses(self, batch: Batch, rng: torch.Generator, pairs: Interactions) -> Tensor:
        """Of each pair against its pool; [B]."""
        pool = self.pools.propose(batch, rng)
        queries = self.encoder.of_queries(batch.queries)
        chosen, others = encode(self.encoder, batch, pool)
        positive = (queries * chosen).sum(dim=1).float()
        scores = score_pool(queries, others).float()  # what comes now needs its digits
        valid = usable(self.mask, batch, pool, pairs)
        drawn = self.sampler.resample(scores.detach(), pool, valid, rng)
        self.sampler.observe(batch, pool, drawn)
        if drawn is None:
            positive, scores = CORRECTIONS[self.parts.proposed](positive, scores, pool)
            return against(self.parts.loss, positive, scores, valid)
        assert self.correction is not None
        total = torch.zeros_like(positive)
        parts = scores.split([group.times.shape[1] for group in drawn.groups], dim=1)
        for group, part in zip(drawn.groups, parts, strict=True):
            corrected = RESAMPLED[self.correction](part, group.weights, drawn.draws)
            value = against(self.parts.loss, positive, corrected, group.times)
            if self.correction == "sir":  # the gradient is another's, whose value says nothing
                line = against("expected", positive, corrected, group.times)
                value = line + (value - line).detach()
            total = total + group.share * value
        return total


def encode(encoder: Encoder, batch: Batch, pool: Pool) -> tuple[Tensor, Tensor]:
    """Vectors of what is chosen [B, D] and of the pool, [C, D] or [B, C, D]; each once."""
    size = len(batch.queries)
    if pool.holds_batch:
        found = encoder.of_candidates(pool.ids)
        return found[:size] if batch.own is None else found[batch.own.places], found
    if pool.ids.dim() == 1:
        found = encoder.of_candidates(torch.cat([batch.chosen, pool.ids]))
        return found[:size], found[size:]
    found = encoder.of_candidates(torch.cat([batch.chosen[:, None], pool.ids], dim=1))
    return found[:, 0], found[:, 1:]


def score_pool(queries: Tensor, candidates: Tensor) -> Tensor:
    """Inner products of queries [B, D] with the vectors of a pool, [C, D] or [B, C, D]; [B, C]."""
    if candidates.dim() == 2:
        return queries @ candidates.T
    return torch.bmm(candidates, queries[:, :, None])[:, :, 0]


def usable(mask: Mask, batch: Batch, pool: Pool, pairs: Interactions) -> Tensor | None:
    """Which of the pool a query may be compared with; [B, C], None: all."""
    if mask == "own":
        return ~own(batch, pool.ids)
    if mask == "all":
        return ~hits(pairs, batch.queries, pool.ids)
    return None


def against(loss: str, positive: Tensor, scores: Tensor, times: Tensor | None) -> Tensor:
    """The loss of one positive [B] among others [B, C], each as often as ``times`` [B, C] says.

    Without ``times``, once.
    """
    if times is None:
        times = torch.ones_like(scores, dtype=torch.bool)
    if loss in SINGLE_POSITIVE:
        return SINGLE_POSITIVE[loss](positive, scores, times)
    everyone = torch.cat([positive[:, None], scores], dim=1)
    grades = torch.zeros_like(everyone)
    grades[:, 0] = 1
    valid = torch.cat([torch.ones_like(times[:, :1]), times], dim=1) > 0
    return LOSSES[loss](everyone, grades, valid)


def fit(name: str, parts: Parts, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder on the pairs."""
    rows = training_rows(data, config.weights, run.device)
    encoder: Scaled | Biased = trained_encoder(data, rows, config, run, candidates="divisible")
    if parts.bias:
        encoder = Biased(encoder, odds(rows, config.negatives, run.comm)).to(run.device)
    sampler = SAMPLERS[parts.sampler](setting(rows, config, run.comm))
    comparison = Comparison(encoder, sampler, parts, config)
    task = Task(
        module=encoder,
        batches=PairBatches(rows, config.batch_size, config.weights, run.comm),
        losses=lambda batch, rng: comparison.losses(batch, rng, rows),
        export=lambda: model_of(name, config, encoder, data, rows),
        memory=sampler,
        sides=sides_of(encoder),
        met=comparison.pools.met,
    )
    return train(task, config, run)


def setting(rows: Interactions, config: Any, comm: Comm = SINGLE_PROCESS) -> Setting:
    """What a sampler is told: of the settings, those that there are."""
    names = ("negatives", "popularity", "cache_share", "draw")
    given = {name: getattr(config, name) for name in names if hasattr(config, name)}
    batch_size = min(config.batch_size, max(1, int(sum_over_ranks(rows.n_pairs, comm))))
    return Setting(drawn_counts(rows, comm), batch_size, **given, comm=comm)


def odds(rows: Interactions, negatives: int, comm: Comm = SINGLE_PROCESS) -> Tensor:
    """The log of how many times as often a candidate is a positive as it is a negative; [N]."""
    counts = drawn_counts(rows, comm).clamp(min=0.5)
    n_pairs = max(1, int(sum_over_ranks(rows.n_pairs, comm)))
    return (counts * (rows.n_candidates / (n_pairs * negatives))).log().float()


def method(
    name: str, parts: Parts | None, config: type[Comparing], summary: str, paper: str = ""
) -> Method:
    """A method from its parts; without any, they are settings."""

    def start(data: Dataset, settings: Any, run: Run) -> Iterator[Step]:
        chosen = parts or chosen_parts(settings)
        return fit(name, chosen, data, settings, run)

    return Method(
        summary,
        config,
        "interactions",
        start,
        encode_candidates=encode_candidates,
        paper=paper,
        distributed=True,
    )


def chosen_parts(config: AnyConfig) -> Parts:
    """The parts that the settings name; a UserError where two do not go together."""
    if config.sampler in ("bir", "xir") and config.loss not in SINGLE_POSITIVE:
        raise UserError(
            f"the loss {config.loss} does not know repeated negatives, as {config.sampler} picks",
            hint=f"take another sampler, or one of {', '.join(sorted(SINGLE_POSITIVE))}",
        )
    return Parts(config.sampler, config.loss, config.proposed)


SAMPLED = {
    name: method(name, *rest)
    for name, *rest in (
        (
            "bpr",
            Parts("uniform", "bpr"),
            UniformConfig,
            "each choice above a few random candidates, pair by pair",
            "rendle2009",
        ),
        (
            "bce",
            Parts("uniform", "bce", bias=True),
            UniformConfig,
            "choices are ones, a few random candidates zeros: logistic regression",
        ),
        (
            "sampled-softmax",
            Parts("shared", "softmax", "negatives"),
            SharedConfig,
            "softmax among random candidates, corrected for how they were drawn",
        ),
        (
            "ssl",
            Parts("in-batch", "softmax"),
            InBatchConfig,
            "softmax among the batch's candidates, uncorrected",
            "chen2022",
        ),
        (
            "ssl-pop",
            Parts("in-batch", "softmax", "all"),
            CorrectedConfig,
            "softmax among the batch's candidates, corrected for popularity",
            "chen2022",
        ),
        (
            "mns",
            Parts("mixed", "softmax", "all"),
            CorrectedConfig,
            "softmax among the batch's candidates and as many random ones",
            "yang2020",
        ),
        (
            "g-tower",
            Parts("streaming", "softmax", "all"),
            InBatchConfig,
            "softmax among the batch's candidates, popularity learnt on the way",
            "yi2019",
        ),
        (
            "bir",
            Parts("bir", "softmax"),
            ResampledConfig,
            "softmax among candidates picked from the batch by score",
            "chen2022",
        ),
        (
            "xir",
            Parts("xir", "softmax"),
            CachedConfig,
            "softmax among candidates picked from the batch and from a cache of earlier picks",
            "chen2022",
        ),
        ("sampled", None, AnyConfig, "any loss on negatives from any sampler"),
    )
}
