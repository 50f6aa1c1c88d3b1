"""The one way in which a model answers: the best candidates of queries, of histories, of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.ann import build_index
from rankfold.index.exact import Exact
from rankfold.kernels.sparse import blocks
from rankfold.methods import METHODS
from rankfold.types import Index, Interactions, Method, Model, Texts, TopK

TEXTS = 4096  # encoded at a time
TOKEN_BYTES = 128  # allocated for each token of a block of texts, besides its vector, at most

Build = Callable[[Tensor, int], Index]
"""``(candidates [N, D], memory budget)``: what searches vectors."""
INDEXES: dict[str, Build] = {"exact": Exact, "approximate": build_index}


class Answers:
    """A model that is ready to answer; what all answers share is made once, when it is needed.

    A query with nothing to go by (an empty history, a text without a known word, a vector of zeros)
    gets the most popular candidates: its scores are the counts of candidates in ``chosen``.
    """

    def __init__(
        self,
        model: Model,
        chosen: Interactions,
        memory_budget: int = 2**30,
        texts: Texts | None = None,
        build: Build = Exact,
    ) -> None:
        self.model = model
        self.chosen = chosen  # by whomever; its candidates are the model's
        self.memory_budget = memory_budget  # bytes, for blocks
        self.texts = texts  # of the model's queries, for a method that knows them by these
        self.build = build

    def of_queries(self, rows: Tensor, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of the model's queries ``rows`` [B].

        Row b of ``exclude`` is not in list b. Ids and scores are [B, min(k, N)].
        """
        if self._method is not None and self._method.search is not None:
            known = histories(self.model, self.chosen.n_candidates)
            return self.of_histories(known.select(rows.to(self._device)), k, exclude)
        if "queries" in self.model.tensors:
            return self.of_vectors(self.model.tensors["queries"][rows], k, exclude)
        if self.texts is None:
            raise UserError(
                f"{self.model.method} knows a query by its text, and there are no texts of queries",
                hint="give those that the rows are of",
            )
        return self.of_texts(self.texts.select(rows.to(self.texts.offsets.device)), k, exclude)

    def of_histories(self, rows: Interactions, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of new queries, each of which chose a row of ``rows``."""
        if self._method is None or self._method.search is None:
            return self.of_vectors(self._folded_in(rows), k, exclude)
        rows = rows.to(self._device)
        hidden = None if exclude is None else exclude.to(self._device)
        found = self._method.search(self.model, rows, k, hidden)
        return self._by_popularity(rows.counts() == 0, found, hidden)

    def of_texts(self, texts: Texts, k: int, exclude: Interactions | None = None) -> TopK:
        """The k best candidates of texts in the model's tokens."""
        if self._method is None or self._method.search_texts is None:
            return self.of_vectors(self._encoded(texts), k, exclude)
        hidden = None if exclude is None else exclude.to(self._device)
        parts = []
        for start, stop in self._blocks(texts):
            part = texts.select(torch.arange(start, stop, device=texts.offsets.device))
            inner = None if hidden is None else hidden.part(start, stop)
            parts.append(self._method.search_texts(self.model, part.to(self._device), k, inner))
        ids, scores = zip(*parts, strict=True)
        blank = texts.counts().to(self._device) == 0
        return self._by_popularity(blank, TopK(torch.cat(ids), torch.cat(scores)), hidden)

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
            raise _no_fold_in(self.model)
        candidates = self.model.tensors["candidates"]
        vectors = candidates.new_zeros(rows.n_queries, candidates.shape[1])
        asking = rows.counts().nonzero().flatten()
        if len(asking) > 0:
            vectors[asking] = self._method.fold_in(self.model, rows.select(asking)).to(vectors)
        return vectors

    def _encoded(self, texts: Texts) -> Tensor:
        """Vectors of texts, block by block; one without tokens has zeros, as an empty history."""
        if self._method is None or self._method.encode_texts is None:
            raise no_texts(self.model)
        candidates = self.model.tensors["candidates"]
        vectors = candidates.new_zeros(len(texts), candidates.shape[1])
        for start, stop in self._blocks(texts):
            asking = start + texts.counts()[start:stop].nonzero().flatten()
            if len(asking) > 0:
                block = texts.select(asking).to(self._device)
                found = self._method.encode_texts(self.model, block, "query")
                vectors[asking.to(self._device)] = found.to(vectors)
        return vectors

    def _blocks(self, texts: Texts) -> Iterator[tuple[int, int]]:
        """Start and stop of runs of texts whose tokens fit in a quarter of the memory budget."""
        candidates = self.model.tensors.get("candidates")
        width = 0 if candidates is None else candidates.shape[1]
        most = max(1, self.memory_budget // 4 // (TOKEN_BYTES + 4 * width))
        if len(texts) == 0:
            yield 0, 0
        yield from blocks(Interactions(texts.offsets, texts.tokens, None, 0), TEXTS, most)

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
    def _index(self) -> Index:
        return self.build(self.model.tensors["candidates"], self.memory_budget)

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


def find_index(name: str, model: Model) -> Build:
    """What builds an index by name; a UserError where the model has no use for it."""
    if name not in INDEXES:
        raise UserError(f"there is no index {name!r}", hint=f"known: {', '.join(INDEXES)}")
    method = METHODS.get(model.method)
    if name != "exact" and method is not None and (method.search or method.search_texts):
        raise UserError(
            f"{model.method} has no vectors for an {name} index to search",
            hint="use the exact one: it ranks by its own search",
        )
    return INDEXES[name]


def takes_texts(model: Model) -> bool:
    """Whether the model ranks by the texts of queries."""
    method = METHODS.get(model.method)
    return method is not None and bool(method.encode_texts or method.search_texts)


def no_texts(model: Model) -> UserError:
    able = [name for name, method in METHODS.items() if method.data_kind == "texts"]
    other = f", or fit one of {', '.join(able)}" if able else ""
    return UserError(
        f"{model.method} does not rank by text", hint=f"give a known query or a history{other}"
    )


def _no_fold_in(model: Model) -> UserError:
    if takes_texts(model):
        return UserError(
            f"{model.method} ranks by text, not by history", hint="give it with --text"
        )
    able = [name for name, method in METHODS.items() if method.fold_in or method.search]
    return UserError(
        f"{model.method} cannot rank for a new query",
        hint=f"search with a known query, or fit one of {', '.join(able)}",
    )


def histories(model: Model, n_candidates: int) -> Interactions:
    """What each query had chosen, as a model keeps it that brings its own search."""
    tensors = model.tensors
    return Interactions(tensors["offsets"], tensors["candidates_of_queries"], None, n_candidates)


def to_history(pairs: Interactions) -> dict[str, Tensor]:
    """The tensors in which such a model keeps pairs."""
    return {"offsets": pairs.offsets, "candidates_of_queries": pairs.candidates}
