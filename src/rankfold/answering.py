"""The one way in which a model answers: the best candidates of its queries, and of histories."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.types import Interactions, Method, Model, TopK


class Answers:
    """A model that is ready to answer; what all answers share is made once, when it is needed.

    A query with nothing to go by (an empty history, a vector of zeros) gets the most popular
    candidates: its scores are the counts of candidates in ``chosen``.
    """

    def __init__(self, model: Model, chosen: Interactions, memory_budget: int = 2**30) -> None:
        self.model = model
        self.chosen = chosen  # by whomever; its candidates are the model's
        self.memory_budget = memory_budget  # bytes, for blocks

    def of_queries(self, rows: Tensor, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of the model's queries ``rows`` [B].

        Row b of ``exclude`` is not in list b. Ids and scores are [B, min(k, N)].
        """
        if self._method is not None and self._method.search is not None:
            known = histories(self.model, self.chosen.n_candidates)
            return self.of_histories(known.select(rows.to(self._device)), k, exclude)
        return self.of_vectors(self.model.tensors["queries"][rows], k, exclude)

    def of_histories(self, rows: Interactions, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of new queries, each of which chose a row of ``rows``."""
        if self._method is None or self._method.search is None:
            return self.of_vectors(self._folded_in(rows), k, exclude)
        rows = rows.to(self._device)
        hidden = None if exclude is None else exclude.to(self._device)
        found = self._method.search(self.model, rows, k, hidden)
        return self._by_popularity(rows.counts() == 0, found, hidden)

    def of_vectors(self, vectors: Tensor, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of query vectors [B, D]."""
        found = self._index.search(vectors, k, exclude)
        return self._by_popularity((vectors == 0).all(dim=1), found, exclude)

    @cached_property
    def popularity(self) -> Tensor:
        """How many queries chose each candidate; [N]."""
        return self.chosen.candidate_counts()

    def _folded_in(self, rows: Interactions) -> Tensor:
        """Vectors of histories; an empty one has zeros, whatever the method makes of it."""
        if self._method is None or self._method.fold_in is None:
            able = [name for name, method in METHODS.items() if method.fold_in or method.search]
            raise UserError(
                f"{self.model.method} cannot rank for a new query",
                hint=f"search with a known query, or fit one of {', '.join(able)}",
            )
        candidates = self.model.tensors["candidates"]
        vectors = candidates.new_zeros(rows.n_queries, candidates.shape[1])
        asking = rows.counts().nonzero().flatten()
        if len(asking) > 0:
            vectors[asking] = self._method.fold_in(self.model, rows.select(asking)).to(vectors)
        return vectors

    def _by_popularity(self, blank: Tensor, found: TopK, exclude: Interactions | None) -> TopK:
        """``found``, but the most popular candidates where ``blank`` [B] says so."""
        places = blank.nonzero().flatten()
        if len(places) == 0:
            return found
        hidden = None if exclude is None else exclude.to(blank.device).select(places)
        same = torch.ones(len(places), 1, dtype=torch.float64, device=blank.device)
        popular = self._popular.search(same, found.ids.shape[1], hidden)
        found.ids[places] = popular.ids
        found.scores[places] = popular.scores.to(found.scores.dtype)
        return found

    @cached_property
    def _index(self) -> Exact:
        return Exact(self.model.tensors["candidates"], self.memory_budget)

    @cached_property
    def _popular(self) -> Exact:
        counts = self.popularity.to(self._device, torch.float64)  # exact, whatever the counts
        return Exact(counts[:, None], self.memory_budget)

    @property
    def _method(self) -> Method | None:
        return METHODS.get(self.model.method)  # vectors may also come from elsewhere

    @property
    def _device(self) -> torch.device:
        return next(iter(self.model.tensors.values())).device


def histories(model: Model, n_candidates: int) -> Interactions:
    """What each query had chosen, as a model keeps it that brings its own search."""
    tensors = model.tensors
    return Interactions(tensors["offsets"], tensors["candidates_of_queries"], None, n_candidates)


def to_history(pairs: Interactions) -> dict[str, Tensor]:
    """The tensors in which such a model keeps pairs."""
    return {"offsets": pairs.offsets, "candidates_of_queries": pairs.candidates}
