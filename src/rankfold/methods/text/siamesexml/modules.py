"""The modules of SiameseXML: what each trains, and what it compares with what.

A module is a stage of epochs. With ``negatives = "pool"`` a batch of documents shares one pool of
candidates in all of them; with ``"hardest"`` it is as in [siamesexml]: module I compares candidates
with the hardest documents of the batch and one that an index finds, III and IV documents with
candidates of their own shortlist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankfold.encoders.bags import Bags, unit
from rankfold.kernels.decoupled_softmax import shared_decoupled_softmax_loss
from rankfold.losses.likelihood import likelihood_loss
from rankfold.methods.text.siamesexml.config import LR, SMALLEST_BATCH, ModulesConfig, SiameseConfig
from rankfold.methods.text.siamesexml.distributed import (
    by_candidate,
    chosen_by_all,
    encoding,
    of_all,
    thinning,
    told,
)
from rankfold.methods.text.siamesexml.mining import Mined, hard_documents, shortlists
from rankfold.methods.text.siamesexml.training_data import Parts
from rankfold.samplers.batch_pool import pool_around
from rankfold.samplers.known_positives import hits, places
from rankfold.training.batches import Batches, QueryBatches, Rows
from rankfold.training.loop import Memory, Nothing, Task, Training
from rankfold.training.replicas import UNDIVIDED, Sides
from rankfold.types import Index, Interactions, Own, Texts

encoder_loss = partial(likelihood_loss, c=0.9, d=1.5)
classifier_loss = partial(likelihood_loss, c=0.75, d=3.0)

GRADIENT_SCALE = 2.0**10  # of refinements: about the largest batch

Name = Literal["encoder", "classifiers", "joint"]


class Stage(NamedTuple):
    """A module of the paper."""

    name: Name
    epochs: int


class Siamese(nn.Module):
    """What is trained: the encoder of both sides, and the candidates' refinements.

    Of several processes each has the refinements of its share of the candidates. These are halves:
    where candidates are many, they and what the optimiser keeps of them are nearly all there is.
    """

    def __init__(self, encoder: nn.Module, n_candidates: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.learning = [one for one in encoder.parameters() if one.requires_grad]
        start = torch.zeros(n_candidates, width, dtype=torch.float16)
        self.refinements = nn.Embedding(n_candidates, width, sparse=True, _weight=start)

    def refined(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """normalise(E(z) + eta): the classifiers of candidates."""
        return unit(vectors + widened(self.refinements(rows)))

    @property
    def sides(self) -> Sides:
        return Sides(divided=(self.refinements,))

    def train_in(self, stage: Stage) -> None:
        """What the stage leaves as it is has no gradients.

        Module III leaves the encoder; but the matrix R of a residual one is trained with the
        refinements, as in [siamesexml].
        """
        for parameter in self.learning:
            parameter.requires_grad_(stage.name != "classifiers")
        self.refinements.requires_grad_(stage.name != "encoder")
        if isinstance(self.encoder, Bags) and self.encoder.mixing is not None:
            self.encoder.mixing.requires_grad_()

    @property
    def encoder_learns(self) -> bool:
        return any(parameter.requires_grad for parameter in self.learning)

    def at_rest(self, work: Callable[[], Tensor]) -> Tensor:
        """What is found with an encoder that is not in training: without dropout, say."""
        self.eval()
        try:
            return work()
        finally:
            self.train()


def widened(halves: Tensor) -> Tensor:
    """Halves as float32, whose gradients are ``GRADIENT_SCALE`` times as large on their way back.

    Those of a mean over a batch would vanish in a half. The optimiser of tables goes by directions,
    and by lengths relative to earlier ones: it does not see the factor.
    """
    found: Tensor = _Widened.apply(halves)  # type: ignore[no-untyped-call]
    return found


class _Widened(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, halves: Tensor) -> Tensor:
        return halves.float()

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> Tensor:
        most = torch.finfo(
            torch.float16
        ).max  # what has no text yet is at 0, where slopes are steep
        return (grads[0] * GRADIENT_SCALE).clamp_(-most, most).half()


def stages_of(config: ModulesConfig) -> list[Stage]:
    """Those with epochs, in the paper's order."""
    every = [
        Stage("encoder", config.encoder_epochs),
        Stage("classifiers", config.classifier_epochs),
        Stage("joint", config.joint_epochs),
    ]
    return [stage for stage in every if stage.epochs > 0]


def training(stage: Stage, config: ModulesConfig) -> Training:
    first = stage.name == "encoder"
    return Training(
        width=config.width,
        epochs=stage.epochs,
        lr=config.lr or LR if first or not config.classifier_lr else config.classifier_lr,
        optimiser="row-adam",
        weight_decay=0.0,
        schedule="linear",
        precision=config.precision,
    )


