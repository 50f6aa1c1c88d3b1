"""Updates without a fit: ``add`` pairs, ``extend`` by candidates, ``forget`` keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from torch import Tensor

from rankfold.data.build.align import arrange, changed_rows, merge, own_pairs, renumber, rows_of
from rankfold.data.build.features import align
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.keyed_tables import as_texts, open_table, open_texts
from rankfold.data.read.results import KeyedTable, TextTable
from rankfold.errors import UserError
from rankfold.methods import METHODS, answers_with
from rankfold.models.added_texts import merged_texts, with_texts_of
from rankfold.models.search import has_own_search, ranks_by_text, union
from rankfold.models.thresholds import renumbered
from rankfold.types import (
    Columns,
    Dataset,
    Features,
    Interactions,
    Key,
    Model,
    Side,
    Texts,
    Vocabulary,
    history_tensors,
    kept_histories,
    list_tensors,
    list_with,
)

if TYPE_CHECKING:
    from rankfold.models.ranker import Ranker

_FOLDED_IN = "folded_in"  # tensor: which queries were folded in after the fit


def check_grows(method: str, config: Mapping[str, Any]) -> None:
    """A UserError for a method whose models cannot take new pairs, with some settings."""
    if METHODS[method].data_kind == "texts":
        if METHODS[method].add_documents is not None:
            return
        raise UserError(
            f"{method} ranks by text and cannot add pairs without a fit",
            hint="search by text: a new query needs no pairs; `extend` adds candidates",
        )
    if "histories" not in answers_with(method, config):
        by_encoder = "histories" in answers_with(method, {**config, "encoder": "history"})
        other = "with --set encoder=history" if by_encoder else "another method"
        raise UserError(
            f"{method} cannot add pairs without a fit",
            hint=f"fit it again on all of the data, or fit {other}",
        )


def add(ranker: Ranker, data: Any) -> Ranker:
    """See ``Ranker.add``."""
    check_grows(ranker.model.method, ranker.model.config)
    data = as_data(data)
    train, excluded = _in_candidates(data, ranker.candidates)
    queries = merge(ranker.queries, data.queries.keys.filter((train.counts() > 0).numpy()))
    grown, texts = _with_queries(ranker, queries), None
    if ranks_by_text(ranker.model):  # its candidates move: an index is lost
        texts = with_texts_of(data, ranker, queries)
        grown = replace(grown, texts=texts, saved=None)
    rows = data.queries.find(grown.queries.keys)
    more = arrange(train, rows)
    if grown.seen.times is not None and more.times is None:  # new pairs are the latest
        more = replace(more, times=torch.full((more.n_pairs,), torch.inf, dtype=torch.float64))
    seen, changed = grown.seen.union(more), changed_rows(grown.seen, more)
    hidden = union(grown.excluded, None if excluded is None else arrange(excluded, rows))
    new = len(grown.queries) - len(ranker.queries)
    entry = {
        "data": data.fingerprint,
        "queries": new,
        "changed": len(changed) - new,
        "pairs": seen.n_pairs - ranker.seen.n_pairs,
        "left_out": data.split("train").n_pairs - train.n_pairs,
        "unknown_candidates": _n_chosen(data.split("train")) - _n_chosen(train),
    }
    entry |= {} if texts is None else _dropped_indexes(ranker)
    notes = _appended(ranker.model, "added", entry)
    model = replace(_folded_in(grown.model, seen, changed, texts), notes=notes)
    return replace(grown, model=model, seen=seen, excluded=hidden)


def extend(
    ranker: Ranker,
    table: Any,
    key_column: str | None,
    text_column: str | None,
    documents: Any = None,
) -> Ranker:
    """See ``Ranker.extend``."""
    if ranks_by_text(ranker.model):
        if documents is not None:
            check_grows(ranker.model.method, ranker.model.config)
        grown = _extend_by_texts(ranker, table, key_column, text_column)
        return grown if documents is None else add(grown, documents)
    for name, given in (("text-column", text_column), ("documents", documents)):
        if given is not None:
            raise UserError(
                f"{ranker.model.method} does not rank by text", hint=f"leave --{name} out"
            )
    encode, columns = _feature_encoder(ranker)
    rows = open_table(table, key_column, usual="candidate", like=columns)
    _check_new(rows, ranker.candidates)
    keys = rows.keys.sort()
    features = align(rows, Vocabulary.of(keys), columns)
    entry = {"candidates": len(keys), **_left_out(rows.bad)}
    grown = _extended(ranker, keys, encode(features, "candidate"), None, entry)
    if grown.features is not None:
        places = grown.candidates.find(keys)
        grown.features.numbers[places] = features.numbers
        grown.features.categories[places] = features.categories
    return grown


def forget(ranker: Ranker, queries: Sequence[Key]) -> Ranker:
    """See ``Ranker.forget``."""
    if has_own_search(ranker.model) and ranks_by_text(ranker.model):
        raise UserError(
            f"{ranker.model.method} has learnt from its queries and cannot forget them",
            hint="remove the queries from the data, and fit again",
        )
    if not queries:
        return ranker
    left = _left(ranker.queries, queries, "query")
    keys = ranker.queries.take(left.nonzero().flatten())
    fewer = _with_queries(ranker, Vocabulary.of(keys))
    removed = ranker.model.notes.get("removed", 0) + int((~left).sum())
    model = replace(fewer.model, notes={**fewer.model.notes, "removed": removed})
    return replace(fewer, model=model)


def forget_candidates(ranker: Ranker, candidates: Sequence[Key]) -> Ranker:
    """See ``Ranker.forget``."""
    if not candidates:
        return ranker
    if has_own_search(ranker.model) or not ranks_by_text(ranker.model):
        raise UserError(
            f"{ranker.model.method} cannot remove candidates without a fit",
            hint="exclude them from each search, or remove them from the data and fit again",
        )
    left = _left(ranker.candidates, candidates, "candidate")
    rows, texts = left.nonzero().flatten(), ranker.candidates.texts
    words = None if texts is None else texts.gather(rows.numpy())
    fewer = _with_candidates(ranker, Vocabulary.of(ranker.candidates.take(rows), words))
    removed = ranker.model.notes.get("removed_candidates", 0) + int((~left).sum())
    notes = {**fewer.model.notes, "removed_candidates": removed}
    return replace(fewer, model=replace(fewer.model, notes=notes))


def _left(known: Vocabulary, removed: Sequence[Key], side: Side) -> Tensor:
    """Which rows of a side are left without some keys; a UserError if none is."""
    left = torch.ones(len(known), dtype=torch.bool)
    left[known.rows(removed, side)] = False
    if not bool(left.any()):
        sides = {"query": "queries", "candidate": "candidates"}
        raise UserError(
            f"the model has no {sides[side]} besides these {len(left):,}",
            hint="keep at least one, or remove the model's folder",
        )
    return left


# ---------------------------------------------------------------------------------- rows


def _with_queries(ranker: Ranker, queries: Vocabulary) -> Ranker:
    """The model with the rows of ``queries``: new ones are empty, missing ones are gone."""
    rows = ranker.queries.find(queries.keys)
    tensors = dict(ranker.model.tensors)
    for name in tensors.keys() & {*METHODS[ranker.model.method].per_query, _FOLDED_IN}:
        tensors[name] = _rows(tensors[name], rows)
    tensors |= _lists(ranker.model, METHODS[ranker.model.method].query_lists, rows)
    if (known := kept_histories(ranker.model, len(ranker.candidates))) is not None:
        tensors |= history_tensors(arrange(known, rows))
    return replace(
        ranker,
        model=replace(ranker.model, tensors=tensors),
        queries=queries,
        seen=arrange(ranker.seen, rows),
        excluded=None if ranker.excluded is None else arrange(ranker.excluded, rows),
        texts=None if ranker.texts is None else arrange(ranker.texts, rows),
    )


def _with_candidates(ranker: Ranker, candidates: Vocabulary) -> Ranker:
    """The model with the rows of ``candidates``: new ones have zeros, missing ones are gone."""
    rows, places = ranker.candidates.find(candidates.keys), candidates.find(ranker.candidates.keys)
    tensors, n = dict(ranker.model.tensors), len(candidates)
    places = torch.where(places < 0, n, places)  # ``renumber`` drops their pairs
    for name in tensors.keys() & {*METHODS[ranker.model.method].per_candidate}:
        tensors[name] = _rows(tensors[name], rows)
    tensors |= _lists(ranker.model, METHODS[ranker.model.method].candidate_lists, rows)
    if (known := kept_histories(ranker.model, len(places))) is not None:
        tensors |= history_tensors(renumber(known, places, n))
    tensors |= renumbered(tensors, places, n)
    excluded = None if ranker.excluded is None else renumber(ranker.excluded, places, n)
    if ranker.excluded is not None and excluded is not None:
        own = own_pairs(ranker.queries, ranker.candidates)
        if len(changed_rows(ranker.excluded, own)) == 0:  # no query may get its own key
            excluded = excluded.union(own_pairs(ranker.queries, candidates))
    model, seen = replace(ranker.model, tensors=tensors), renumber(ranker.seen, places, n)
    features = None if ranker.features is None else _features(ranker.features, rows)
    return replace(
        ranker,
        model=model,
        candidates=candidates,
        seen=seen,
        excluded=excluded,
        features=features,
        saved=None,
    )


def _lists(model: Model, names: Sequence[str], rows: Tensor) -> dict[str, Tensor]:
    """Those of the lists that a model has, for ``rows``; new ones are empty."""
    held = [name for name in names if f"{name}.offsets" in model.tensors]
    lists = {name: arrange(list_with(model, name, 0), rows) for name in held}
    return {key: tensor for one in held for key, tensor in list_tensors(one, lists[one]).items()}


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Row i is the row ``rows[i]`` of ``tensor``, zeros where that is -1."""
    taken = tensor[rows.clamp(min=0)]
    taken[rows < 0] = 0
    return taken


