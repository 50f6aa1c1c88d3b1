"""The modules of SiameseXML: what each trains, and what it compares with what.

A module is a stage of epochs. With ``negatives = "pool"`` a batch of documents shares one pool of
candidates in all of them; with ``"hardest"`` it is as in [siamesexml]: module I compares candidates
with the hardest documents of the batch and one that an index finds, III and IV documents with
candidates of their own shortlist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from rankfold.encoders.bags import Bags, thin, unit
from rankfold.encoders.start_vectors import Given
from rankfold.errors import UserError
from rankfold.losses.apart import apart_loss
from rankfold.losses.likelihood import likelihood_loss
from rankfold.samplers.hits import hits
from rankfold.samplers.pooled import shared_pool
from rankfold.training.batches import Batches, QueryBatches, Rows
from rankfold.training.loop import Memory, Nothing, Task, Training
from rankfold.types import Index, Interactions, Texts

ENCODED = 2**14  # texts at a time
encoder_loss = partial(likelihood_loss, c=0.9, d=1.5)
classifier_loss = partial(likelihood_loss, c=0.75, d=3.0)

SMALLEST_BATCH, LARGEST_BATCH = 256, 1024  # documents
LR = 0.005  # for the smallest batch

Name = Literal["encoder", "classifiers", "joint"]
SIZES = ("width", "pairs_from", "batch_size", "classifier_batch_size", "pool", "members")
PARTS = ("classifier_share", "centroid_weight", "popularity_weight")
COUNTS = ("encoder_epochs", "classifier_epochs", "joint_epochs", "random", "neighbours")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesConfig:
    """What all of the family have."""

    width: int = 256
    pairs_from: int | None = 5  # adjacent tokens are one more if they occur so often; None: never
    vectors: str | None = None  # a file of word vectors for tokens to start at, as of fastText
    encoder_epochs: int = 1  # module I: the encoder alone
    classifier_epochs: int = 0  # module III: the refinements, with the encoder as it is
    joint_epochs: int = 4  # module IV: both
    batch_size: int | None = None  # None: 256 to 1,024, by the number of documents
    lr: float | None = None  # falls to 0 over a module; None: grows with the root of the batch
    classifier_batch_size: int | None = None  # of modules III and IV; None: the same
    classifier_lr: float | None = None  # likewise
    hardest: int = 4  # without a pool, module I: documents of the batch for each candidate
    shortlist: int = 500  # likewise, modules III and IV: candidates for each document
    random: int = 50  # likewise: candidates beside the shortlist
    members: int = 1  # models that differ in their seeds, whose scores are averaged
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: on CUDA alone

    def __post_init__(self) -> None:
        for name in (*SIZES, "hardest", "refresh", "shortlist"):
            given = getattr(self, name, None)
            if given is not None and given < 1:
                raise UserError(f"{name} is {given}", hint="it is at least 1")
        for name in COUNTS:
            if getattr(self, name, 0) < 0:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is 0 or more")
        for name in ("lr", "classifier_lr", "temperature"):
            given = getattr(self, name, None)
            if given is not None and not 0 < given < float("inf"):
                raise UserError(f"{name} is {given}", hint="it is more than 0")
        for name in (*PARTS, "thinning", "beta"):
            given = getattr(self, name, None)
            if given is not None and not 0 <= given <= 1:
                raise UserError(f"{name} is {given}", hint="it lies between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiameseConfig(ModulesConfig):
    """What is best within a few minutes: one pool of candidates per batch of documents."""

    thinning: float = 0.1  # the share of a document's tokens that a step does not see
    negatives: Literal["pool", "hardest"] = "pool"
    temperature: float = 0.06  # pool: cosines are divided by it
    pool: int = 2000  # pool: candidates that a batch is compared with, about
    refresh: int = 5  # without a pool, module I: epochs between two searches for harder documents
    residual: bool = False  # the encoder of the paper rather than the plain one
    classifier_share: float | None = None  # of the refined vector in the mix; None: on validation
    centroid_weight: float | None = None  # of the mean of the documents; likewise
    popularity_weight: float | None = None  # of log(1 + documents of a candidate); likewise


C = TypeVar("C", bound=ModulesConfig)


class Stage(NamedTuple):
    """A module of the paper."""

    name: Name
    epochs: int


class Parts(NamedTuple):
    """The data as training sees it, on its device."""

    documents: Texts  # weighed bags
    labels: Texts  # likewise
    pairs: Tensor  # [P], adjacent tokens that count as one more
    idf: Tensor  # [V + P]
    rows: Interactions  # train
    excluded: Interactions | None
    hidden: Interactions  # train, and what is excluded: no negatives
    shares: Tensor  # [N], of the documents, that have each candidate
    given: Given | None  # token vectors to start at


class Siamese(nn.Module):
    """What is trained: the encoder of both sides, and the candidates' refinements."""

    def __init__(self, encoder: Bags, n_candidates: int) -> None:
        super().__init__()
        width = encoder.tokens.embedding_dim
        self.encoder = encoder
        start = torch.zeros(n_candidates, width)
        self.refinements = nn.Embedding(n_candidates, width, sparse=True, _weight=start)

    def refined(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """normalise(E(z) + eta): the classifiers of candidates."""
        return unit(vectors + self.refinements(rows))


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
        batch_size=batch_size(stage, config),
        lr=config.lr or LR if first or not config.classifier_lr else config.classifier_lr,
        optimiser="row-adam",
        weight_decay=0.0,
        schedule="linear",
        precision=config.precision,
    )


