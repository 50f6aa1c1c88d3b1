"""What a fit leaves in your hands: a model that answers in keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold import storage
from rankfold.data.build.align import (
    arrange,
    arrange_texts,
    changed_rows,
    merge,
    own_pairs,
    renumber,
    rows_of,
)
from rankfold.data.build.features import align
from rankfold.data.build.tokens import tokenise
from rankfold.data.folder import (
    TOKENIZER,
    from_tensors,
    texts_of,
    to_table,
    tokenizer_of,
    vocabulary,
)
from rankfold.data.integrity import check_content, texts_valid
from rankfold.data.prepare import as_data
from rankfold.data.read.keyed_tables import Keyed, open_table
from rankfold.data.read.reading import BadRows
from rankfold.data.read.text_tables import TextTable, as_texts, open_texts
from rankfold.errors import UserError
from rankfold.index.build import SIMILAR, SavedIndexes
from rankfold.methods import METHODS
from rankfold.models.search import (
    Searcher,
    find_index,
    histories,
    no_texts,
    ranks_itself,
    similar_by_all,
    takes_texts,
    to_history,
)
from rankfold.types import (
    Columns,
    Dataset,
    Features,
    Interactions,
    Key,
    Kind,
    Model,
    Texts,
    TopK,
    Vocabulary,
    from_pairs,
    to_tensors,
)

FOLDED_IN = "folded_in"  # tensor: which queries were folded in after the fit


class Ranking(NamedTuple):
    """Ranked lists in keys, best first."""

    keys: list[list[Key]]  # a list is shorter than K where there are fewer candidates
    scores: NDArray[np.float32]  # [B, K], -inf beyond the end of a list
    texts: list[list[str | None]] | None = None  # beside the keys; None: no candidate has one


@dataclass(frozen=True, slots=True)
class Ranker:
    """A model, the keys of its rows, the pairs it has seen, and texts where it ranks by these."""

    model: Model
    queries: Vocabulary
    candidates: Vocabulary
    seen: Interactions  # not returned unless asked for
    excluded: Interactions | None = None  # never returned
    texts: Texts | None = field(default=None, repr=False)  # of the queries, if it ranks by these
    tokenizer: str | None = field(default=None, repr=False)  # of new texts; None: cannot be read
    n_tokens: int = 0  # every token is below it
    index: str | None = None  # what searches vectors, a key of ``INDEXES``; None: as ``saved``
    saved: SavedIndexes | None = field(default=None, repr=False, compare=False)  # in its folder
    searcher: Searcher = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        make, alike = find_index(self.index or "exact", self.model), similar_by_all
        if self.saved is not None and self.index is None and "index" in self.saved:
            make = partial(self.saved.open, "index")
        if self.saved is not None and self.index is None and SIMILAR in self.saved:
            alike = partial(self.saved.open, SIMILAR)
        searcher = Searcher(self.model, self.seen, texts=self.texts, make=make, make_similar=alike)
        object.__setattr__(self, "searcher", searcher)

    def search(
        self,
        queries: Sequence[Key] | None = None,
        *,
        history: Sequence[Key] | None = None,
        texts: Sequence[str] | None = None,
        candidates: Sequence[Key] | None = None,
        k: int = 10,
        include_seen: bool = False,
        exclude: Sequence[Key] = (),
        allow: Sequence[Key] | None = None,
    ) -> Ranking:
        """The best ``k`` candidates for queries, for a history, for texts, or like candidates.

        Args:
            queries: keys of known queries.
            history: candidates that a new query chose: one list is returned; the most popular
                candidates if it chose none.
            texts: new queries, of a model that ranks by text; the most popular candidates for one
                without a known word.
            candidates: keys of candidates, each answered by those most like it (by cosine).
            k: the length of a list.
            include_seen: also return what the query chose before.
            exclude: keys of candidates that are not returned; unknown ones are ignored.
            allow: keys of the only candidates that are returned, unknown ones ignored; None: all.
        """
        asked = [
            name
            for name, value in (
                ("queries", queries),
                ("history", history),
                ("texts", texts),
                ("candidates", candidates),
            )
            if value is not None
        ]
        if len(asked) != 1:
            raise UserError(
                f"search was given {' and '.join(asked) or 'nothing'}",
                hint="give one of queries, history, texts, candidates",
            )
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least 1 result")
        allowed = None if allow is None else self._known(allow)
        if queries is not None:
            rows = self.queries.rows(_listed(queries), "query")
            hidden = self._without(self.hidden(rows, include_seen=include_seen), exclude, len(rows))
            return self.in_keys(self.searcher.of_queries(rows, k, hidden, allowed))
        if history is not None:
            chosen = self._chosen(_listed(history))
            hidden = self._without(None if include_seen else chosen, exclude, 1)
            return self.in_keys(self.searcher.of_histories(chosen, k, hidden, allowed))
        if texts is not None:
            tokens = self.tokens([*map(str, _listed(texts))])
            hidden = self._without(None, exclude, len(tokens))
            return self.in_keys(self.searcher.of_texts(tokens, k, hidden, allowed))
        assert candidates is not None
        rows = self.candidates.rows(_listed(candidates), "candidate")
        return self.in_keys(
            self.searcher.like(rows, k, self._without(None, exclude, len(rows)), allowed)
        )

    @property
    def about(self) -> dict[str, Any]:
        """What is known of the index in use, as plain JSON values; it is made if it was not yet."""
        if ranks_itself(self.model):
            return {"kind": "exact", "metric": "its own", "recall": {}}
        return dict(self.searcher.measured.about)

    def hidden(self, rows: Tensor, *, include_seen: bool) -> Interactions | None:
        """What may not be returned for known queries, a row each."""
        excluded = None if self.excluded is None else self.excluded.select(rows)
        if include_seen:
            return excluded
        seen = self.seen.select(rows)
        return seen if excluded is None else seen.union(excluded)

    def top_k(self, rows: Tensor, k: int, exclude: Interactions | None) -> TopK:
        """The best candidates of known queries, as rows; row b of ``exclude`` is not in list b."""
        return self.searcher.of_queries(rows, k, exclude)

    def tokens(self, texts: Sequence[str | None] | pl.Series) -> Texts:
        """New texts in the model's tokens; words that it does not know have none."""
        if not takes_texts(self.model):
            raise no_texts(self.model)
        if self.tokenizer is None or (self.texts is not None and self.texts.weights is not None):
            raise UserError(
                "the model was fitted on bags of tokens, and nothing tells how to make one",
                hint="give a known query, or fit on data that was prepared from texts",
            )
        return tokenise(self.tokenizer, texts)

    def _chosen(self, history: list[Key]) -> Interactions:
        """A history, as the row of one query."""
        rows = self.candidates.rows(history, "candidate").unique()
        return from_pairs(torch.zeros_like(rows), rows, None, (1, len(self.candidates)))

    def _known(self, keys: Sequence[Key]) -> Tensor:
        """The rows of those candidates that the model knows, ascending."""
        rows: Tensor = self.candidates.find(_listed(keys)).unique()
        return rows[rows >= 0]

    def _without(
        self, hidden: Interactions | None, exclude: Sequence[Key], n: int
    ) -> Interactions | None:
        """What is hidden from n queries, and some candidates from all of them."""
        rows = self._known(exclude)
        if len(rows) == 0:
            return hidden
        more = from_pairs(
            torch.arange(n).repeat_interleave(len(rows)),
            rows.repeat(n),
            None,
            (n, len(self.candidates)),
        )
        return more if hidden is None else hidden.union(more)

    def in_keys(self, found: TopK) -> Ranking:
        """Results in keys, and the texts beside them."""
        lengths = (found.ids >= 0).sum(dim=1).tolist()
        rows = found.ids.clamp(min=0).flatten()
        keys, texts = self.candidates.take(rows), self.candidates.texts
        return Ranking(
            _lists(keys.to_list(), lengths, found.ids.shape[1]),
            found.scores.numpy(),
            None
            if texts is None
            else _lists(texts.gather(rows.numpy()).to_list(), lengths, found.ids.shape[1]),
        )

    def add(self, data: Any) -> Ranker:
        """A ranker that also knows the training pairs of ``data``, without fitting again.

        A query with a new pair, known or not, gets a vector from all that it has chosen; the other
        queries and all candidates stay as they are. Pairs with candidates that the model does not
        know are left out; ``notes["added"]`` counts what was added and what was not.

        Args:
            data: prepared data or its folder; or a table or matrix of pairs, as ``fit`` takes it.
        """
        check_grows(self.model.method)
        data = as_data(data)
        train, excluded = _in_candidates(data, self.candidates)
        having = pl.Series((train.counts() > 0).numpy())
        grown = self._arranged(merge(self.queries, data.queries.keys.filter(having)))
        rows = data.queries.find(grown.queries.keys)
        more = arrange(train, rows)
        seen, changed = grown.seen.union(more), changed_rows(grown.seen, more)
        hidden = grown.excluded
        if excluded is not None:
            theirs = arrange(excluded, rows)
            hidden = theirs if hidden is None else hidden.union(theirs)
        new = len(grown.queries) - len(self.queries)
        entry = {
            "data": data.fingerprint,
            "queries": new,
            "changed": len(changed) - new,
            "pairs": seen.n_pairs - self.seen.n_pairs,
            "left_out": data.split("train").n_pairs - train.n_pairs,
            "unknown_candidates": _distinct(data.split("train")) - _distinct(train),
        }
        notes = {**self.model.notes, "added": [*self.model.notes.get("added", []), entry]}
        model = replace(_folded_in(grown.model, seen, changed), notes=notes)
        return replace(grown, model=model, seen=seen, excluded=hidden)

    def add_candidates(
        self, table: Any, key_column: str | None = None, text_column: str | None = None
    ) -> Ranker:
        """A ranker that also knows the candidates of ``table``, by what it says of them.

        Their vectors are made from their texts, if the model ranks by text, else from the columns
        that it was fitted with; all else stays as it is. Nobody has chosen them yet: where
        popularity decides, they come last. An entry of ``notes["extended"]`` counts them, and the
        rows of the table that could not be used.

        Args:
            table: one file, or a polars, pandas or Arrow table: a row per new candidate. Of texts
                also a .txt of lines ``key TAB text``.
            key_column: where the keys are; None: the column ``candidate`` or, without one, the
                first that is not among the model's features.
            text_column: where the texts are; None: a column with a usual name, or the only one.
        """
        if takes_texts(self.model):
            return self._with_texts(table, key_column, text_column)
        if text_column is not None:
            raise UserError(
                f"{self.model.method} does not rank by text", hint="leave the column of text out"
            )
        encode, columns = _encoder(self.model)
        found = open_table(table, key_column, usual="candidate", like=columns)
        _check_new(found, self.candidates)
        keys = found.keys.sort()
        features = align(found, Vocabulary(len(keys), lambda: keys), columns)
        entry = {"candidates": len(keys), **_left_out(found.bad)}
        return self._extended(keys, encode(self.model, features), None, entry)

    def _with_texts(self, table: Any, key_column: str | None, text_column: str | None) -> Ranker:
        """The same with the candidates of a table of texts."""
        encode = METHODS[self.model.method].encode_texts
        if encode is None:
            raise UserError(
                f"{self.model.method} makes no vectors from texts: it knows its candidates alone",
                hint="fit it again on all of the data",
            )
        if key_column is text_column is None:
            found = open_texts(table, "candidate", None)
        else:  # what has columns is no file of lines
            opened = open_table(table, key_column, usual="candidate", what="texts")
            found = as_texts(opened, text_column)
        _check_new(found, self.candidates)
        keys, words = _in_order(found, named=not self.candidates.holds_integers)
        tokens = self.tokens(words)
        entry = {
            "candidates": len(keys),
            **_left_out(found.bad),
            "without_words": int((tokens.counts() == 0).sum()),
        }
        return self._extended(keys, encode(self.model, tokens, "candidate"), words, entry)

    def _extended(
        self, keys: pl.Series, vectors: Tensor, words: pl.Series | None, entry: dict[str, Any]
    ) -> Ranker:
        """The same with new candidates, of these vectors and, if there are any, words."""
        new = Vocabulary(len(keys), lambda: keys, lambda: words)
        grown = self._widened(_shown(merge(self.candidates, keys), self.candidates, new))
        tensors = dict(grown.model.tensors)
        tensors["candidates"][grown.candidates.find(keys)] = vectors.to(tensors["candidates"])
        if self.saved is not None and "index" in self.saved:
            entry = {**entry, "indexes_dropped": len(self.saved.meta())}
        notes = {**self.model.notes, "extended": [*self.model.notes.get("extended", []), entry]}
        return replace(grown, model=replace(grown.model, tensors=tensors, notes=notes))

    def remove(self, queries: Sequence[Key]) -> Ranker:
        """A ranker that does not know ``queries``: their keys, vectors and pairs are gone.

        What the candidates' vectors have learnt from them stays until the next fit.
        """
        if METHODS[self.model.method].search_texts is not None:
            raise UserError(
                f"{self.model.method} keeps the words of its queries in what it has learnt",
                hint="remove the queries from the data, and fit again",
            )
        left = torch.ones(len(self.queries), dtype=torch.bool)
        left[self.queries.rows(_listed(queries), "query")] = False
        if not bool(left.any()):
            raise UserError(
                f"the model has no other than these {len(left):,} queries",
                hint="leave one, or remove the model's folder",
            )
        keys = self.queries.take(left.nonzero().flatten())
        fewer = self._arranged(Vocabulary(len(keys), lambda: keys))
        removed = self.model.notes.get("removed", 0) + int((~left).sum())
        model = replace(fewer.model, notes={**fewer.model.notes, "removed": removed})
        return replace(fewer, model=model)

    def _arranged(self, queries: Vocabulary) -> Ranker:
        """The same with the rows of ``queries``: new ones are empty, others are gone."""
        rows = self.queries.find(queries.keys)
        tensors = dict(self.model.tensors)
        for name in tensors.keys() & {*METHODS[self.model.method].per_query, FOLDED_IN}:
            tensors[name] = _rows(tensors[name], rows)
        if METHODS[self.model.method].search is not None:
            tensors |= to_history(arrange(histories(self.model, len(self.candidates)), rows))
        return replace(
            self,
            model=replace(self.model, tensors=tensors),
            queries=queries,
            seen=arrange(self.seen, rows),
            excluded=None if self.excluded is None else arrange(self.excluded, rows),
            texts=None if self.texts is None else arrange_texts(self.texts, rows),
        )

    def _widened(self, candidates: Vocabulary) -> Ranker:
        """The same with the rows of ``candidates``, ours among them; new ones have zeros."""
        rows, places = self.candidates.find(candidates.keys), candidates.find(self.candidates.keys)
        tensors, n = dict(self.model.tensors), len(candidates)
        for name in tensors.keys() & {*METHODS[self.model.method].per_candidate}:
            tensors[name] = _rows(tensors[name], rows)
        if METHODS[self.model.method].search is not None:
            tensors |= to_history(renumber(histories(self.model, len(places)), places, n))
        excluded = None if self.excluded is None else renumber(self.excluded, places, n)
        if excluded is not None and self._excludes_own():
            excluded = excluded.union(own_pairs(self.queries, candidates))
        model, seen = replace(self.model, tensors=tensors), renumber(self.seen, places, n)
        return replace(
            self, model=model, candidates=candidates, seen=seen, excluded=excluded, saved=None
        )

    def _excludes_own(self) -> bool:
        """Whether no query may get the candidate of its own key."""
        own = own_pairs(self.queries, self.candidates)
        return self.excluded is not None and len(changed_rows(self.excluded, own)) == 0

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing the model that is there."""
        meta = {
            "method": self.model.method,
            "config": dict(self.model.config),
            "notes": dict(self.model.notes),
            "sizes": [len(self.queries), len(self.candidates)],
            "shows_texts": self.candidates.texts is not None,
        }
        files: dict[str, storage.Content] = {
            "tensors": {name: tensor.cpu() for name, tensor in self.model.tensors.items()},
            "seen": to_tensors(self.seen),
            "queries": pl.DataFrame({"key": self.queries.keys}),
            "candidates": to_table(self.candidates),
        }
        if self.excluded is not None:
            files["excluded"] = to_tensors(self.excluded)
        if self.texts is not None:
            files["texts"] = to_tensors(self.texts)
            meta["n_tokens"] = self.n_tokens
        if self.tokenizer is not None:
            files[TOKENIZER] = self.tokenizer
        if self.saved is not None:
            files |= self.saved.files()
            meta |= self.saved.meta()
        storage.write(Path(path), "model", meta, files)


def check_grows(method: str) -> None:
    """A UserError for a method that takes in no pairs without fitting again."""
    if METHODS[method].data_kind == "texts":
        raise UserError(
            f"{method} ranks by text, and cannot take in pairs without fitting again",
            hint="search by text: a new query needs no pairs; new candidates come by `extend`",
        )
    if METHODS[method].fold_in is None and METHODS[method].search is None:
        raise UserError(
            f"{method} cannot take in pairs without fitting again",
            hint="fit it again on all of the data, or fit another method",
        )


def _left_out(bad: BadRows) -> dict[str, Any]:
    """How many rows could not be used and, if there are any, why, and where the first are."""
    told = {"dropped": bad.summary()} if bad.counts else {}
    return {"left_out": bad.total, **told}


def _encoder(model: Model) -> tuple[Callable[[Model, Features], Tensor], Columns]:
    """What makes vectors of new candidates, and of which features."""
    encode = METHODS[model.method].encode_candidates
    if encode is None:
        able = [name for name, method in METHODS.items() if method.encode_candidates is not None]
        raise UserError(
            f"{model.method} makes no vectors from features",
            hint=f"fit one of {', '.join(able)}" if able else "fit it again on all of the data",
        )
    if "candidate_columns" not in model.notes:
        raise UserError(
            "this model was fitted without features of candidates",
            hint="prepare the data with --candidate-features, and fit with --set encoder=towers",
        )
    return encode, Columns.from_json(model.notes["candidate_columns"])


def _check_new(table: Keyed, candidates: Vocabulary) -> None:
    known = table.keys.filter(pl.Series((candidates.find(table.keys) >= 0).numpy()))
    if len(known):
        others = f" and {len(known) - 1:,} more" if len(known) > 1 else ""
        raise UserError(
            f"the model knows the candidate {known[0]!r}{others} of {table.name} already",
            hint="leave known ones out of the table; where they changed, fit again",
        )


def _in_order(table: TextTable, *, named: bool) -> tuple[pl.Series, pl.Series]:
    """The keys of a table, ascending, and their words; ``named``: a key stands for missing ones."""
    assert table.words is not None
    order = table.keys.arg_sort()
    keys, words = table.keys.gather(order), table.words.gather(order)
    if named or keys.dtype == pl.String:
        words = words.fill_null(keys.cast(pl.String))
    return keys, words


def _shown(merged: Vocabulary, *parts: Vocabulary) -> Vocabulary:
    """The merged keys with the texts that one of the parts shows beside them, if one does."""
    if all(part.texts is None for part in parts):
        return merged
    texts = pl.Series([None] * len(merged), dtype=pl.String)
    for part in parts:
        if part.texts is not None:
            texts = texts.scatter(merged.find(part.keys).numpy(), part.texts)
    return Vocabulary(len(merged), lambda: merged.keys, lambda: texts)


def _lists(flat: list[Any], lengths: Sequence[int], width: int) -> list[list[Any]]:
    """The first so many of each ``width`` entries."""
    return [flat[row * width : row * width + length] for row, length in enumerate(lengths)]


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Row i is the row ``rows[i]`` of ``tensor``, zeros where that is -1."""
    found = tensor[rows.clamp(min=0)]
    found[rows < 0] = 0
    return found