def batch_size(stage: Stage, config: ModulesConfig) -> int:
    first = stage.name == "encoder"
    size = config.batch_size if first else config.classifier_batch_size or config.batch_size
    return size or SMALLEST_BATCH


def task_of(
    module: Siamese,
    stage: Stage,
    parts: Parts,
    config: SiameseConfig,
    build_index: Callable[[Tensor], Index],
) -> Task:
    """What a stage trains, on what."""
    module.train_in(stage)
    if config.negatives == "pool":
        return pooled(module, stage, parts, config)
    if stage.name == "encoder":
        return against_documents(module, parts, config, build_index)
    return shortlisted(module, stage, parts, config, build_index)


# ---------------------------------------------------------------------------------- one pool


def pooled(module: Siamese, stage: Stage, parts: Parts, config: SiameseConfig) -> Task:
    """Documents against a pool that they share: what they all have, and random candidates."""
    batches = QueryBatches(parts.rows, batch_size(stage, config), parts.comm)
    seen, of_both = thinning(parts, batches, config.thinning), both_sides(module, stage, parts)
    wanted = parts.rows if parts.excluded is None else parts.rows.without(parts.excluded)

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        chosen = chosen_by_all(batch, parts.comm)
        pool = pool_around(chosen, batch.size, parts.shares, config.pool, rng)
        documents, labels = of_both(seen(batch, rng), pool.ids)
        scores = ((documents / config.temperature) @ labels.T).float()
        positive = places(wanted, batch.queries, pool.ids)
        hidden = places(parts.hidden, batch.queries, pool.ids)
        return shared_decoupled_softmax_loss(scores, pool.log_q, positive, hidden)

    return stage_task(module, batches, losses, sides=module.sides)


