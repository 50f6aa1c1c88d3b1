"""The modules of SiameseXML: the parameters that each of them trains, and its negatives.

A module is a stage of epochs. With ``negatives = "pool"`` a batch of documents shares one pool of
candidates in all modules. With ``"hardest"`` they follow [siamesexml]: module I compares candidates
with the hardest documents of the batch and one from an index; III and IV compare documents with
the candidates of their shortlists.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankfold.encoders.bag_encoder import BagEncoder, unit
from rankfold.encoders.frozen import Given
from rankfold.encoders.half_precision import to_float32
from rankfold.encoders.pretrained import Pretrained
from rankfold.kernels.decoupled_softmax import shared_decoupled_softmax_loss
from rankfold.losses.likelihood import likelihood_loss
from rankfold.methods.text.siamesexml.config import (
    BASE_LR,
    SMALLEST_BATCH,
    ModulesConfig,
    SiameseConfig,
    is_on_disk,
)
from rankfold.methods.text.siamesexml.corpus import Corpus
from rankfold.methods.text.siamesexml.distributed import (
    by_candidate,
    chosen_by_all,
    distinct_of_all,
    gather_batch,
    thinned_documents,
    thinned_vectors,
)
from rankfold.methods.text.siamesexml.mining import (
    BuildIndex,
    MinedNegatives,
    mine_documents,
    mine_shortlists,
)
from rankfold.samplers.batch_pool import pool_around
from rankfold.samplers.known_positives import hits, places
from rankfold.samplers.resampling import draw_one
from rankfold.training.batches import Batches, QueryBatches, Rows
from rankfold.training.gradient_sync import UNDIVIDED, Sides
from rankfold.training.loop import EMPTY_MEMORY, Memory, Task, Training
from rankfold.types import Interactions, Texts

encoder_loss = partial(likelihood_loss, c=0.9, d=1.5)
classifier_loss = partial(likelihood_loss, c=0.75, d=3.0)

_GRADIENT_SCALE = 2.0**10  # of the refinements' gradients: about the largest batch
_NEVER_AGAIN = 2**62  # steps
_WARMUP = 0.1  # epochs, of an encoder on disk
_RATES = {Pretrained: 3e-5, Given: 1e-3}

StageName = Literal["encoder", "classifiers", "joint"]


class Stage(NamedTuple):
    """A module of the paper."""

    name: StageName
    epochs: int


class Siamese(nn.Module):
    """The encoder of both sides, and the refinements of the candidates.

    Each of several processes has the refinements of its share of the candidates. They are float16:
    with many candidates, they and their optimiser state take nearly all of the memory.
    """

    def __init__(self, encoder: nn.Module, n_candidates: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.trainable = [one for one in encoder.parameters() if one.requires_grad]
        start = torch.zeros(n_candidates, width, dtype=torch.float16)
        self.refinements = nn.Embedding(n_candidates, width, sparse=True, _weight=start)

    def refined(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """normalise(E(z) + eta): the classifiers of candidates."""
        return unit(vectors + to_float32(self.refinements(rows), _GRADIENT_SCALE))

    @property
    def sides(self) -> Sides:
        return Sides(divided=(self.refinements,))

    def train_in(self, stage: Stage) -> None:
        """Turn off the gradients of what the stage keeps fixed.

        Module III keeps the encoder fixed, except the matrix R of a residual one, which is trained
        with the refinements, as in [siamesexml].
        """
        for parameter in self.trainable:
            parameter.requires_grad_(stage.name != "classifiers")
        self.refinements.requires_grad_(stage.name != "encoder")
        if isinstance(self.encoder, BagEncoder) and self.encoder.mixing is not None:
            self.encoder.mixing.requires_grad_()

    @property
    def encoder_learns(self) -> bool:
        return any(parameter.requires_grad for parameter in self.trainable)

    def in_eval_mode(self, work: Callable[..., Tensor], *args: Any) -> Tensor:
        """``work(encoder, *args)`` with the encoder in ``eval`` mode, without dropout."""
        self.eval()
        try:
            return work(self.encoder, *args)
        finally:
            self.train()


def stages_of(config: ModulesConfig) -> list[Stage]:
    """The stages that have epochs, in the paper's order."""
    every = [
        Stage("encoder", config.encoder_epochs),
        Stage("classifiers", config.classifier_epochs),
        Stage("joint", config.joint_epochs or 0),
    ]
    return [stage for stage in every if stage.epochs > 0]


