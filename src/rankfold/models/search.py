"""A model that is ready to rank: the best candidates as rows, for queries, histories and texts.

``models/ranking.py`` goes from keys to these rows and back. There is no other way to search.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.build import COSINE, MakeIndex, MeasuredIndex, build, find_kind
from rankfold.index.exact import PAIR_BYTES, Exact
from rankfold.index.extra_scores import merge_extra
from rankfold.index.filter import all_hidden
from rankfold.kernels.sparse import blocks
from rankfold.methods import METHODS, answers_of
from rankfold.models import thresholds
from rankfold.models.open_model import open_model
from rankfold.types import (
    Features,
    Index,
    Interactions,
    Model,
    Opened,
    Texts,
    TopK,
    kept_histories,
)

_MAX_BLOCK_TEXTS = _MAX_BLOCK_QUERIES = 4096  # encoded, and given extra scores, at a time
_EXTRA_BYTES = 4096  # upper bound on the bytes of extra scores for a pair of a history
_TOKEN_BYTES = 128  # upper bound on the bytes allocated per token of a block, besides its vector


Extras = tuple[int, int, Interactions]  # start and stop of a block of queries, its extra scores

exact_index: MakeIndex = partial(build, "exact")
exact_similar: MakeIndex = partial(build, "exact", metric=COSINE)


class Filter(NamedTuple):
    """The candidates that a search leaves out."""

    exclude: Interactions | None = None  # row b is not in list b
    allow: Tensor | None = None  # the only candidates of all lists [n], ascending; None: all

    def without(self, pairs: Interactions | None) -> "Filter":
        """The same, and row b of ``pairs`` is not in list b."""
        return Filter(union(self.exclude, pairs), self.allow)


NO_FILTER = Filter()


class Searcher:
    """Ranks by rows. The model is opened and the index built once, when they are first needed.

    A query without information (an empty history, a text without a known word, a vector of zeros)
    gets the most popular candidates. Its scores are the counts of candidates in ``chosen``.
    """

    def __init__(
        self,
        model: Model,
        chosen: Interactions,
        memory_budget: int = 2**30,
        texts: Texts | None = None,
        make: MakeIndex = exact_index,
        make_similar: MakeIndex = exact_similar,
    ) -> None:
        self.model = model
        self.chosen = chosen  # pairs to count popularity in, with the model's candidates
        self.memory_budget = memory_budget  # bytes, for blocks
        self.texts = texts  # of the model's queries, for a method that ranks by text
        self.make, self.make_similar = make, make_similar
        self._thresholds: dict[str, Tensor] = {}

    def of_queries(self, rows: Tensor, k: int, filter: Filter = NO_FILTER) -> TopK:
        """The k best candidates of the model's queries ``rows`` [B]; [B, min(k, N)]."""
        by_history = self.opened.search_histories is not None
        if not by_history and "queries" not in self.model.tensors:
            return self.of_texts(self._texts_of(rows), k, filter)  # rows of the given texts
        known = kept_histories(self.model, self.chosen.n_candidates)
        histories = None if known is None else known.select(rows.to(self._device))
        if by_history and histories is not None:
            return self.of_histories(histories, k, filter)
        return self.of_vectors(self.model.tensors["queries"][rows], k, filter, histories)

    def of_known(
        self, rows: Tensor, histories: Interactions, k: int, filter: Filter = NO_FILTER
    ) -> TopK:
        """The k best candidates of the model's queries ``rows`` [B] after other histories."""
        assert self.opened.known is not None
        candidates = self.model.tensors["candidates"]
        return self.of_vectors(self.opened.known(rows, histories).to(candidates), k, filter)

    def of_histories(self, rows: Interactions, k: int, filter: Filter = NO_FILTER) -> TopK:
        """The k best candidates of new queries; row b of ``rows`` is the history of query b."""
        search = self.opened.search_histories
        if search is None:
            return self.of_vectors(self._folded_in(rows), k, filter, rows)
        rows = rows.to(self._device)
        parts = [
            search(rows.part(start, stop), k, hidden)
            for start, stop, hidden in self._hidden(rows.n_queries, filter)
        ]
        return self._by_popularity(rows.counts() == 0, _joined(parts), filter)

    def of_features(self, features: Features, k: int, filter: Filter = NO_FILTER) -> TopK:
        """The k best candidates of new queries, by their features."""
        if self.opened.features is None:
            raise no_features(self.model)
        candidates = self.model.tensors["candidates"]
        vectors = self.opened.features(features, "query").to(candidates)
        return self.of_vectors(vectors, k, filter)

    def of_texts(self, texts: Texts, k: int, filter: Filter = NO_FILTER) -> TopK:
        """The k best candidates of texts in the model's tokens."""
        search = self.opened.search_texts
        if search is None:
            return self._of_encoded(texts, k, filter)
        parts = []
        for first, last, hidden in self._hidden(len(texts), filter):
            some = texts.select(torch.arange(first, last, device=texts.offsets.device))
            for start, stop in self._blocks(some):
                part = some.select(torch.arange(start, stop, device=texts.offsets.device))
                inner = None if hidden is None else hidden.part(start, stop)
                parts.append(search(part.to(self._device), k, inner))
        blank = texts.counts().to(self._device) == 0
        return self._by_popularity(blank, _joined(parts), filter)

    def _of_encoded(self, texts: Texts, k: int, filter: Filter) -> TopK:
        """The same by inner products, with extra scores if the model has them."""
        vectors, extra = self._encoded(texts), self.opened.extra_texts
        if extra is None:
            return self.of_vectors(vectors, k, filter)
        extras = (
            (start, stop, extra(texts.part(start, stop).to(self._device), vectors[start:stop]))
            for start, stop in self._blocks(texts)
        )
        top = self._with_extra(vectors, k, filter, extras)
        return self._by_popularity((vectors == 0).all(dim=1), top, filter)

    def of_vectors(
        self,
        vectors: Tensor,
        k: int,
        filter: Filter = NO_FILTER,
        histories: Interactions | None = None,
    ) -> TopK:
        """The k best candidates of query vectors [B, D], with the histories that they encode."""
        extra = self.opened.extra
        if extra is None or histories is None:
            top = self.index.search(vectors, k, *filter)
        else:
            histories = histories.to(self._device)
            most = max(1, self.memory_budget // 4 // _EXTRA_BYTES)
            several = blocks(histories, _MAX_BLOCK_QUERIES, most) if len(vectors) else [(0, 0)]
            extras = ((start, stop, extra(histories.part(start, stop))) for start, stop in several)
            top = self._with_extra(vectors, k, filter, extras)
        return self._by_popularity((vectors == 0).all(dim=1), top, filter)

    def _with_extra(
        self, vectors: Tensor, k: int, filter: Filter, extras: Iterable[Extras]
    ) -> TopK:
        """The k best by inner products and extra scores, block by block."""
        index, parts = self.index, []
        for start, stop, extra in extras:
            own = vectors[start:stop]
            hidden = None if filter.exclude is None else filter.exclude.part(start, stop)
            if isinstance(index, Exact):
                parts.append(index.search(own, k, hidden, filter.allow, extra))
            else:
                candidates = self.model.tensors["candidates"]
                top = index.search(own, k, hidden, filter.allow)
                parts.append(merge_extra(top, own, candidates, extra, hidden, filter.allow))
        return _joined(parts)

    def thresholds(self, goal: str) -> Tensor:
        """The score from which on each candidate is returned [N]; see ``models/thresholds.py``."""
        if goal not in self._thresholds:
            found = thresholds.find(self.model, goal, self.chosen.n_candidates)
            self._thresholds = {goal: found}  # the last goal only: a server can be asked for many
        return self._thresholds[goal]

    def like(self, rows: Tensor, k: int, filter: Filter = NO_FILTER) -> TopK:
        """The k candidates most similar to each of ``rows`` [B] by cosine, without itself."""
        n, offsets = len(self.directions), torch.arange(len(rows) + 1)
        hidden = filter.without(Interactions(offsets, rows.to(torch.int32), None, n))
        return self.similar.index.search(self.directions[rows], k, *hidden)

    @cached_property
    def popularity(self) -> Tensor:
        """How many queries chose each candidate; [N]."""
        return self.chosen.candidate_counts()

    def _folded_in(self, rows: Interactions) -> Tensor:
        """Vectors of histories; zeros for an empty one."""
        if self.opened.histories is None:
            raise _no_histories(self.model)
        candidates = self.model.tensors["candidates"]
        vectors = candidates.new_zeros(rows.n_queries, candidates.shape[1])
        filled = rows.counts().nonzero().flatten()
        if len(filled) > 0:
            vectors[filled] = self.opened.histories(rows.select(filled)).to(vectors)
        return vectors

    def _encoded(self, texts: Texts) -> Tensor:
        """Vectors of texts, block by block; zeros for a text without tokens."""
        if self.opened.texts is None:
            raise no_texts(self.model)
        candidates = self.model.tensors["candidates"]
        vectors = candidates.new_zeros(len(texts), candidates.shape[1])
        for start, stop in self._blocks(texts):
            filled = start + texts.counts()[start:stop].nonzero().flatten()
            if len(filled) > 0:
                block = self.opened.texts(texts.select(filled).to(self._device), "query")
                vectors[filled.to(self._device)] = block.to(vectors)
        return vectors

    def _blocks(self, texts: Texts) -> Iterator[tuple[int, int]]:
        """Start and stop of blocks of texts whose tokens fit in a quarter of the memory budget."""
        candidates = self.model.tensors.get("candidates")
        width = 0 if candidates is None else candidates.shape[1]
        max_tokens = max(1, self.memory_budget // 4 // (_TOKEN_BYTES + 4 * width))
        if len(texts) == 0:
            yield 0, 0
        yield from blocks(
            Interactions(texts.offsets, texts.tokens, None, 0), _MAX_BLOCK_TEXTS, max_tokens
        )

    def _hidden(self, n: int, filter: Filter) -> Iterator[tuple[int, int, Interactions | None]]:
        """Start and stop of the blocks for a method's own search, and the hidden pairs of each.

        Such a search takes no allow-list: all other candidates are excluded, in small blocks.
        """
        exclude = None if filter.exclude is None else filter.exclude.to(self._device)
        if filter.allow is None:
            yield 0, n, exclude
            return
        allow, n_candidates = filter.allow.to(self._device), self.chosen.n_candidates
        step = max(1, self.memory_budget // (PAIR_BYTES * max(n_candidates, 1)))
        for start in range(0, max(n, 1), step):
            stop = min(start + step, n)
            part = None if exclude is None else exclude.part(start, stop)
            yield start, stop, all_hidden(part, allow, (stop - start, n_candidates))

    def _by_popularity(self, blank: Tensor, top: TopK, filter: Filter) -> TopK:
        """``top`` with the most popular candidates in the rows where ``blank`` [B]."""
        places = blank.nonzero().flatten()
        if len(places) == 0:
            return top
        exclude = filter.exclude
        hidden = None if exclude is None else exclude.to(blank.device).select(places)
        same = torch.ones(len(places), 1, dtype=torch.float64, device=blank.device)
        popular = self._popular.search(same, top.ids.shape[1], hidden, filter.allow)
        top.ids[places] = popular.ids
        top.scores[places] = popular.scores.to(top.scores.dtype)
        return top

    @property
    def index(self) -> Index:
        """Searches the vectors of the candidates."""
        return self.measured.index

    @cached_property
    def measured(self) -> MeasuredIndex:
        """The index, and its facts: kind, metric, recall."""
        candidates = self.model.tensors["candidates"]
        return self.make(candidates, self.memory_budget, self.some_vectors)

    @cached_property
    def directions(self) -> Tensor:
        """The vectors of candidates with length 1 [N, D]; a UserError for a model without them."""
        candidates = self.model.tensors.get("candidates")
        if candidates is None or candidates.shape[1] == 1:
            raise UserError(
                f"{self.model.method} cannot find similar candidates: it has no vectors of them",
                hint="fit a method with vectors, such as rg2",
            )
        return torch.nn.functional.normalize(candidates, dim=1)

    @cached_property
    def similar(self) -> MeasuredIndex:
        """Searches the directions, for similar candidates."""
        return self.make_similar(self.directions, self.memory_budget, lambda _n: None)

    def vectors(self, rows: Tensor) -> Tensor:
        """The vectors of the model's queries ``rows`` [B]; [B, D]."""
        if "queries" in self.model.tensors:
            return self.model.tensors["queries"][rows]
        return self._encoded(self._texts_of(rows))

    def some_vectors(self, n: int, seed: int = 0) -> Tensor | None:
        """The vectors of at most n queries, without zero vectors; None if fewer than two remain."""
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
                f"{self.model.method} ranks by the texts of queries, but there are none",
                hint="pass the texts of the queries",
            )
        return self.texts.select(rows.to(self.texts.offsets.device))

    @cached_property
    def _popular(self) -> Exact:
        counts = self.popularity.to(self._device, torch.float64)  # exact for any count
        return Exact(counts[:, None], self.memory_budget)

    @cached_property
    def opened(self) -> Opened:
        """The model with its modules built; nothing where the vectors come from elsewhere."""
        return open_model(self.model) if self.model.method in METHODS else Opened()

    @property
    def _device(self) -> torch.device:
        return next(iter(self.model.tensors.values())).device


def find_index(name: str, model: Model) -> MakeIndex:
    """Builds an index by name; a UserError for a model that cannot use it."""
    find_kind(name)
    if name != "exact" and has_own_search(model):
        raise UserError(
            f"{model.method} has no vectors for an {name} index to search",
            hint="use --index exact: the model brings its own search",
        )
    return partial(build, name)


def _joined(parts: Sequence[TopK]) -> TopK:
    ids, scores = zip(*parts, strict=True)
    return TopK(torch.cat(ids), torch.cat(scores)) if len(parts) > 1 else parts[0]


def union(some: Interactions | None, more: Interactions | None) -> Interactions | None:
    """The pairs of either."""
    if some is None or more is None:
        return some if more is None else more
    return some.union(more)


def has_own_search(model: Model) -> bool:
    """Whether the method brings its own search: there are no vectors to index."""
    method = METHODS.get(model.method)
    return method is not None and method.own_search


def ranks_by_text(model: Model) -> bool:
    method = METHODS.get(model.method)
    return method is not None and "texts" in method.answers


def no_texts(model: Model) -> UserError:
    able = [name for name, method in METHODS.items() if method.data_kind == "texts"]
    method = METHODS.get(model.method)
    history = " or a history" if method is not None and "histories" in answers_of(model) else ""
    hint = f"give a known query{history}, or fit one of {', '.join(able)}"
    return UserError(f"{model.method} does not rank by text", hint=hint)


def no_features(model: Model) -> UserError:
    """The model cannot rank for a new query by its features."""
    able = [name for name, method in METHODS.items() if "features" in method.answers]
    if model.method not in able:
        return UserError(
            f"{model.method} does not rank by features", hint=f"fit one of {', '.join(able)}"
        )
    return UserError(
        f"this {model.method} model was fitted without features of queries",
        hint="prepare the data with --query-features, and fit with --set encoder=towers",
    )


def _no_histories(model: Model) -> UserError:
    if ranks_by_text(model):
        return UserError(
            f"{model.method} ranks by text, not by history", hint="give the text with --text"
        )
    able = [name for name, method in METHODS.items() if "histories" in method.answers]
    by_features = ", by features" if "query_columns" in model.notes else ""
    encoder = model.config.get("encoder")
    this = model.method if encoder is None else f"this {model.method} model, encoder={encoder},"
    able += [] if encoder is None else [f"{model.method} with --set encoder=history"]
    return UserError(
        f"{this} cannot be queried by history",
        hint=f"search with a known query{by_features}, or fit one of {', '.join(able)}",
    )