def settled(config: C, n_documents: int) -> C:
    """The settings with what was left open: larger batches and steps where there is more to read.

    A batch is a 256th of the documents, from 256 to 1,024 of them; the rate grows with its root.
    """
    size = config.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, n_documents // 256))
    rate = config.lr or LR * (size / SMALLEST_BATCH) ** 0.5
    return replace(config, batch_size=size, lr=rate)


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
    if config.negatives == "pool":
        return pooled(module, stage, parts, config)
    if stage.name == "encoder":
        return against_documents(module, parts, config, build_index)
    return shortlisted(module, stage, parts, config, build_index)


# ---------------------------------------------------------------------------------- one pool


def pooled(module: Siamese, stage: Stage, parts: Parts, config: SiameseConfig) -> Task:
    """Documents against a pool that they share: what they all have, and random candidates."""

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        pool = shared_pool(batch.positives, parts.shares, config.pool, rng)
        with torch.set_grad_enabled(stage.name != "classifiers"):
            seen = thin(parts.documents.select(batch.queries), config.thinning, rng)
            documents = module.encoder(seen)
            labels = module.encoder(parts.labels.select(pool.ids))
        if stage.name != "encoder":
            labels = module.refined(labels, pool.ids)
        scores = (documents @ labels.T).float() / config.temperature
        positive = hits(parts.rows, batch.queries, pool.ids)
        valid = torch.ones_like(positive)
        if parts.excluded is not None:
            valid = ~hits(parts.excluded, batch.queries, pool.ids)
        return apart_loss(torch.where(positive, scores, scores - pool.log_q), positive, valid)

    return stage_task(module, QueryBatches(parts.rows, batch_size(stage, config)), losses)


# ---------------------------------------------------------------------------------- module I


def against_documents(
    module: Siamese, parts: Parts, config: SiameseConfig, build_index: Callable[[Tensor], Index]
) -> Task:
    """Candidates, each with one of its documents, against the hardest documents of the batch.

    All true pairs inside the batch count as such. One more document comes from an index of all of
    them, which is built again every few epochs.
    """
    of_labels, hidden = parts.rows.transpose(), parts.hidden.transpose()
    batches = QueryBatches(of_labels, config.batch_size or SMALLEST_BATCH)
    mine = partial(hard_documents, module.encoder, parts, build_index)
    mined = Mined(mine, config.refresh * len(batches), parts.idf.device)

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        found = mined.next()[batch.queries]
        own = one_of(of_labels, batch.queries, rng)
        labels = module.encoder(parts.labels.select(batch.queries))
        drawn = thin(
            parts.documents.select(torch.cat([own, found.clamp(min=0)])), config.thinning, rng
        )
        documents, harder = module.encoder(drawn).split(len(own))
        scores = (labels @ documents.T).float()
        positive = hits(of_labels, batch.queries, own)
        rivals = scores.detach().masked_fill(hits(hidden, batch.queries, own), -torch.inf)
        taken = positive | hardest_of(rivals, config.hardest)
        more = (labels * harder).sum(dim=1, keepdim=True).float()
        return encoder_loss(
            torch.cat([scores, more], dim=1),
            torch.cat([positive, torch.zeros_like(positive[:, :1])], dim=1),
            torch.cat([taken, (found >= 0)[:, None]], dim=1),
        )

    return stage_task(module, batches, losses, mined)


