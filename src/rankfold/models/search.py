"""The one way in which a model answers: the best candidates of queries, of histories, of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.build import COSINE, MakeIndex, MeasuredIndex, build, find_kind
from rankfold.index.exact import PAIR_BYTES, Exact
from rankfold.index.filter import all_hidden
from rankfold.kernels.sparse import blocks
from rankfold.methods import METHODS
from rankfold.types import Index, Interactions, Method, Model, Texts, TopK

TEXTS = 4096  # encoded at a time
TOKEN_BYTES = 128  # allocated for each token of a block of texts, besides its vector, at most


by_all: MakeIndex = partial(build, "exact")
similar_by_all: MakeIndex = partial(build, "exact", metric=COSINE)


class SimilarSearch(NamedTuple):
    """What finds candidates like others."""

    directions: Tensor  # [N, D], the candidates' vectors with length 1
    measured: MeasuredIndex


class Searcher:
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
        make: MakeIndex = by_all,
        make_similar: MakeIndex = similar_by_all,
    ) -> None:
        self.model = model
        self.chosen = chosen  # by whomever; its candidates are the model's
        self.memory_budget = memory_budget  # bytes, for blocks
        self.texts = texts  # of the model's queries, for a method that knows them by these
        self.make, self.make_similar = make, make_similar

    def of_queries(
        self,
        rows: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k best candidates of the model's queries ``rows`` [B].

        Row b of ``exclude`` is not in list b; only ``allow`` [n], ascending, is in any list, if it
        is given. Ids and scores are [B, min(k, N)].
        """
        if self._method is not None and self._method.search is not None:
            known = histories(self.model, self.chosen.n_candidates)
            return self.of_histories(known.select(rows.to(self._device)), k, exclude, allow)
        if "queries" in self.model.tensors:
            return self.of_vectors(self.model.tensors["queries"][rows], k, exclude, allow)
        return self.of_texts(self._texts_of(rows), k, exclude, allow)

    def of_histories(
        self,
        rows: Interactions,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k best candidates of new queries, each of which chose a row of ``rows``."""
        if self._method is None or self._method.search is None:
            return self.of_vectors(self._folded_in(rows), k, exclude, allow)
        rows, search = rows.to(self._device), self._method.search
        found = [
            search(self.model, rows.part(start, stop), k, hidden)
            for start, stop, hidden in self._hidden(rows.n_queries, exclude, allow)
        ]
        return self._by_popularity(rows.counts() == 0, _joined(found), exclude, allow)

    def of_texts(
        self,
        texts: Texts,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k best candidates of texts in the model's tokens."""
        if self._method is None or self._method.search_texts is None:
            return self.of_vectors(self._encoded(texts), k, exclude, allow)
        search = self._method.search_texts
        found = []
        for first, last, hidden in self._hidden(len(texts), exclude, allow):
            some = texts.select(torch.arange(first, last, device=texts.offsets.device))
            for start, stop in self._blocks(some):
                part = some.select(torch.arange(start, stop, device=texts.offsets.device))
                inner = None if hidden is None else hidden.part(start, stop)
                found.append(search(self.model, part.to(self._device), k, inner))
        blank = texts.counts().to(self._device) == 0
        return self._by_popularity(blank, _joined(found), exclude, allow)

    def of_vectors(
        self,
        vectors: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k best candidates of query vectors [B, D]."""
        found = self.index.search(vectors, k, exclude, allow)
        return self._by_popularity((vectors == 0).all(dim=1), found, exclude, allow)

    def like(
        self,
        rows: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k candidates most like each of ``rows`` [B] by cosine, itself left out."""
        directions, measured = self.similar
        itself = Interactions(
            torch.arange(len(rows) + 1), rows.to(torch.int32), None, len(directions)
        )
        hidden = itself if exclude is None else itself.union(exclude)
        return measured.index.search(directions[rows], k, hidden, allow)

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

    def _hidden(
        self, n: int, exclude: Interactions | None, allow: Tensor | None
    ) -> Iterator[tuple[int, int, Interactions | None]]:
        """Start and stop of queries that a method's own search ranks at a time, and what is hidden.

        Such a search knows no list of the allowed: all else is excluded, which may be much.
        """
        exclude = None if exclude is None else exclude.to(self._device)
        if allow is None:
            yield 0, n, exclude
            return
        allow, n_candidates = allow.to(self._device), self.chosen.n_candidates
        step = max(1, self.memory_budget // (PAIR_BYTES * max(n_candidates, 1)))
        for start in range(0, max(n, 1), step):
            stop = min(start + step, n)
            part = None if exclude is None else exclude.part(start, stop)
            yield start, stop, all_hidden(part, allow, (stop - start, n_candidates))

    def _by_popularity(
        self, blank: Tensor, found: TopK, exclude: Interactions | None, allow: Tensor | None
    ) -> TopK:
        """``found``, but the most popular candidates where ``blank`` [B] says so."""
        places = blank.nonzero().flatten()
        if len(places) == 0:
            return found
        hidden = None if exclude is None else exclude.to(blank.device).select(places)
        same = torch.ones(len(places), 1, dtype=torch.float64, device=blank.device)
        popular = self._popular.search(same, found.ids.shape[1], hidden, allow)
        found.ids[places] = popular.ids
        found.scores[places] = popular.scores.to(found.scores.dtype)
        return found

    @property
    def index(self) -> Index:
        """What searches the candidates' vectors."""
        return self.measured.index

    @cached_property
    def measured(self) -> MeasuredIndex:
        """The same, with what is known of it."""
        candidates = self.model.tensors["candidates"]
        return self.make(candidates, self.memory_budget, self.some_vectors)

    @cached_property
    def similar(self) -> SimilarSearch:
        """What finds candidates like others."""
        candidates = self.model.tensors.get("candidates")
        if candidates is None or candidates.shape[1] == 1:
            raise UserError(
                f"{self.model.method} knows no likeness between candidates",
                hint="fit a method with vectors, say rg2",
            )
        directions = torch.nn.functional.normalize(candidates, dim=1)
        made = self.make_similar(directions, self.memory_budget, lambda _n: None)
        return SimilarSearch(directions, made)

    def vectors(self, rows: Tensor) -> Tensor:
        """Of the model's queries ``rows`` [B]; [B, D]."""
        if "queries" in self.model.tensors:
            return self.model.tensors["queries"][rows]
        return self._encoded(self._texts_of(rows))

    def some_vectors(self, n: int, seed: int = 0) -> Tensor | None:
        """Of n queries at most, those left out that have zeros; None where there are none."""
        known = self.model.tensors.get("queries", self.texts)
        if known is None or len(known) == 0:
            return None
        rng = torch.Generator().manual_seed(seed)
        vectors = self.vectors(torch.randperm(len(known), generator=rng)[:n].sort().values)
        vectors = vectors[(vectors != 0).any(dim=1)]
        return vectors if len(vectors) > 1 else None

    def _texts_of(self, rows: Tensor) -> Texts:
        if self.texts is None:
            raise UserError(
                f"{self.model.method} knows a query by its text, and there are no texts of queries",
                hint="give those that the rows are of",
            )
        return self.texts.select(rows.to(self.texts.offsets.device))

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


def find_index(name: str, model: Model) -> MakeIndex:
    """What builds an index by name; a UserError where the model has no use for it."""
    find_kind(name)
    if name != "exact" and ranks_itself(model):
        raise UserError(
            f"{model.method} has no vectors for an {name} index to search",
            hint="use the exact one: it ranks by its own search",
        )
    return partial(build, name)


def _joined(parts: Sequence[TopK]) -> TopK:
    ids, scores = zip(*parts, strict=True)
    return TopK(torch.cat(ids), torch.cat(scores)) if len(parts) > 1 else parts[0]


def ranks_itself(model: Model) -> bool:
    """Whether its method brings its own search: there are no vectors to search."""
    method = METHODS.get(model.method)
    return method is not None and bool(method.search or method.search_texts)


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