def training(stage: Stage, config: ModulesConfig) -> Training:
    first = stage.name == "encoder"
    return Training(
        width=config.width,
        epochs=stage.epochs,
        lr=config.lr or BASE_LR if first or not config.classifier_lr else config.classifier_lr,
        optimiser="row-adam",
        weight_decay=0.0,
        schedule="linear",
        warmup=_WARMUP if is_on_disk(config) else 0.0,
        precision=config.precision,
    )


def batch_size(stage: Stage, config: ModulesConfig) -> int:
    first = stage.name == "encoder"
    size = config.batch_size if first else config.classifier_batch_size or config.batch_size
    return size or SMALLEST_BATCH


def task_of(
    module: Siamese, stage: Stage, corpus: Corpus, config: SiameseConfig, build_index: BuildIndex
) -> Task:
    """The training task of a stage."""
    module.train_in(stage)
    if config.negatives == "pool":
        task = _pool_task(module, stage, corpus, config)
    elif stage.name == "encoder":
        task = _hard_document_task(module, corpus, config, build_index)
    else:
        task = _shortlist_task(module, stage, corpus, config, build_index)
    usual = _RATES.get(type(module.encoder))
    if usual is None:
        return task
    factor = (config.encoder_lr or usual) / training(stage, config).lr
    return replace(task, factors=dict.fromkeys(module.encoder.parameters(), factor))


# ---------------------------------------------------------------------------------- one pool


def _pool_task(module: Siamese, stage: Stage, corpus: Corpus, config: SiameseConfig) -> Task:
    """Documents against a shared pool: all labels of the batch, and random candidates."""
    batches = QueryBatches(corpus.rows, batch_size(stage, config), corpus.comm)
    thinned = thinned_documents(corpus, batches, config.thinning)
    encode_both = _both_sides(module, stage, corpus)
    wanted = corpus.rows if corpus.excluded is None else corpus.rows.without(corpus.excluded)

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        chosen = chosen_by_all(batch, corpus.comm)
        pool = pool_around(chosen, batch.size, corpus.shares, config.pool, rng)
        documents, labels = encode_both(thinned(batch, rng), pool.ids)
        scores = ((documents / config.temperature) @ labels.T).float()
        positive = places(wanted, batch.queries, pool.ids)
        hidden = places(corpus.hidden, batch.queries, pool.ids)
        return shared_decoupled_softmax_loss(scores, pool.log_q, positive, hidden)

    return make_task(module, batches, losses, sides=module.sides)


def _both_sides(
    module: Siamese, stage: Stage, corpus: Corpus
) -> Callable[[Texts, Tensor], tuple[Tensor, Tensor]]:
    """A function from documents, and candidate ids over all processes, to vectors of both.

    Owners encode their candidates together with the documents: a token that both have is looked up
    once, and has one gradient.
    """
    shard = corpus.label_shard

    def vectors(documents: Texts, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows, own = shard.here(ids)
        with torch.set_grad_enabled(module.encoder_learns):
            both: Tensor = module.encoder(documents.join(corpus.labels.select(rows)))
        of_documents, labels = both.split([len(documents), len(rows)])
        if stage.name != "encoder":
            labels = module.refined(labels, rows)
        return of_documents, shard.to_all(labels, own)

    return vectors


# ---------------------------------------------------------------------------------- module I


def _hard_document_task(
    module: Siamese, corpus: Corpus, config: SiameseConfig, build_index: BuildIndex
) -> Task:
    """Candidates, each with one of its documents, against the hardest documents of the batch.

    All true pairs inside the batch count as positives. One more document comes from an index of
    all documents, which is rebuilt every few epochs.
    """
    of_labels, hidden = by_candidate(corpus.rows, corpus), by_candidate(corpus.hidden, corpus)
    batches = QueryBatches(of_labels, config.batch_size or SMALLEST_BATCH, corpus.comm)
    mine = partial(module.in_eval_mode, mine_documents, corpus, build_index)
    mined = MinedNegatives(mine, config.refresh * len(batches), corpus.idf.device)
    vectors_of = thinned_vectors(corpus, module.encoder, config.thinning)

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        hard = mined.next()[batch.queries]
        own = draw_one(of_labels, batch.queries, rng, batch.own)
        labels = module.encoder(corpus.labels.select(batch.queries))
        own, more = gather_batch(torch.stack([own, hard.clamp(min=0)]), batch.own, corpus.comm)
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
            torch.cat([taken, (hard >= 0)[:, None]], dim=1),
        )

    return make_task(module, batches, losses, mined, sides=module.sides, divided=("found",))