def _in_candidates(
    data: Dataset, candidates: Vocabulary
) -> tuple[Interactions, Interactions | None]:
    """The training pairs and the excluded pairs of data, as far as their candidates are known."""
    check_content(data)
    rows, n = rows_of(candidates, data.candidates), len(candidates)
    train = renumber(data.split("train"), rows, n)
    if train.n_pairs == 0:
        raise UserError(
            "the model knows no candidate of the pairs to add",
            hint="are the columns of queries and candidates the right ones?",
        )
    return train, None if data.excluded is None else renumber(data.excluded, rows, n)


def _distinct(pairs: Interactions) -> int:
    """How many candidates have a pair."""
    return int((pairs.candidate_counts() > 0).sum())


def _folded_in(model: Model, seen: Interactions, changed: Tensor) -> Model:
    """The model in which the rows ``changed`` answer by all that they have seen."""
    if len(changed) == 0:
        return model
    method, tensors = METHODS[model.method], dict(model.tensors)
    is_changed = torch.zeros(seen.n_queries, dtype=torch.bool).index_fill(0, changed, value=True)
    if method.search is not None:
        now = arrange(seen, torch.where(is_changed, torch.arange(len(is_changed)), -1))
        known = histories(model, seen.n_candidates)
        tensors |= to_history(known.union(replace(now, grades=None)))
    elif method.fold_in is not None:
        vectors = method.fold_in(model, seen.select(changed)).to(tensors["queries"])
        tensors["queries"] = tensors["queries"].index_copy(0, changed, vectors)
    tensors[FOLDED_IN] = tensors.get(FOLDED_IN, torch.zeros_like(is_changed)) | is_changed
    return replace(model, tensors=tensors)


