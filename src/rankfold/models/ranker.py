"""A fitted model that ranks: it takes keys and returns keys."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from rankfold import storage
from rankfold.data.build.new_rows import Record, read_records
from rankfold.data.build.retokenise import Reading
from rankfold.data.folder import TOKENIZER, to_table
from rankfold.errors import UserError
from rankfold.index.build import SIMILAR, SavedIndexes
from rankfold.models import probabilities, update
from rankfold.models.conditions import Conditions
from rankfold.models.explain.ranking import CONTRIBUTIONS
from rankfold.models.model_card import readme
from rankfold.models.notebook_card import model_card
from rankfold.models.ranking import By, Ranking, SearchSpec, UnknownKey, search
from rankfold.models.reranking import Rules
from rankfold.models.search import (
    Searcher,
    exact_similar,
    find_index,
    has_own_search,
    no_features,
    no_texts,
    ranks_by_text,
)
from rankfold.types import (
    Columns,
    Features,
    Interactions,
    Key,
    Model,
    Side,
    Texts,
    Vocabulary,
    to_tensors,
)


@dataclass(frozen=True, slots=True)
class Ranker:
    """A model, the keys of its rows, the pairs it has seen, and texts if it ranks by text."""

    model: Model
    queries: Vocabulary
    candidates: Vocabulary
    seen: Interactions  # not returned by default
    excluded: Interactions | None = None  # never returned
    texts: Texts | None = field(default=None, repr=False)  # of the queries, if it ranks by text
    tokenizer: str | None = field(default=None, repr=False)  # None: new texts cannot be read
    n_tokens: int = 0  # every token is below it
    features: Features | None = field(default=None, repr=False)  # of the candidates
    index: str | None = None  # a key of ``INDEXES``; None: the one in ``saved``, or exact
    saved: SavedIndexes | None = field(default=None, repr=False, compare=False)  # in its folder
    searcher: Searcher = field(init=False, repr=False, compare=False)
    conditions: Conditions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        make, make_similar = find_index(self.index or "exact", self.model), exact_similar
        if self.saved is not None and self.index is None and "index" in self.saved:
            make = partial(self.saved.open, "index")
        if self.saved is not None and self.index is None and SIMILAR in self.saved:
            make_similar = partial(self.saved.open, SIMILAR)
        searcher = Searcher(
            self.model, self.seen, texts=self.texts, make=make, make_similar=make_similar
        )
        object.__setattr__(self, "searcher", searcher)
        object.__setattr__(self, "conditions", Conditions(self.features))

    def __repr__(self) -> str:
        sizes = f"{len(self.queries)} queries x {len(self.candidates)} candidates"
        return f"<Ranker {self.model.method}: {sizes}>"

    def _repr_html_(self) -> str:
        sizes = f"{len(self.queries):,} queries x {len(self.candidates):,} candidates"
        return model_card(self.model, {"ranks": sizes})

    def search(  # noqa: PLR0913
        self,
        queries: Key | Sequence[Key] | None = None,
        *,
        history: Sequence[Key] | None = None,
        features: Record | Sequence[Record] | None = None,
        text: str | Sequence[str] | None = None,
        candidates: Key | Sequence[Key] | None = None,
        k: int = 10,
        include_seen: bool = False,
        exclude: Sequence[Key] = (),
        allow: Sequence[Key] | None = None,
        where: str | None = None,
        pin: Sequence[Key] = (),
        boost: Mapping[str, float] | None = None,
        at_most: Mapping[str, int] | None = None,
        diversity: float = 0.0,
        explain: bool | int = False,
        thresholds: str | None = None,
    ) -> Ranking:
        """The best ``k`` candidates for queries, a history, features or texts, or like candidates.

        Args:
            queries: keys of known queries, or one key.
            history: candidates that a new query chose. One list is returned: the most popular
                candidates if the history is empty.
            features: new queries by their features, for a model that was fitted with features of
                queries, or one such query: ``{"age": 31, "city": "Rome"}``. A column that is left
                out is missing.
            text: new queries, for a model that ranks by text, or one text. A text without a known
                word gets the most popular candidates.
            candidates: keys of candidates, or one key. Each gets the most similar ones, by cosine.
            k: the length of a list.
            include_seen: also return what the query chose before.
            exclude: keys of candidates that are not returned; unknown ones are ignored.
            allow: keys of the only candidates that are returned, unknown ones ignored; None: all.
            where: a condition in SQL on the features of candidates, such as ``price < 20 and brand
                = 'acme'``; only those that meet it are returned.
            pin: keys of candidates that come first, in this order, even if seen.
            boost: what is added to the scores of candidates that meet a condition:
                ``{"brand = 'acme'": 0.5}``.
            at_most: how many results may have the same value of a feature: ``{"brand": 2}``.
            diversity: 0 keeps the order of scores; towards 1, results differ more from each other
                (maximal marginal relevance by the cosine of vectors).
            explain: also say which candidates of the history, or words of the text, raise each
                score; a number: at most so many, True: 5.
            thresholds: for texts: only the results that reach the thresholds of their candidates,
                which were learnt on validation for the largest F1 (``f1``) or to hold a precision
                (``precision=.9``). A list may be empty.
        """
        by, value = _one_input(queries, history, features, text, candidates)
        inputs = [value] if isinstance(value, Mapping) else _listed(value)
        request = SearchSpec(
            by,
            [inputs] if by == "history" else [*map(str, inputs)] if by == "text" else inputs,
            _checked(k),
            _listed(exclude),
            None if allow is None else _listed(allow),
            include_seen,
            where,
            Rules(pin=_listed(pin), boost=boost or {}, at_most=at_most or {}, diversity=diversity),
            CONTRIBUTIONS if explain is True else int(explain),
            thresholds=thresholds,
        )
        (answer,) = search(self, [request])
        if isinstance(answer, UnknownKey):
            keys = self.queries if answer.side == "query" else self.candidates
            raise keys.unknown(answer.key, answer.side)
        return answer

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The probabilities that results with these scores are right, of the same shape.

        They were learnt from the validation queries of a fit of texts.
        ``notes["probabilities"]["error"]`` is their calibration error on queries that had no part
        in it. They do not hold for a text without a known word, whose scores are counts.
        """
        given = torch.from_numpy(np.array(scores, dtype=np.float32))
        values: npt.NDArray[np.float32] = probabilities.at(self.model, given).numpy()
        return values

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the index in use, as JSON values. The index is built if it was not yet."""
        if has_own_search(self.model):
            return {"kind": "exact", "metric": "its own", "recall": {}}
        return dict(self.searcher.measured.about)

    def tokens(self, texts: Sequence[str | None] | pl.Series, side: Side = "query") -> Texts:
        """New texts in the model's tokens; words that it does not know have none."""
        if not ranks_by_text(self.model):
            raise no_texts(self.model)
        if self.tokenizer is None or (self.texts is not None and self.texts.weights is not None):
            raise UserError(
                "the model was fitted on bags of tokens, or on vectors, and cannot read texts",
                hint="give a known query, or fit on data that was prepared from texts",
            )
        given = self.model.notes.get("pretrained", {})
        reading = Reading(self.tokenizer, given.get("prompts", {}), given.get("lower", False))
        return reading.tokens(texts, side)

    @property
    def query_columns(self) -> Columns:
        """The features of queries that the model reads; a UserError if it was fitted without."""
        if "query_columns" not in self.model.notes:
            raise no_features(self.model)
        return Columns.from_json(self.model.notes["query_columns"])

    def read_features(self, records: Sequence[Record]) -> Features:
        """The features of new queries, by the columns that the model was fitted with."""
        columns = self.query_columns
        rows = read_records(records, columns).rows
        return Features(rows.numbers, rows.categories, columns)

    def add(self, data: Any) -> "Ranker":
        """A ranker that also knows the training pairs of ``data``, without fitting again.

        A query with a new pair gets a vector from all that it has chosen. The other queries and all
        candidates keep theirs. Of a model that ranks by text, the candidates with new documents
        move towards them and become more popular. Pairs with unknown candidates are left out;
        ``notes["added"]`` counts what was added and what was left out.

        Args:
            data: prepared data or its folder; or a table or matrix of pairs, as ``fit`` takes it.
        """
        return update.add(self, data)

    def extend(
        self,
        table: Any,
        key_column: str | None = None,
        text_column: str | None = None,
        documents: Any = None,
    ) -> "Ranker":
        """A ranker that also knows the candidates of ``table``, by their features or texts.

        Their vectors come from their texts, if the model ranks by text, else from the columns that
        it was fitted with. No query has chosen them: by popularity, they come last. An entry of
        ``notes["extended"]`` counts them, and the rows of the table that could not be used.

        Args:
            table: one file, or a polars, pandas or Arrow table: a row per new candidate. Texts may
                also be a .txt of lines ``key TAB text``.
            key_column: the column of keys; default: ``candidate``, else the first column that is
                not a feature of the model.
            text_column: the column of texts; default: a column with a usual name, or the only one.
            documents: then ``add`` this data, documents of the new candidates and of known ones.
        """
        return update.extend(self, table, key_column, text_column, documents)

    def forget(
        self, queries: Key | Sequence[Key] = (), *, candidates: Key | Sequence[Key] = ()
    ) -> "Ranker":
        """A ranker without these queries and candidates: keys, vectors and pairs are gone.

        What other vectors have learnt from them stays until the next fit. Models that rank by text
        can lose candidates, the others queries only. An index has to be built again.
        """
        fewer = update.forget(self, _listed(queries)) if queries != () else self
        return update.forget_candidates(fewer, _listed(candidates))

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing a model that is there."""
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
        if self.features is not None:
            files["candidate_features"] = to_tensors(self.features)
            meta["candidate_columns"] = self.features.columns.to_json()
        if self.tokenizer is not None:
            files[TOKENIZER] = self.tokenizer
        if self.saved is not None:
            files |= self.saved.files()
            meta |= self.saved.meta()
        sizes = {"queries": len(self.queries), "candidates": len(self.candidates)}
        storage.write(storage.as_path(path), "model", meta, files, card=readme(self.model, sizes))


def _checked(k: object) -> int:
    """The length of a list; a UserError unless it is a whole number of at least 1."""
    if not isinstance(k, Integral) or isinstance(k, bool):
        raise UserError(f"`k` must be a whole number, got {k!r}", hint="default: 10")
    if k < 1:
        raise UserError(f"`k` must be at least 1, got {k}", hint="default: 10")
    return int(k)


def _one_input(*values: Any) -> tuple[By, Any]:
    """The input of a search, of those in the order of ``By``; a UserError unless there is one."""
    given = [
        (by, value) for by, value in zip(get_args(By), values, strict=True) if value is not None
    ]
    if len(given) != 1:
        raise UserError(
            f"`search` takes one input, got {' and '.join(by for by, _ in given) or 'none'}",
            hint="give one of queries, history, features, text, candidates",
        )
    return given[0]


def _listed(keys: Any) -> list[Any]:
    """A list of keys; one key becomes a list of one."""
    return list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