def both_sides(
    module: Siamese, stage: Stage, parts: Parts
) -> Callable[[Texts, Tensor], tuple[Tensor, Tensor]]:
    """How a stage sees documents, and candidates by their numbers among all.

    Owners encode their candidates, together with the documents: a token that both have is looked up
    once, and has one gradient.
    """
    shard = parts.label_shard

    def vectors(documents: Texts, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows, own = shard.here(ids)
        with torch.set_grad_enabled(module.encoder_learns):
            both: Tensor = module.encoder(documents.join(parts.labels.select(rows)))
        of_documents, labels = both.split([len(documents), len(rows)])
        if stage.name != "encoder":
            labels = module.refined(labels, rows)
        return of_documents, shard.to_all(labels, own)

    return vectors


# ---------------------------------------------------------------------------------- module I


def against_documents(
    module: Siamese, parts: Parts, config: SiameseConfig, build_index: Callable[[Tensor], Index]
) -> Task:
    """Candidates, each with one of its documents, against the hardest documents of the batch.

    All true pairs inside the batch count as such. One more document comes from an index of all of
    them, which is built again every few epochs.
    """
    of_labels, hidden = by_candidate(parts.rows, parts), by_candidate(parts.hidden, parts)
    batches = QueryBatches(of_labels, config.batch_size or SMALLEST_BATCH, parts.comm)
    mine = partial(hard_documents, module.encoder, parts, build_index)
    mined = Mined(partial(module.at_rest, mine), config.refresh * len(batches), parts.idf.device)
    vectors_of = encoding(parts, module.encoder, config.thinning)

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        found = mined.next()[batch.queries]
        own = one_of(of_labels, batch.queries, rng, batch.own)
        labels = module.encoder(parts.labels.select(batch.queries))
        own, more = told(torch.stack([own, found.clamp(min=0)]), batch.own, parts.comm)
        documents, harder = vectors_of(torch.cat([own, more]), rng).split(batch.size)
        if batch.own is not None:
            harder = harder[batch.own.places]
        scores = (labels @ documents.T).float()
        positive = hits(of_labels, batch.queries, own)
        rivals = scores.detach().masked_fill(hits(hidden, batch.queries, own), -torch.inf)
        taken = positive | hardest_of(rivals, config.hardest)
        last = (labels * harder).sum(dim=1, keepdim=True).float()
        return encoder_loss(
            torch.cat([scores, last], dim=1),
            torch.cat([positive, torch.zeros_like(positive[:, :1])], dim=1),
            torch.cat([taken, (found >= 0)[:, None]], dim=1),
        )

    how = {"sides": module.sides, "divided": ("found",)}
    return stage_task(module, batches, losses, mined, **how)


def hardest_of(scores: Tensor, count: int) -> Tensor:
    """True for the ``count`` largest scores of each row, if they are finite; [B, C]."""
    best = scores.topk(min(count, scores.shape[1]), dim=1)
    marks = torch.zeros_like(scores, dtype=torch.bool)
    return marks.scatter_(1, best.indices, best.values.isfinite())


def one_of(
    pairs: Interactions, rows: Tensor, rng: torch.Generator, own: Own | None = None
) -> Tensor:
    """One of the candidates of each of ``rows`` [B], drawn uniformly; none is empty; [B].

    Where the rows are some of a batch alone, draws are for all of it.
    """
    starts = pairs.offsets[rows]
    counts = pairs.offsets[rows + 1] - starts
    size = len(rows) if own is None else own.of
    drawn = torch.rand(size, generator=rng, device=rng.device, dtype=torch.float64)
    drawn = drawn if own is None else drawn[own.places]
    return pairs.candidates[starts + (drawn * counts).long().clamp(max=counts - 1)].long()


# ---------------------------------------------------------------------------------- III and IV


def shortlisted(
    module: Siamese,
    stage: Stage,
    parts: Parts,
    config: SiameseConfig,
    build_index: Callable[[Tensor], Index],
) -> Task:
    """Documents against their positives, their shortlist and random candidates."""
    batches = QueryBatches(parts.rows, batch_size(stage, config), parts.comm)
    seen, of_both = thinning(parts, batches, config.thinning), both_sides(module, stage, parts)

    def scores(batch: Rows, known: Tensor, rng: torch.Generator) -> Tensor:
        documents, labels = of_both(seen(batch, rng), known)
        return documents @ labels.T

    mine = partial(shortlists, module.encoder, parts, config.shortlist, build_index)
    how = {"sides": module.sides}
    return against_shortlists(
        module,
        batches,
        parts,
        config,
        partial(module.at_rest, mine),
        scores,
        classifier_loss,
        **how,
    )


def against_shortlists(
    module: nn.Module,
    batches: QueryBatches,
    parts: Parts,
    config: ModulesConfig,
    mine: Callable[[], Tensor],
    scores_of: Callable[[Rows, Tensor, torch.Generator], Tensor],
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    sides: Sides = UNDIVIDED,
) -> Task:
    """The same for any scores and loss of scores, positives and what is valid, [B, C] each.

    ``mine`` finds the shortlists of all documents with candidates, -1 where there are fewer, and is
    asked once. ``scores_of`` the documents of a batch and candidates [K] are [B, K].
    """
    asking = parts.rows.counts() > 0
    lists = Mined(mine, 2**62, parts.idf.device, asking)
    place = torch.cumsum(asking, 0) - 1  # of a document among those with labels

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        rivals = lists.next()[place[batch.queries]]
        shape = (batch.size, config.random)
        drawn = torch.randint(parts.rows.n_candidates, shape, generator=rng, device=rng.device)
        drawn = drawn if batch.own is None else drawn[batch.own.places]
        own = padded(batch.positives)
        ids = torch.cat([own, rivals.long(), drawn], dim=1)
        known = of_all(ids.clamp(min=0), parts.comm)
        columns = torch.searchsorted(known, ids.clamp(min=0))
        scores = scores_of(batch, known, rng).float().gather(1, columns)
        chosen = hits(parts.rows, batch.queries, known)[rows_of(ids), columns]
        positive = chosen & (torch.arange(ids.shape[1], device=ids.device) < own.shape[1])
        valid = (ids >= 0) & (positive | ~chosen)  # a positive among the random ones counts once
        if parts.excluded is not None:
            valid &= ~hits(parts.excluded, batch.queries, known)[rows_of(ids), columns]
        return loss(scores, positive, valid)

    return stage_task(module, batches, losses, lists, sides=sides, divided=("found",))


def rows_of(ids: Tensor) -> Tensor:
    """The number of each row, to look columns up by; [B, 1]."""
    return torch.arange(len(ids), device=ids.device)[:, None]


def padded(rows: Interactions) -> Tensor:
    """The candidates of each row, -1 after the last; [B, most]."""
    counts = rows.counts()
    most = int(counts.max()) if len(counts) else 0
    found = rows.candidates.new_full((len(counts), most), -1, dtype=torch.int64)
    owner = rows.query_of_pair().long()
    columns = torch.arange(rows.n_pairs, device=owner.device) - rows.offsets[owner]
    found[owner, columns] = rows.candidates.long()
    return found


# ---------------------------------------------------------------------------------- all


def stage_task(
    module: nn.Module,
    batches: Batches,
    losses: Callable[[Rows, torch.Generator], Tensor],
    memory: Memory | None = None,
    **how: Any,
) -> Task:
    """Nothing is exported before the last stage is over."""
    ours = isinstance(getattr(module, "encoder", None), Bags)
    how["draws_elsewhere"] = not ours
    return Task(module, batches, losses, lambda: None, memory or Nothing(), **how)
