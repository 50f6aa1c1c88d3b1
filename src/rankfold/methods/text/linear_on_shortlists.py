"""Searches of older ``text-linear`` models, whose classifiers score shortlists."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.methods.text import neighbours as nearby
from rankfold.methods.text.neighbours import TextIndex
from rankfold.types import Exclude, Interactions, Model, Opened, Texts, TopK, from_pairs


class OlderSettings(NamedTuple):
    """Those that a search needs."""

    neighbours: int
    label_weight: float
    shortlist: int
    alpha: float


def open_older(model: Model) -> Opened:
    """A model with ``weight_keys``: candidate * V + word, ascending."""
    index = nearby.from_tensors(model.tensors)
    settings = OlderSettings(*(model.config[name] for name in OlderSettings._fields))
    weights = _by_word(model.tensors, len(index.idf))
    return Opened(search_texts=partial(search, index, weights, model.tensors["bias"], settings))


def search(
    index: TextIndex,
    weights: Interactions,
    bias: Tensor,
    settings: OlderSettings,
    texts: Texts,
    k: int,
    exclude: Interactions | None,
) -> TopK:
    """The k candidates with the largest scores.

    With L the ``shortlist`` best candidates by near(x, y) > 0::

        score(x, y) = (1 - alpha) near(x, y) + alpha [y in L] sigmoid(w_y . x + b_y)
    """

    def best_of(bags: Texts, hidden: Exclude) -> TopK:
        near, similarity = nearby.score_parts(index, bags, settings.neighbours)
        near.add_(similarity, alpha=settings.label_weight)
        blank = nearby.fill_with_popular(near, index)[:, None]
        first = nearby.best(near.clone(), settings.shortlist, hidden)
        listed = torch.zeros_like(near).scatter_(1, first.ids.clamp(min=0), 1.0) * (near > 0)
        chances = nearby.cosines(bags, weights).add_(bias).sigmoid_() * listed
        mixed = torch.where(blank, near, torch.lerp(near, chances, settings.alpha))
        return nearby.best(mixed, k, hidden)

    bags, width = nearby.bags_of(texts, index), min(k, index.chosen.n_candidates)
    numbers = index.numbers + 3 * index.chosen.n_candidates
    return nearby.search_blocks(bags, exclude, numbers, width, best_of)


def _by_word(tensors: Mapping[str, Tensor], n_words: int) -> Interactions:
    """The weights as lists of candidates by word."""
    candidates, words = tensors["weight_keys"] // n_words, tensors["weight_keys"] % n_words
    order = words.argsort(stable=True)
    shape = n_words, len(tensors["bias"])
    return from_pairs(words[order], candidates[order], tensors["weights"][order], shape)