def hardest_of(scores: Tensor, count: int) -> Tensor:
    """True for the ``count`` largest scores of each row, if they are finite; [B, C]."""
    best = scores.topk(min(count, scores.shape[1]), dim=1)
    marks = torch.zeros_like(scores, dtype=torch.bool)
    return marks.scatter_(1, best.indices, best.values.isfinite())


def one_of(pairs: Interactions, rows: Tensor, rng: torch.Generator) -> Tensor:
    """One of the candidates of each of ``rows`` [B], drawn uniformly; none is empty; [B]."""
    starts = pairs.offsets[rows]
    counts = pairs.offsets[rows + 1] - starts
    drawn = torch.rand(len(rows), generator=rng, device=rng.device, dtype=torch.float64)
    return pairs.candidates[starts + (drawn * counts).long().clamp(max=counts - 1)].long()


@torch.no_grad()
def hard_documents(encoder: Bags, parts: Parts, build_index: Callable[[Tensor], Index]) -> Tensor:
    """For each candidate the nearest document that it does not belong to, -1: none; [N]."""
    asking = (parts.rows.counts() > 0).nonzero().flatten()
    index = build_index(encoded(encoder, parts.documents.select(asking)))
    own = parts.hidden.select(asking).transpose()
    found = index.search(encoded(encoder, parts.labels), 1, own).ids[:, 0]
    return torch.where(found < 0, -1, asking[found.clamp(min=0)])