def _features(features: Features, rows: Tensor) -> Features:
    """Row i is the row ``rows[i]``, without values where that is -1."""
    numbers, categories = _rows(features.numbers, rows), _rows(features.categories, rows)
    numbers[rows < 0], categories[rows < 0] = torch.nan, -1
    return Features(numbers, categories, features.columns)


def _appended(model: Model, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The notes of a model with one more entry in a list."""
    return {**model.notes, name: [*model.notes.get(name, []), entry]}


# ---------------------------------------------------------------------------------- add


def _in_candidates(
    data: Dataset, candidates: Vocabulary
) -> tuple[Interactions, Interactions | None]:
    """The training pairs and the excluded pairs of data, those with known candidates."""
    check_content(data)
    rows, n = rows_of(candidates, data.candidates), len(candidates)
    train = renumber(data.split("train"), rows, n)
    if train.n_pairs == 0:
        raise UserError(
            "the model knows no candidate of the pairs to add",
            hint="check which columns hold the queries and the candidates",
        )
    return train, None if data.excluded is None else renumber(data.excluded, rows, n)


def _n_chosen(pairs: Interactions) -> int:
    """How many candidates have a pair."""
    return int((pairs.candidate_counts() > 0).sum())


def _folded_in(
    model: Model, seen: Interactions, changed: Tensor, texts: Texts | None = None
) -> Model:
    """The model that knows all that the rows ``changed`` have seen, with the texts of all rows."""
    if len(changed) == 0:
        return model
    tensors = dict(model.tensors)
    is_changed = torch.zeros(seen.n_queries, dtype=torch.bool).index_fill(0, changed, value=True)
    if (known := kept_histories(model, seen.n_candidates)) is not None:
        now = arrange(seen, torch.where(is_changed, torch.arange(len(is_changed)), -1))
        now = now if known.grades is not None else replace(now, grades=None)
        tensors |= history_tensors(known.union(now))
    add_texts = METHODS[model.method].add_documents
    if add_texts is not None and texts is not None and known is not None:
        tensors = dict(add_texts(model, texts, known, known.union(now)).tensors)
    elif METHODS[model.method].open(model).histories is not None:
        tensors["queries"] = _read_again(model, seen, changed)
    tensors[_FOLDED_IN] = tensors.get(_FOLDED_IN, torch.zeros_like(is_changed)) | is_changed
    return replace(model, tensors=tensors)


def read_seen(ranker: Ranker, rows: Tensor) -> Ranker:
    """The ranker whose queries ``rows`` answer by all pairs that it has seen.

    Only where queries are what they chose: the others need a fit.
    """
    model = ranker.model
    if len(rows) == 0 or not METHODS[model.method].answers_with(model.config):
        return ranker
    tensors = {**model.tensors, "queries": _read_again(model, ranker.seen, rows)}
    return replace(ranker, model=replace(model, tensors=tensors))


def _read_again(model: Model, seen: Interactions, rows: Tensor) -> Tensor:
    """The vectors of all queries, those of ``rows`` by all that they have seen."""
    opened, queries = METHODS[model.method].open(model), model.tensors["queries"]
    histories = seen.select(rows)
    if opened.known is not None:
        vectors = opened.known(rows, histories)
    else:
        assert opened.histories is not None
        vectors = opened.histories(histories)
    return queries.index_copy(0, rows, vectors.to(queries))


# ---------------------------------------------------------------------------------- extend


def _extend_by_texts(
    ranker: Ranker, table: Any, key_column: str | None, text_column: str | None
) -> Ranker:
    encode = ranker.searcher.opened.texts
    if encode is None:
        raise UserError(
            f"{ranker.model.method} cannot add candidates: it makes no vectors from texts",
            hint="fit it again on all of the data",
        )
    if key_column is text_column is None:
        rows = open_texts(table, "candidate", None)
    else:  # a named column: not a file of lines
        opened = open_table(table, key_column, usual="candidate", what="texts")
        rows = as_texts(opened, text_column)
    _check_new(rows, ranker.candidates)
    assert rows.words is not None
    order = rows.keys.arg_sort()
    keys, words = rows.keys.gather(order), rows.words.gather(order)
    if not ranker.candidates.holds_integers or keys.dtype == pl.String:
        words = words.fill_null(keys.cast(pl.String))  # a key replaces a missing text
    tokens = ranker.tokens(words, "candidate")
    blank = int((tokens.counts() == 0).sum())
    entry = {"candidates": len(keys), **_left_out(rows.bad), "without_words": blank}
    return _extended(ranker, keys, encode(tokens, "candidate"), words, entry)


def _feature_encoder(ranker: Ranker) -> tuple[Callable[[Features, Side], Tensor], Columns]:
    """Encodes new candidates, and the columns it takes."""
    model = ranker.model
    if "features" not in METHODS[model.method].answers:
        able = [name for name, method in METHODS.items() if "features" in method.answers]
        raise UserError(
            f"{model.method} makes no vectors from features",
            hint=f"fit one of {', '.join(able)}" if able else "fit it again on all of the data",
        )
    encode = ranker.searcher.opened.features
    if encode is None or "candidate_columns" not in model.notes:
        raise UserError(
            "this model was fitted without features of candidates",
            hint="prepare the data with --candidate-features, and fit with --set encoder=towers",
        )
    return encode, Columns.from_json(model.notes["candidate_columns"])


def _extended(
    ranker: Ranker, keys: pl.Series, vectors: Tensor, words: pl.Series | None, entry: dict[str, Any]
) -> Ranker:
    """The model with new candidates of these vectors and, if there are any, texts."""
    new = Vocabulary.of(keys, words)
    both = merged_texts(merge(ranker.candidates, keys), ranker.candidates, new)
    grown = _with_candidates(ranker, both)
    tensors = dict(grown.model.tensors)
    tensors["candidates"][grown.candidates.find(keys)] = vectors.to(tensors["candidates"])
    notes = _appended(ranker.model, "extended", {**entry, **_dropped_indexes(ranker)})
    return replace(grown, model=replace(grown.model, tensors=tensors, notes=notes))


def _dropped_indexes(ranker: Ranker) -> dict[str, Any]:
    """How many saved indexes are lost, if there are any."""
    has_one = ranker.saved is not None and "index" in ranker.saved
    return {"indexes_dropped": len(ranker.saved.meta())} if ranker.saved and has_one else {}


def _check_new(table: KeyedTable | TextTable, candidates: Vocabulary) -> None:
    known = table.keys.filter(pl.Series((candidates.find(table.keys) >= 0).numpy()))
    if len(known):
        others = f" and {len(known) - 1:,} more" if len(known) > 1 else ""
        raise UserError(
            f"the model already knows the candidate {known[0]!r}{others} of {table.name}",
            hint="leave known candidates out of the table; fit again if they changed",
        )


def _left_out(bad: BadRows) -> dict[str, Any]:
    """How many rows could not be used and, if there are any, why, and where the first are."""
    reasons = {"dropped": bad.summary()} if bad.counts else {}
    return {"left_out": bad.total, **reasons}
