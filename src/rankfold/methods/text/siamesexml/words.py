"""Words beside the vectors: linear classifiers, and the documents with similar words.

    score(x, y) = x . candidate(y) + factor(y) chance_y(x) + neighbour_weight near(x, y)

chance_y(x) is that of a classifier as in ``text-linear``, one label against all, over words, pairs
of words and n-grams of characters. near(x, y) is the weighted share of the 20 documents with the
nearest vectors that chose y. Most of both are 0: they are extra scores of a search by inner
product. factor(y) is ``linear_weight``, times ``linear_rare`` or ``linear_middle`` for candidates
with few documents.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.data.build.tokens import vocabulary_of
from rankfold.encoders.bag_encoder import VECTORS
from rankfold.encoders.bags import character_grams
from rankfold.errors import UserError
from rankfold.kernels.topk import top_k
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.neighbours import TextIndex
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.types import (
    Dataset,
    Interactions,
    Model,
    Run,
    Texts,
    TopK,
    list_tensors,
    list_with,
)

LISTS_OF_CANDIDATES = ("linear",)
PER_CANDIDATE = ("linear.bias", "linear.factor")
PER_QUERY = ("documents",)
_MOST_TEXTS = 200_000  # on a side, where no weight is given: more take too long
_NEIGHBOURS = 20
_SHARPNESS = 10.0  # of the softmax of cosines
_NOT_NEAR = -10.0  # instead of the cosine of a document without a candidate
_SMALLEST = 1e-3  # chance; smaller ones count as 0
_RARE, _MIDDLE = 10, 50  # documents; candidates with fewer


class Documents(NamedTuple):
    """The vectors of documents, and what they chose."""

    vectors: Tensor  # [M, D] float16; length 1
    chosen: Interactions  # [M, N]

    def near(self, vectors: Tensor) -> Tensor:
        """The share of the documents nearest to vectors [B, D] that chose each candidate; [B, N].

        A document's part in the share is the softmax of the cosines times 10.
        """
        cosines = vectors @ self.vectors.to(vectors.dtype).T
        cosines.masked_fill_(self.chosen.counts() == 0, _NOT_NEAR)
        nearest = top_k(cosines, min(_NEIGHBOURS, len(self.vectors)))
        shares = torch.softmax(_SHARPNESS * nearest.scores, dim=1)
        zeros = shares.new_zeros(len(vectors), self.chosen.n_candidates)
        return neighbours.add_choices(zeros, TopK(nearest.ids, shares), self.chosen)


class Words(NamedTuple):
    """What is known about words."""

    nearby: TextIndex
    classifiers: linear.Classifiers
    texts: Texts  # of all documents


def are_wanted(data: Dataset, config: SiameseConfig, run: Run) -> bool:
    """Whether words take part; a UserError where they are asked for and cannot."""
    given = config.linear_weight, config.neighbour_weight
    if given == (0, 0):
        return False
    able = run.comm.size == 1 and not config.encoder.startswith(VECTORS)
    if not able and any(given):
        raise UserError(
            "words beside the vectors need one process and texts, not vectors from a file",
            hint="set linear_weight=0 and neighbour_weight=0",
        )
    sizes = data.n_queries, data.split("train").n_candidates
    return able and (any(given) or max(sizes) <= _MOST_TEXTS)


def learn(
    data: Dataset, run: Run, resume: Mapping[str, Tensor]
) -> Generator[linear.Learner, None, Words]:
    """Index the documents and learn the classifiers; yields every second or so."""
    known = vocabulary_of(data.tokenizer)
    grams = None if known is None else character_grams(known)
    index = neighbours.build_index(data, run.device, bigrams=True, grams=grams)
    hidden = data.seen("validation").to(run.device)
    learner = linear.Learner(index, hidden, linear.Config(), run)
    if resume:
        learner.load(resume)
    for _ in learner.learn():
        yield learner
    texts = neighbours.query_texts(data, None, run.device)
    return Words(index, learner.classifiers(), texts)


def bands_of(counts: Tensor) -> Tensor:
    """0, 1, 2 for candidates with few, some and many documents; [N]."""
    return torch.bucketize(counts, counts.new_tensor([_RARE, _MIDDLE]), right=True)


class Scores(NamedTuple):
    """Both parts of some texts."""

    chances: Interactions  # [B, N], as grades
    near: Interactions


def scores_of(words: Words, documents: Documents, texts: Texts, vectors: Tensor) -> Scores:
    """The parts of some texts with these vectors, without weights."""
    chances, near = [], []
    bags = neighbours.bags_of(texts, words.nearby)
    for start, stop in neighbours.query_blocks(len(bags), words.nearby.numbers):
        block = bags.part(start, stop)
        chances.append(_sparse(words.classifiers.chances(block), _SMALLEST))
        near.append(_sparse(documents.near(vectors[start:stop]), 0.0))
    return Scores(_joined(chances), _joined(near))


def _sparse(scores: Tensor, above: float) -> Interactions:
    """The scores above a limit."""
    kept = scores > above
    offsets = torch.nn.functional.pad(kept.sum(dim=1).cumsum(0), (1, 0))
    return Interactions(offsets, kept.nonzero()[:, 1].int(), scores[kept], scores.shape[1])


def _joined(parts: list[Interactions]) -> Interactions:
    """The rows of all parts, of which there is at least one."""
    counts = torch.cat([part.counts() for part in parts])
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    candidates = torch.cat([part.candidates for part in parts])
    grades = torch.cat([part.grades for part in parts if part.grades is not None])
    return Interactions(offsets, candidates, grades, parts[0].n_candidates)


# ---------------------------------------------------------------------------------- the model


def to_tensors(words: Words, factors: Tensor, documents: Documents | None) -> dict[str, Tensor]:
    """The tensors of a model; ``documents`` are those that near ones are among."""
    index, classifiers = words.nearby, words.classifiers
    tensors = {
        "words.rarity": index.idf,
        "words.pairs": index.word_pairs,
        "linear.bias": classifiers.bias,
        "linear.factor": factors,
        **list_tensors("linear", classifiers.weights.transpose()),
    }
    if index.grams is not None:
        tensors["words.gram_offsets"] = index.grams.offsets
        tensors["words.grams"] = index.grams.candidates
    if documents is not None:
        tensors["documents"] = documents.vectors  # what they chose is in every model
    return tensors


class Extra:
    """The extra scores of a model."""

    def __init__(self, model: Model) -> None:
        tensors, self.scale = model.tensors, model.config["members"] ** -0.5
        idf, n = tensors["words.rarity"], len(tensors["linear.bias"])
        weights = list_with(model, "linear", len(idf)).transpose()
        self.factors = tensors["linear.factor"]  # [N], 0 for a candidate without a classifier
        self.near = float(model.config["neighbour_weight"])
        self.documents: Documents | None = None
        if self.near:
            chosen = Interactions(tensors["offsets"], tensors["candidates_of_queries"], None, n)
            self.documents = Documents(tensors["documents"], chosen)
        grams: Interactions | None = None
        if "words.grams" in tensors:
            offsets, ids, pairs = (
                tensors[f"words.{name}"] for name in ("gram_offsets", "grams", "pairs")
            )
            n_grams = len(idf) - len(pairs) - (len(offsets) - 1)
            grams = Interactions(offsets, ids, None, n_grams)
        self.index = TextIndex(idf, tensors["words.pairs"], weights, weights, weights, grams)
        counts = torch.zeros(n, device=idf.device)
        self.classifiers = linear.Classifiers(weights, tensors["linear.bias"], counts)

    def __call__(self, texts: Texts, vectors: Tensor) -> Interactions:
        """The scores of some texts with these query vectors, as grades; [B, N]."""
        bags, parts = neighbours.bags_of(texts, self.index), []
        documents, numbers = self.documents, 4 * len(self.factors)
        if documents is not None:
            vectors = vectors[:, : documents.vectors.shape[1]] * self.scale
            numbers += len(documents.vectors)
        for start, stop in neighbours.query_blocks(len(bags), numbers):
            block = bags.part(start, stop)
            scores = self.classifiers.chances(block)
            scores.mul_(scores > _SMALLEST).mul_(self.factors)
            if documents is not None:
                scores.add_(documents.near(vectors[start:stop]), alpha=self.near)
            parts.append(_sparse(scores, 0.0))
        return _joined(parts)