class Mined:
    """What was found last, and when to look again."""

    def __init__(self, mine: Callable[[], Tensor], every: int, device: torch.device) -> None:
        self.mine, self.every = mine, every
        self.found, self.steps = torch.zeros(0, dtype=torch.int64, device=device), 0

    def next(self) -> Tensor:
        """For the step to come."""
        if self.steps % self.every == 0:
            self.found = self.mine()
        self.steps += 1
        return self.found

    def state(self) -> dict[str, Tensor]:
        return {"found": self.found, "steps": torch.tensor(self.steps)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.found, self.steps = state["found"].to(self.found.device), int(state["steps"])


# ---------------------------------------------------------------------------------- III and IV


def shortlisted(
    module: Siamese,
    stage: Stage,
    parts: Parts,
    config: SiameseConfig,
    build_index: Callable[[Tensor], Index],
) -> Task:
    """Documents against their positives, their shortlist and random candidates.

    Departs from the paper: in module III its residual matrix R is trained, too. Here the encoder
    stays whole, so that one encoder serves documents and new candidates.
    """

    def scores(queries: Tensor, known: Tensor, rng: torch.Generator) -> Tensor:
        with torch.set_grad_enabled(stage.name == "joint"):
            documents = module.encoder(thin(parts.documents.select(queries), config.thinning, rng))
            labels = module.encoder(parts.labels.select(known))
        found: Tensor = documents @ module.refined(labels, known).T
        return found

    mine = partial(shortlists, module.encoder, parts, config.shortlist, build_index)
    return against_shortlists(module, stage, parts, config, mine, scores, classifier_loss)


def against_shortlists(
    module: nn.Module,
    stage: Stage,
    parts: Parts,
    config: ModulesConfig,
    mine: Callable[[], Tensor],
    scores_of: Callable[[Tensor, Tensor, torch.Generator], Tensor],
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Task:
    """The same for any scores and loss of scores, positives and what is valid, [B, C] each.

    ``mine`` finds the shortlists of all documents with candidates, -1 where there are fewer, and is
    asked once. ``scores_of`` documents [B] and candidates [K] are [B, K].
    """
    lists = Mined(mine, 2**62, parts.idf.device)
    place = torch.cumsum(parts.rows.counts() > 0, 0) - 1  # of a document among those with labels

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        rivals = lists.next()[place[batch.queries]]
        shape = (len(rivals), config.random)
        drawn = torch.randint(parts.rows.n_candidates, shape, generator=rng, device=rng.device)
        own = padded(batch.positives)
        ids = torch.cat([own, rivals.long(), drawn], dim=1)
        known, columns = ids.clamp(min=0).unique(return_inverse=True)
        scores = scores_of(batch.queries, known, rng).float().gather(1, columns)
        chosen = hits(parts.rows, batch.queries, known)[rows_of(ids), columns]
        positive = chosen & (torch.arange(ids.shape[1], device=ids.device) < own.shape[1])
        valid = (ids >= 0) & (positive | ~chosen)  # a positive among the random ones counts once
        if parts.excluded is not None:
            valid &= ~hits(parts.excluded, batch.queries, known)[rows_of(ids), columns]
        return loss(scores, positive, valid)

    batches = QueryBatches(parts.rows, batch_size(stage, config))
    return stage_task(module, batches, losses, lists)


def rows_of(ids: Tensor) -> Tensor:
    """The number of each row, to look columns up by; [B, 1]."""
    return torch.arange(len(ids), device=ids.device)[:, None]


def padded(rows: Interactions) -> Tensor:
    """The candidates of each row, -1 after the last; [B, most]."""
    counts = rows.counts()
    found = rows.candidates.new_full((len(counts), int(counts.max())), -1, dtype=torch.int64)
    owner = rows.query_of_pair().long()
    columns = torch.arange(rows.n_pairs, device=owner.device) - rows.offsets[owner]
    found[owner, columns] = rows.candidates.long()
    return found


@torch.no_grad()
def shortlists(
    encoder: Bags, parts: Parts, size: int, build_index: Callable[[Tensor], Index]
) -> Tensor:
    """Module II: half of a list by the candidates' texts, half by their documents; [docs, size].

    For documents with candidates only, in order; -1 where there are fewer.
    """
    asking = (parts.rows.counts() > 0).nonzero().flatten()
    texts = encoded(encoder, parts.labels)
    indices = [build_index(texts), build_index(centroids(encoder, parts, texts))]
    found = []
    for some in asking.split(ENCODED):
        vectors, own = encoder(parts.documents.select(some)), parts.rows.select(some)
        halves = [index.search(vectors, -(-size // 2), own).ids for index in indices]
        found.append(without_repeats(torch.cat(halves, dim=1)).int())
    return torch.cat(found)


def without_repeats(ids: Tensor) -> Tensor:
    """Each id of a row once, -1 for the others."""
    ids = ids.sort(dim=1).values
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    return ids.masked_fill(again, -1)


# ---------------------------------------------------------------------------------- all


def stage_task(
    module: nn.Module,
    batches: Batches,
    losses: Callable[[Rows, torch.Generator], Tensor],
    memory: Memory | None = None,
) -> Task:
    """Nothing is exported before the last stage is over."""
    return Task(module, batches, losses, lambda: None, memory or Nothing())


def encoded(encoder: Callable[[Texts], Tensor], bags: Texts) -> Tensor:
    """The vectors of many texts; [n, D]."""
    parts = torch.arange(len(bags), device=bags.offsets.device).split(ENCODED)
    return torch.cat([encoder(bags.select(some)) for some in parts])


def centroids(encoder: Callable[[Texts], Tensor], parts: Parts, texts: Tensor) -> Tensor:
    """The mean vector of each candidate's documents, of length 1; without any, its text's."""
    sums, rows = torch.zeros_like(texts), parts.rows
    for some in torch.arange(rows.n_queries, device=texts.device).split(ENCODED):
        chosen, vectors = rows.select(some), encoder(parts.documents.select(some))
        sums.index_add_(0, chosen.candidates, vectors[chosen.query_of_pair().long()])
    lonely = (rows.candidate_counts() == 0)[:, None]
    return torch.where(lonely, texts, unit(sums))