def load(path: str | Path, index: str | None = None) -> Ranker:
    """Open the folder of a model that ranks; every file is compared with its checksum first.

    Args:
        path: the folder.
        index: what searches vectors: a key of ``INDEXES``, which is built when it is first needed;
            None: the folder's own index, or exact search where it has none.
    """
    folder = storage.read(Path(path), "model", full=True)
    with storage.check_contents(folder.path):
        if kind_of(folder) == "graded":
            raise UserError(
                f"{path} was fitted with {folder.manifest['method']}, which grades rows and ranks "
                "no candidates",
                hint="`rankfold predict` gives rows their grades",
            )
        return from_folder(folder, index)


def kind_of(folder: storage.Folder) -> Kind:
    """What the method of a model folder was fitted on."""
    name = folder.manifest["method"]
    if name not in METHODS:
        raise UserError(
            f"{folder.path} was fitted with {name!r}, which this rankfold does not have",
            hint="use the rankfold that wrote it",
        )
    return METHODS[name].data_kind


def from_folder(folder: storage.Folder, index: str | None) -> Ranker:
    """The model that ranks in a folder whose files are good."""
    meta = folder.manifest
    n_queries, n_candidates = meta["sizes"]
    shows = bool(meta.get("shows_texts"))
    return Ranker(
        Model(meta["method"], meta["config"], folder.tensors("tensors"), meta["notes"]),
        vocabulary(folder, "queries", n_queries),
        vocabulary(folder, "candidates", n_candidates, texts=shows),
        from_tensors(folder.tensors("seen"), n_candidates),
        from_tensors(folder.tensors("excluded"), n_candidates) if "excluded" in folder else None,
        **_read_texts(folder, n_queries),
        index=index,
        saved=SavedIndexes(folder),
    )


def _read_texts(folder: storage.Folder, n_queries: int) -> dict[str, Any]:
    """What a model that ranks by text has besides; nothing for another."""
    meta = folder.manifest
    if kind_of(folder) != "texts":
        return {}
    texts, n_tokens = texts_of(folder, "texts", n_queries), int(meta["n_tokens"])
    if texts is None or not texts_valid(texts, n_tokens):
        what = "has no texts of its queries" if texts is None else "its texts are no texts"
        raise storage.damaged(folder.path, what)
    return {"texts": texts, "tokenizer": tokenizer_of(folder), "n_tokens": n_tokens}


def _listed(keys: Sequence[Key]) -> list[Key]:
    """A list of keys; a lone key is a list of one."""
    return list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
