"""The texts of documents and candidates that are added to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import torch

from rankfold.data.build.align import arrange
from rankfold.data.build.tokens import same_tokens
from rankfold.errors import UserError
from rankfold.types import Dataset, Texts, Vocabulary, kept_histories

if TYPE_CHECKING:
    from rankfold.models.ranker import Ranker


def with_texts_of(data: Dataset, ranker: Ranker, queries: Vocabulary) -> Texts:
    """The texts of ``queries``: those of the model, and of data in its tokens where it has none.

    A UserError for a known key with another text: documents are often just numbered.
    """
    if kept_histories(ranker.model, len(ranker.candidates)) is None:
        raise UserError(
            "the model does not hold the pairs that it was fitted on",
            hint="fit it again in one process; then pairs can be added",
        )
    theirs, ours = _in_tokens_of(ranker, data), ranker.texts
    assert ours is not None
    rows, known = data.queries.find(queries.keys), ranker.queries.find(queries.keys)
    both = ((rows >= 0) & (known >= 0)).nonzero().flatten()
    pairs = arrange(ours, known[both]), arrange(theirs, rows[both])
    differs = pairs[0].counts() != pairs[1].counts()
    if not bool(differs.any()):
        owners = torch.repeat_interleave(pairs[0].counts())
        differs[owners[pairs[0].tokens != pairs[1].tokens]] = True
    if bool(differs.any()):
        key = queries.keys[int(both[differs][0])]
        raise UserError(
            f"the model knows another text of document {key!r}",
            hint="name a column of keys with --query-column: numbers of rows mean other documents",
        )
    places = torch.where(known >= 0, known, len(ours) + rows)
    return ours.join(theirs).select(places)


def _in_tokens_of(ranker: Ranker, data: Dataset) -> Texts:
    if data.query_texts is None:
        raise UserError(
            f"{ranker.model.method} ranks by the texts of queries, but the data has none",
            hint="prepare it with --format texts or --query-texts",
        )
    if data.queries.texts is None:
        if same_tokens(ranker.tokenizer, data.tokenizer) and data.tokenizer is not None:
            return data.query_texts
        raise UserError(
            "the data has other tokens than the model, and not its texts as they were written",
            hint="prepare it again, from texts",
        )
    return ranker.tokens(data.queries.texts)


def merged_texts(merged: Vocabulary, *parts: Vocabulary) -> Vocabulary:
    """The merged keys with the texts of the parts, if one has texts."""
    if all(part.texts is None for part in parts):
        return merged
    texts = pl.Series([None] * len(merged), dtype=pl.String)
    for part in parts:
        if part.texts is not None:
            texts = texts.scatter(merged.find(part.keys).numpy(), part.texts)
    return Vocabulary(len(merged), lambda: merged.keys, lambda: texts)