def hardest_of(scores: Tensor, count: int) -> Tensor:
    """True for the ``count`` largest finite scores of each row; [B, C]."""
    best = scores.topk(min(count, scores.shape[1]), dim=1)
    marks = torch.zeros_like(scores, dtype=torch.bool)
    return marks.scatter_(1, best.indices, best.values.isfinite())


# ---------------------------------------------------------------------------------- III and IV


def _shortlist_task(
    module: Siamese, stage: Stage, corpus: Corpus, config: SiameseConfig, build_index: BuildIndex
) -> Task:
    """Documents against their positives, their shortlist and random candidates."""
    batches = QueryBatches(corpus.rows, batch_size(stage, config), corpus.comm)
    thinned = thinned_documents(corpus, batches, config.thinning)
    encode_both = _both_sides(module, stage, corpus)

    def scores(batch: Rows, candidates: Tensor, rng: torch.Generator) -> Tensor:
        documents, labels = encode_both(thinned(batch, rng), candidates)
        return documents @ labels.T

    mine = partial(module.in_eval_mode, mine_shortlists, corpus, config.shortlist, build_index)
    sides = module.sides
    return task_on_shortlists(module, batches, corpus, config, mine, scores, classifier_loss, sides)


def task_on_shortlists(
    module: nn.Module,
    batches: QueryBatches,
    corpus: Corpus,
    config: ModulesConfig,
    mine: Callable[[], Tensor],
    scores_of: Callable[[Rows, Tensor, torch.Generator], Tensor],
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    sides: Sides = UNDIVIDED,
) -> Task:
    """``_shortlist_task`` for any scores and any loss of scores, positives, valid; [B, C] each.

    ``mine`` finds the shortlists of all documents with candidates, -1 where there are fewer; it is
    called once. ``scores_of`` the documents of a batch and candidates [K] is [B, K].
    """
    with_labels = corpus.rows.counts() > 0
    lists = MinedNegatives(mine, _NEVER_AGAIN, corpus.idf.device, with_labels)
    place = torch.cumsum(with_labels, 0) - 1  # of a document among those with labels

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        rivals = lists.next()[place[batch.queries]]
        shape = (batch.size, config.random)
        drawn = torch.randint(corpus.rows.n_candidates, shape, generator=rng, device=rng.device)
        drawn = drawn if batch.own is None else drawn[batch.own.places]
        own = padded(batch.positives)
        ids = torch.cat([own, rivals.long(), drawn], dim=1)
        known = distinct_of_all(ids.clamp(min=0), corpus.comm)
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        columns = torch.searchsorted(known, ids.clamp(min=0))
        scores = scores_of(batch, known, rng).float().gather(1, columns)
        chosen = hits(corpus.rows, batch.queries, known)[rows, columns]
        positive = chosen & (torch.arange(ids.shape[1], device=ids.device) < own.shape[1])
        valid = (ids >= 0) & (positive | ~chosen)  # a positive that is also drawn counts once
        if corpus.excluded is not None:
            valid &= ~hits(corpus.excluded, batch.queries, known)[rows, columns]
        return loss(scores, positive, valid)

    return make_task(module, batches, losses, lists, sides=sides, divided=("found",))


def padded(rows: Interactions) -> Tensor:
    """The candidates of each row, -1 after the last; [B, most]."""
    counts = rows.counts()
    most = int(counts.max()) if len(counts) else 0
    ids = rows.candidates.new_full((len(counts), most), -1, dtype=torch.int64)
    owner = rows.query_of_pair().long()
    columns = torch.arange(rows.n_pairs, device=owner.device) - rows.offsets[owner]
    ids[owner, columns] = rows.candidates.long()
    return ids


# ---------------------------------------------------------------------------------- all stages


def make_task(
    module: nn.Module,
    batches: Batches,
    losses: Callable[[Rows, torch.Generator], Tensor],
    memory: Memory = EMPTY_MEMORY,
    **options: Any,
) -> Task:
    """A task that exports nothing: a model is built after the last stage."""
    options["draws_elsewhere"] = not isinstance(module.encoder, BagEncoder)
    return Task(module, batches, losses, lambda: None, memory, **options)
