"""The modules of the released SiameseXML: the parameters they train, and their negatives."""

from dataclasses import replace
from math import exp, log

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import BagEncoder, add_residual, unit
from rankfold.losses.likelihood import likelihood_loss
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import Corpus
from rankfold.methods.text.siamesexml.mining import BuildIndex
from rankfold.methods.text.siamesexml.modules import (
    Stage,
    batch_size,
    encoder_loss,
    hardest_of,
    make_task,
    task_on_shortlists,
    training,
)
from rankfold.methods.text.siamesexml.released.shortlists import (
    mine_shortlists,
    smoothed_texts,
    space_of,
)
from rankfold.samplers.known_positives import hits
from rankfold.samplers.resampling import draw, draw_one
from rankfold.training.batches import QueryBatches, Rows
from rankfold.training.loop import Task, Training
from rankfold.types import Interactions, Texts

_FREQUENCY_POWER = 0.45  # candidates are drawn by this power of their frequency
_LABEL_LOSS = 0.7  # weight of candidates alone in the loss of module I; the rest: with a document
_CLASSIFIER_LIKELIHOOD = (0.75, 3.0)  # c and d of module III
_MIN_NEGATIVE_LOSS = 0.05  # a smaller loss of a negative counts as 0
_DROPOUT = 0.5  # of the residual


class ReleasedModule(nn.Module):
    """The encoder of both sides, the vectors of the candidates, and the residual."""

    direction: Tensor

    def __init__(self, encoder: BagEncoder, n_candidates: int, rng: torch.Generator) -> None:
        super().__init__()
        width = encoder.tokens.embedding_dim
        self.encoder = encoder
        zeros = torch.zeros(n_candidates, width)
        self.classifiers = nn.Embedding(n_candidates, width, sparse=True, _weight=zeros)
        self.mixing = nn.Parameter(torch.eye(width))
        self.radius = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("direction", unit(torch.randn(width, generator=rng)))

    def features(self, bags: Texts) -> Tensor:
        """gelu(E x), of any length; [n, D]."""
        return gelu(self.encoder.sums(bags))

    def documents(self, features: Tensor, rng: torch.Generator) -> Tensor:
        """normalise(f + dropout(relu(radius SN(W) f + b))), in training; [n, D]."""
        with torch.no_grad():  # one step of the power method
            self.direction.copy_(unit(self.mixing @ (self.mixing.T @ self.direction)))
        kept = torch.rand(features.shape, generator=rng, device=rng.device) >= _DROPOUT
        return add_residual(features, self.scaled_mixing(), self.bias, kept / (1 - _DROPOUT))

    def scaled_mixing(self) -> Tensor:
        """Radius SN(W): W divided by its largest singular value, |W^T u| with u its direction."""
        scaled: Tensor = self.radius * self.mixing / (self.mixing.T @ self.direction).norm()
        return scaled


def released_training(stage: Stage, config: ReleasedConfig) -> Training:
    return replace(training(stage, config), optimiser="sparse-adam", schedule="milestones")


def task_of(
    module: ReleasedModule,
    stage: Stage,
    corpus: Corpus,
    walk: Interactions,
    config: ReleasedConfig,
    build_index: BuildIndex,
) -> Task:
    """The training task of a stage."""
    if stage.name == "encoder":
        return encoder_task(module, corpus, config)
    if stage.name == "classifiers" or config.classifier_epochs == 0:
        with torch.no_grad():
            module.classifiers.weight.copy_(smoothed_texts(module.features, corpus, walk))

    def mine() -> Tensor:
        space = space_of(module.features, corpus, walk)
        return mine_shortlists(space, corpus, config, build_index)

    def scores(batch: Rows, candidates: Tensor, rng: torch.Generator) -> Tensor:
        with torch.set_grad_enabled(stage.name == "joint"):
            vectors = module.features(corpus.documents.select(batch.queries))
        return module.documents(vectors, rng) @ unit(module.classifiers(candidates)).T

    batches = QueryBatches(corpus.rows, batch_size(stage, config))
    return task_on_shortlists(module, batches, corpus, config, mine, scores, classifier_loss)


def encoder_task(module: ReleasedModule, corpus: Corpus, config: ReleasedConfig) -> Task:
    """Candidates against documents of the batch, and documents against candidates plus a document.

    With f_l, f_d, f_e vectors of a candidate and two of its documents, L the likelihood loss with
    the hardest negatives of the batch::

        loss = .7 L(f_l, f_d) + .3 L(f_d, f_l + f_e)
    """
    of_labels = corpus.rows.transpose()

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        own, other = (draw_one(of_labels, batch.queries, rng) for _ in range(2))
        labels = module.features(corpus.labels.select(batch.queries))
        documents, others = (module.features(corpus.documents.select(d)) for d in (own, other))
        positive = hits(of_labels, batch.queries, own)
        valid = torch.ones_like(positive)
        if corpus.excluded is not None:
            valid = ~hits(corpus.excluded, own, batch.queries).T
        first = (unit(labels) @ unit(documents).T).float()
        second = (unit(documents) @ unit(labels + others).T).float()
        return _LABEL_LOSS * _hardest_loss(first, positive, valid, config.hardest) + (
            1 - _LABEL_LOSS
        ) * _hardest_loss(second, positive.T, valid.T, config.hardest)

    return make_task(module, FrequencyBatches(of_labels, config.batch_size), losses)


def _hardest_loss(scores: Tensor, positive: Tensor, valid: Tensor, count: int) -> Tensor:
    """The likelihood loss of the positives and the ``count`` negatives with the largest scores."""
    rivals = scores.detach().masked_fill(positive | ~valid, -torch.inf)
    return encoder_loss(scores, positive, (positive & valid) | hardest_of(rivals, count))


class FrequencyBatches:
    """An epoch draws as many rows as are not empty, by their sizes to the power of .45."""

    def __init__(self, rows: Interactions, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.weights = rows.counts().double().pow(_FREQUENCY_POWER)  # 0 for empty rows
        self.count = int((self.weights > 0).sum())

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        return draw(self.weights, self.count, rng)

    def take(self, order: Tensor, number: int) -> Rows:
        queries = order[number * self.batch_size : (number + 1) * self.batch_size]
        return Rows(queries, self.rows.select(queries))


def classifier_loss(scores: Tensor, positive: Tensor, valid: Tensor) -> Tensor:
    """The likelihood loss over d, without negatives whose loss would be less than .05.

    These have a cosine v with -log(1 - c e^{d(v-1)}) / d < .05.
    """
    c, d = _CLASSIFIER_LIKELIHOOD
    close = scores >= 1 + log((1 - exp(-d * _MIN_NEGATIVE_LOSS)) / c) / d
    return likelihood_loss(scores, positive, valid & (positive | close), c=c, d=d) / d
