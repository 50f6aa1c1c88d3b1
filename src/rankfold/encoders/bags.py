"""Texts as bags of tokens, and an encoder that turns bags into vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rankfold.types import Texts


def rarity(sides: Sequence[Texts], n_tokens: int) -> Tensor:
    """How much a token says: idf_t = 1 + ln((1 + n) / (1 + df_t)) over n texts; [n_tokens]."""
    counts = torch.zeros(n_tokens, dtype=torch.float64)
    for texts in sides:
        bags = as_bags(texts)
        counts += torch.bincount(bags.tokens.cpu(), minlength=n_tokens)
    n = sum(map(len, sides))
    return (1 + torch.log((1 + n) / (1 + counts))).float()


def as_bags(texts: Texts) -> Texts:
    """Each token of a text once, ascending, weighed by how often it occurs."""
    rows = torch.repeat_interleave(texts.counts())
    base = int(texts.tokens.max()) + 1 if len(texts.tokens) else 1
    pairs, places = (rows * base + texts.tokens).unique(return_inverse=True)
    given = torch.ones(len(rows), device=rows.device) if texts.weights is None else texts.weights
    weights = given.new_zeros(len(pairs)).index_add(0, places, given)
    counts = torch.bincount(pairs // base, minlength=len(texts))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Texts(offsets, (pairs % base).to(texts.tokens.dtype), weights)


def weigh(texts: Texts, idf: Tensor) -> Texts:
    """Bags of length 1 with tf-idf weights: (1 + ln tf) idf, divided by the norm.

    Weights that the texts bring (of bags made elsewhere) are taken as they are, then normalised.
    """
    bags = as_bags(texts)
    assert bags.weights is not None
    weights = bags.weights
    if texts.weights is None:
        weights = (1 + weights.log()) * idf[bags.tokens]
    rows = torch.repeat_interleave(bags.counts())
    squares = weights.new_zeros(len(bags)).index_add(0, rows, weights.square())
    return Texts(bags.offsets, bags.tokens, weights / squares.sqrt().clamp(min=1e-30)[rows])
